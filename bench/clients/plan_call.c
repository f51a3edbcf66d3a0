/* The host time that a call by an execution plan takes beside one by an algorithm of the library, and the time to load a plan:
 *
 *     cc -O2 plan_call.c -I FOLDER_OF_MSCCLPP_H -lmscclpp -ldl -o plan_call
 *     mscclpp-run -n 2 ./plan_call DEVICE call PLAN.json,ALGORITHM,PACKETS,BYTES,REGISTERED…   # of allreduce or allgather; REGISTERED: 0 or 1
 *     mscclpp-run -n 16 ./plan_call DEVICE load PLAN.json
 *
 * call: calls by the plan and by the algorithm take turns, each in runs that the stream can hold, so the host never waits for the device; the
 * stream is empty before each run. Buffers are apart. ALGORITHM may be -, what the library chooses for a call
 * without a name: such calls repeat themselves without Go. On the host a call is the whole collective. The median of all runs and the least are printed, in nanoseconds a call.
 * With NO_KERNEL=1 and nolaunch.c around the driver launches take nothing, and the time is that of the thread.
 *
 * load: the time to read the file, to make its executor (with the other ranks), and of the first call (memory that ranks
 * share, tables on the device, and the kernel) beside a later one, in milliseconds.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mscclpp.h"

enum { CALLS = 200, RUNS = 61 };

static void *driver, *stream;
static mscclpp_comm_t comm;
static clockid_t clock_used = CLOCK_MONOTONIC;

static void check(int r, const char* what) {
  if (r == 0) return;
  fprintf(stderr, "plan_call: %s: %d %s\n", what, r, mscclpp_last_error());
  exit(1);
}

static double now(void) {
  struct timespec t;
  clock_gettime(clock_used, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* finish waits for the stream, and for all ranks. */
static void finish(void) {
  char mine = 0, all[64];
  if (driver) check(((int (*)(void*))dlsym(driver, "cuStreamSynchronize"))(stream), "cuStreamSynchronize");
  check(mscclpp_comm_exchange(comm, &mine, 1, all), "exchange");
}

static int compare(const void* a, const void* b) {
  double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static char *input, *output;
static size_t bytes;
static int gather, rank, ranks;

static void one(const char* algorithm) {
  mscclpp_call_options_t o = MSCCLPP_CALL_OPTIONS_INIT;
  o.algorithm = algorithm, o.stream = stream;
  if (gather)
    check(mscclpp_all_gather(comm, input, output, bytes / (size_t)ranks / 4, MSCCLPP_FLOAT32, &o), algorithm);
  else
    check(mscclpp_all_reduce(comm, input, output, bytes / 4, MSCCLPP_FLOAT32, MSCCLPP_SUM, &o), algorithm);
}

static double run(const char* algorithm) {
  double begin = now();
  for (int i = 0; i < CALLS; i++) one(strcmp(algorithm, "-") ? algorithm : NULL);
  double t = (now() - begin) / CALLS;
  finish();
  return t;
}

static void keep(void* context, const char* text, size_t size) { snprintf(context, 4096, "%.*s", (int)size, text); }

/* text copies what a key of a flat JSON object has. */
static void field(const char* json, const char* key, char* out, size_t room) {
  char quoted[64];
  snprintf(quoted, sizeof quoted, "\"%s\":", key);
  const char* at = strstr(json, quoted);
  if (at == NULL) check(-1, quoted);
  at += strlen(quoted);
  at += strspn(at, " \"");
  snprintf(out, room, "%.*s", (int)strcspn(at, "\""), at);
}

static void calls(char* pair) {
  char *file = strtok(pair, ","), *algorithm = strtok(NULL, ","), *packets = strtok(NULL, ","), *size = strtok(NULL, ","), *registered = strtok(NULL, ",");
  if (registered == NULL) check(-1, "expected PLAN,ALGORITHM,PACKETS,BYTES,REGISTERED");
  char about[4096], name[256], kind[64];
  mscclpp_plan_t plan;
  mscclpp_memory_t memory;
  mscclpp_window_t window = NULL;
  mscclpp_register_options_t o = MSCCLPP_REGISTER_OPTIONS_INIT;
  check(mscclpp_plan_read(file, &plan), file);
  check(mscclpp_plan_describe(plan, keep, about), "describe");
  field(about, "name", name, sizeof name);
  field(about, "collective", kind, sizeof kind);
  o.packet_bytes = atoi(packets);
  check(mscclpp_plan_register(comm, plan, &o), "register");
  gather = strcmp(kind, "allgather") == 0, bytes = strtoull(size, NULL, 10);
  check(mscclpp_memory_alloc(comm, 2 * bytes, &memory), "alloc");
  if (atoi(registered)) check(mscclpp_window_create(comm, memory, &window), "window");
  check(mscclpp_memory_range(memory, (void**)&input, NULL), "range");
  output = input + bytes;
  static double by_plan[RUNS], by_algorithm[RUNS];
  for (int r = -1; r < RUNS; r++) { /* the first run is no measurement */
    double a = run(name), b = run(algorithm);
    if (r >= 0) by_plan[r] = a, by_algorithm[r] = b;
  }
  qsort(by_plan, RUNS, sizeof *by_plan, compare);
  qsort(by_algorithm, RUNS, sizeof *by_algorithm, compare);
  if (rank == 0)
    printf("CALL {\"plan\": \"%s\", \"algorithm\": \"%s\", \"packets\": %s, \"bytes\": %zu, \"registered\": %s, \"plan_ns\": %.0f, \"algorithm_ns\": %.0f, \"plan_least_ns\": %.0f, \"algorithm_least_ns\": %.0f, \"more_ns\": %.0f}\n",
           name, algorithm, packets, bytes, registered, by_plan[RUNS / 2], by_algorithm[RUNS / 2], by_plan[0], by_algorithm[0], by_plan[RUNS / 2] - by_algorithm[RUNS / 2]);
  fflush(stdout);
  finish();
  check(mscclpp_memory_free(memory), "free");
  check(mscclpp_plan_free(plan), "plan_free");
}

static void load(const char* file) {
  mscclpp_plan_t plan;
  mscclpp_executor_t executor;
  mscclpp_execute_options_t x = MSCCLPP_EXECUTE_OPTIONS_INIT;
  x.stream = stream;
  mscclpp_memory_t memory;
  finish();
  double t[5] = {now()};
  check(mscclpp_plan_read(file, &plan), file);
  t[1] = now();
  check(mscclpp_executor_create(comm, plan, &executor), "executor");
  t[2] = now();
  bytes = 64 << 10;
  check(mscclpp_memory_alloc(comm, 2 * bytes, &memory), "alloc");
  check(mscclpp_memory_range(memory, (void**)&input, NULL), "range");
  output = input + bytes;
  finish();
  t[3] = now();
  check(mscclpp_executor_execute(executor, input, bytes, output, bytes, MSCCLPP_FLOAT32, &x), "execute");
  t[4] = now(); /* without the launch's own time */
  finish();
  double again = now();
  check(mscclpp_executor_execute(executor, input, bytes, output, bytes, MSCCLPP_FLOAT32, &x), "execute");
  again = now() - again;
  finish();
  char own[256], all[64 * 256];
  snprintf(own, sizeof own, "LOAD {\"rank\": %d, \"read_ms\": %.2f, \"executor_ms\": %.2f, \"first_ms\": %.2f, \"again_ms\": %.3f}", rank, (t[1] - t[0]) / 1e6, (t[2] - t[1]) / 1e6, (t[4] - t[3]) / 1e6, again / 1e6);
  check(mscclpp_comm_exchange(comm, own, sizeof own, all), "exchange");
  for (int r = 0; rank == 0 && r < ranks; r++) printf("%s\n", all + r * 256);
}

int main(int count, char** args) {
  if (count < 4) check(-1, "expected DEVICE call|load PLAN…");
  mscclpp_comm_options_t o = MSCCLPP_COMM_OPTIONS_INIT;
  o.device = args[1];
  check(mscclpp_comm_create(&o, &comm), "create");
  check(mscclpp_comm_join(comm), "join");
  check(mscclpp_comm_rank(comm, &rank), "rank");
  check(mscclpp_comm_size(comm, &ranks), "size");
  if (ranks > 64) check(-1, "expected 64 ranks at most");
  char device[64];
  size_t room = sizeof device;
  check(mscclpp_comm_query(comm, "device", device, &room), "device");
  if (strncmp(device, "cuda:", 5) == 0) {
    const char* named = getenv("MSCCLPP_CUDA_LIBRARY");
    void* context;
    if ((driver = dlopen(named ? named : "libcuda.so.1", RTLD_NOW)) == NULL) check(-1, dlerror());
    check(((int (*)(void**, int))dlsym(driver, "cuDevicePrimaryCtxRetain"))(&context, atoi(device + 5)), "context");
    check(((int (*)(void*))dlsym(driver, "cuCtxSetCurrent"))(context), "context");
    check(((int (*)(void**, unsigned, int))dlsym(driver, "cuStreamCreateWithPriority"))(&stream, 1, 0), "stream");
    void (*launch_nothing)(int);
    *(void**)&launch_nothing = dlsym(driver, "launch_nothing");
    if (launch_nothing && getenv("NO_KERNEL")) {
      launch_nothing(1);
      clock_used = CLOCK_THREAD_CPUTIME_ID;
    }
  }
  for (int i = 3; i < count; i++) {
    if (strcmp(args[2], "load") == 0)
      load(args[i]);
    else
      calls(args[i]);
  }
  check(mscclpp_comm_destroy(comm), "destroy");
  return 0;
}
