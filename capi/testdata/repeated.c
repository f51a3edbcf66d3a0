/* Calls on GPUs that repeat earlier ones are made without Go. Each change of what a call depends on lets Go make it once
 * more, and the results are right in either case. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>

#include "client.h"

enum { MOST = 4096, BYTES = MOST * 4, BUFFERS = 8 };

static void *driver, *stream;
static mscclpp_comm_t comm;
static int32_t rank, ranks;
static char *memory; /* of the device: BUFFERS of BYTES */
static float host[MOST];

#define CALL(name, types, ...) demand(__FILE__, __LINE__, #name, ((int(*) types)dlsym(driver, #name))(__VA_ARGS__) == 0)

static void *buffer(int i) { return memory + i * BYTES; }

static void put(void *at, float first) {
  for (int i = 0; i < MOST; i++) host[i] = first + (float)(i % 64);
  CALL(cuMemcpyHtoD_v2, (uint64_t, const void *, size_t), (uint64_t)(uintptr_t)at, host, sizeof host);
}

static void get(const void *at, size_t count) {
  CALL(cuStreamSynchronize, (void *), stream);
  CALL(cuMemcpyDtoH_v2, (void *, uint64_t, size_t), host, (uint64_t)(uintptr_t)at, count * sizeof *host);
}

static unsigned long repeated_of(mscclpp_comm_t c) {
  char text[32];
  size_t size = sizeof text;
  OK(mscclpp_comm_query(c, "calls.repeated", text, &size));
  return strtoul(text, NULL, 10);
}

static mscclpp_result_t call_of(mscclpp_comm_t c, mscclpp_op_t op, const void *in, void *out, size_t count) {
  mscclpp_call_options_t call = MSCCLPP_CALL_OPTIONS_INIT;
  call.stream = stream;
  return mscclpp_all_reduce(c, in, out, count, MSCCLPP_FLOAT32, op, &call);
}

/* reduced checks one sum, and whether it was made without Go: 1, or by it: 0. */
static void reduced(int line, const void *in, void *out, size_t count, int without) {
  static float seed;
  seed += 1;
  put((void *)in, seed + (float)rank);
  unsigned long before = repeated_of(comm);
  OK(call_of(comm, MSCCLPP_SUM, in, out, count));
  unsigned long made = repeated_of(comm) - before;
  get(out, count);
  for (size_t i = 0; i < count; i++) {
    float want = (float)ranks * (seed + (float)(i % 64)) + (float)(ranks * (ranks - 1) / 2);
    if (host[i] != want) fprintf(stderr, "line %d: element %zu is %g: expected %g\n", line, i, (double)host[i], (double)want);
    TRUE(host[i] == want);
  }
  if (made != (unsigned long)without) fprintf(stderr, "line %d: %lu calls were made without Go: expected %d\n", line, made, without);
  TRUE(made == (unsigned long)without);
}
#define REDUCED(...) reduced(__LINE__, __VA_ARGS__)

static void start(void) {
  mscclpp_comm_options_t options = MSCCLPP_COMM_OPTIONS_INIT;
  void *context;
  uint64_t at;
  TRUE((driver = dlopen(getenv("MSCCLPP_CUDA_LIBRARY"), RTLD_NOW)) != NULL);
  CALL(cuInit, (unsigned), 0);
  CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, atoi(getenv("LOCAL_RANK")));
  CALL(cuCtxSetCurrent, (void *), context);
  CALL(cuStreamCreateWithPriority, (void **, unsigned, int), &stream, 1, 0);
  CALL(cuMemAlloc_v2, (uint64_t *, size_t), &at, BUFFERS * BYTES);
  memory = (char *)(uintptr_t)at;
  options.device = "cuda";
  OK(mscclpp_comm_create(&options, &comm));
  OK(mscclpp_comm_join(comm));
  OK(mscclpp_comm_rank(comm, &rank));
  OK(mscclpp_comm_size(comm, &ranks));
}

/* keys: what the entry of a call is found by. */
static void keys(void) {
  mscclpp_call_options_t call = MSCCLPP_CALL_OPTIONS_INIT;
  call.stream = stream;
  REDUCED(buffer(0), buffer(1), 1000, 0);
  REDUCED(buffer(0), buffer(1), 1000, 1);
  REDUCED(buffer(2), buffer(3), 1000, 1); /* other buffers */
  REDUCED(buffer(0), buffer(0), 1000, 0); /* in place */
  REDUCED(buffer(3), buffer(3), 1000, 1);
  REDUCED(buffer(1), buffer(2), 1000, 1);
  REDUCED(buffer(0), buffer(1), 999, 0); /* another count */
  REDUCED(buffer(0), buffer(1), 999, 1);
  REDUCED(buffer(0), buffer(1), 1000, 1);
  OK(mscclpp_all_reduce(comm, buffer(0), buffer(1), 1000, MSCCLPP_FLOAT32, MSCCLPP_MAX, &call));
  put(buffer(0), (float)rank);
  OK(mscclpp_all_reduce(comm, buffer(0), buffer(1), 1000, MSCCLPP_FLOAT32, MSCCLPP_MAX, &call));
  get(buffer(1), 1000);
  for (int i = 0; i < 1000; i++) TRUE(host[i] == (float)(ranks - 1 + i % 64));
  REDUCED(buffer(0), buffer(1), 1000, 1);

  /* What Go refuses is refused, also where there is an entry. */
  REFUSES(call_of(comm, MSCCLPP_SUM, buffer(0), (char *)buffer(0) + 64, 1000), MSCCLPP_INVALID, "overlap");
  REFUSES(call_of(comm, MSCCLPP_SUM, NULL, buffer(1), 1000), MSCCLPP_INVALID, "nil");
  REDUCED(buffer(0), buffer(1), 1000, 1);
  REDUCED(buffer(0), buffer(1), 1000, 1);

  call.algorithm = "no such";
  REFUSES(mscclpp_all_reduce(comm, buffer(0), buffer(1), 1000, MSCCLPP_FLOAT32, MSCCLPP_SUM, &call), MSCCLPP_INVALID, "no such");
}

/* kinds: all collectives, three times each. */
static void kinds(void) {
  mscclpp_call_options_t call = MSCCLPP_CALL_OPTIONS_INIT;
  enum { N = 200 };
  call.stream = stream;
  unsigned long before = repeated_of(comm);
  for (int i = 0; i < 3; i++) {
    put(buffer(0), (float)(100 * rank + i));
    OK(mscclpp_all_gather(comm, buffer(0), buffer(1), N, MSCCLPP_FLOAT32, &call));
    OK(mscclpp_broadcast(comm, buffer(0), buffer(2), N, MSCCLPP_FLOAT32, 1, &call));
    OK(mscclpp_all_to_all(comm, buffer(0), buffer(3), N, MSCCLPP_FLOAT32, &call));
    OK(mscclpp_reduce_scatter(comm, buffer(0), buffer(4), N, MSCCLPP_FLOAT32, MSCCLPP_SUM, &call));
    OK(mscclpp_all_gather(comm, (char *)buffer(5) + rank * N * 4, buffer(5), N, MSCCLPP_FLOAT32, &call));
    OK(mscclpp_barrier(comm, &call));
    get(buffer(1), (size_t)(N * ranks));
    for (int j = 0; j < N * ranks; j++) TRUE(host[j] == (float)(100 * (j / N) + i + j % N % 64));
    get(buffer(2), N);
    for (int j = 0; j < N; j++) TRUE(host[j] == (float)(100 + i + j % 64));
    get(buffer(3), (size_t)(N * ranks));
    for (int j = 0; j < N * ranks; j++) TRUE(host[j] == (float)(100 * (j / N) + i + (rank * N + j % N) % 64));
    get(buffer(4), N);
    for (int j = 0; j < N; j++) TRUE(host[j] == (float)(100 * (ranks * (ranks - 1) / 2) + ranks * (i + (rank * N + j) % 64)));
  }
  TRUE(repeated_of(comm) - before >= 6); /* the two all-gathers of other ranks than 0 have one entry */
}

/* settled asks for the end of calls while the stream waits: before a call that is made without Go, and behind it. */
static void settled(const void *in) {
  enum { PATIENCE = 5000000 };
  uint64_t *words = buffer(7); /* of an emulated GPU: the host reaches them */
  unsigned long before = repeated_of(comm);
  words[0] = words[1] = 0;
  for (int i = 0; i < 2; i++) {
    CALL(cuStreamWaitValue64_v2, (void *, uint64_t, uint64_t, unsigned), stream, (uint64_t)(uintptr_t)&words[i], 1, 0);
    OK(call_of(comm, MSCCLPP_SUM, in, buffer(1), 500));
    TRUE(mscclpp_comm_settle(comm, NULL, 0, PATIENCE) != MSCCLPP_SUCCESS);
  }
  TRUE(repeated_of(comm) == before + 2);
  __atomic_store_n(&words[0], 1, __ATOMIC_SEQ_CST);
  TRUE(mscclpp_comm_settle(comm, NULL, 0, PATIENCE) != MSCCLPP_SUCCESS);
  __atomic_store_n(&words[1], 1, __ATOMIC_SEQ_CST);
  OK(mscclpp_comm_settle(comm, NULL, 0, 0));
}

/* changes: what ends the epoch of all entries. */
static void changes(void) {
  mscclpp_call_options_t call = MSCCLPP_CALL_OPTIONS_INIT;
  mscclpp_memory_t registered;
  mscclpp_window_t window;
  mscclpp_comm_t child;
  void *address, *graph, *exec;
  call.stream = stream;
  REDUCED(buffer(0), buffer(1), 500, 0);
  REDUCED(buffer(0), buffer(1), 500, 1);
  OK(mscclpp_memory_alloc(comm, BYTES, &registered));
  OK(mscclpp_memory_range(registered, &address, NULL));
  REDUCED(address, buffer(1), 500, 1);
  OK(mscclpp_window_create(comm, registered, &window));
  REDUCED(buffer(0), buffer(1), 500, 0);
  REDUCED(buffer(0), buffer(1), 500, 1);
  REDUCED(address, buffer(1), 500, 0); /* memory that was exchanged */
  REDUCED(address, buffer(1), 500, 0);
  OK(mscclpp_window_free(window));
  REDUCED(buffer(0), buffer(1), 500, 0);
  REDUCED(buffer(0), buffer(1), 500, 1);

  /* Asking for the end of calls changes nothing, and the answer counts those that were made without Go. */
  OK(mscclpp_comm_settle(comm, NULL, 0, 0));
  REDUCED(buffer(0), buffer(1), 500, 1);
  settled(address);

  /* Messages in between. */
  OK(mscclpp_group_start(comm));
  OK(mscclpp_send(comm, buffer(1), 100, MSCCLPP_FLOAT32, (rank + 1) % ranks, &call));
  OK(mscclpp_recv(comm, buffer(2), 100, MSCCLPP_FLOAT32, (rank + ranks - 1) % ranks, &call));
  OK(mscclpp_group_end(comm));
  REDUCED(buffer(0), buffer(1), 500, 1);

  /* A communicator that was split off has entries of its own. */
  OK(mscclpp_comm_split(comm, 0, -rank, &child));
  for (int i = 0; i < 4; i++) {
    put(buffer(3), 5);
    OK(call_of(child, MSCCLPP_SUM, buffer(3), buffer(4), 500));
    REDUCED(buffer(0), buffer(1), 500, 1);
    get(buffer(4), 500);
    for (int j = 0; j < 500; j++) TRUE(host[j] == (float)(ranks * (5 + j % 64)));
  }
  TRUE(repeated_of(child) == 3);
  OK(mscclpp_comm_destroy(child));
  REFUSES(call_of(child, MSCCLPP_SUM, buffer(3), buffer(4), 500), MSCCLPP_INVALID, "");
  REDUCED(buffer(0), buffer(1), 500, 1);

  /* A captured call, and calls between its launches. */
  CALL(cuStreamBeginCapture_v2, (void *, int), stream, 0);
  OK(call_of(comm, MSCCLPP_SUM, buffer(5), buffer(6), 500));
  CALL(cuStreamEndCapture, (void *, void **), stream, &graph);
  CALL(cuGraphInstantiateWithFlags, (void **, void *, unsigned long long), &exec, graph, 0);
  for (int i = 0; i < 3; i++) {
    put(buffer(5), (float)(i + rank));
    CALL(cuGraphLaunch, (void *, void *), exec, stream);
    REDUCED(buffer(0), buffer(1), 500, 1);
    get(buffer(6), 500);
    for (int j = 0; j < 500; j++) TRUE(host[j] == (float)(ranks * (i + j % 64) + ranks * (ranks - 1) / 2));
  }
  CALL(cuGraphExecDestroy, (void *), exec);
  CALL(cuGraphDestroy, (void *), graph);
}

/* ---- threads ---- */

enum { TURNS = 1000 };

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static int turns, ended;

/* Threads make the calls of the same sequence by turns. */
static void *player(void *parity) {
  for (;;) {
    pthread_mutex_lock(&turn);
    int t = turns;
    if (t < TURNS && t % 2 == *(int *)parity) {
      OK(call_of(comm, MSCCLPP_SUM, buffer(0), buffer(0), 16));
      turns++;
    }
    pthread_mutex_unlock(&turn);
    if (t >= TURNS) return NULL;
    sched_yield();
  }
}

static void *watcher(void *unused) {
  while (!__atomic_load_n(&ended, __ATOMIC_ACQUIRE)) {
    OK(mscclpp_comm_status(comm));
    OK(mscclpp_comm_check(comm));
    (void)mscclpp_comm_settle(comm, NULL, 0, 1000); /* it may be too early */
    sched_yield();
  }
  return unused;
}

static void by_threads(void) {
  pthread_t a, b, w;
  int even = 0, odd = 1;
  memset(host, 0, sizeof host);
  CALL(cuMemcpyHtoD_v2, (uint64_t, const void *, size_t), (uint64_t)(uintptr_t)buffer(0), host, sizeof host);
  TRUE(pthread_create(&w, NULL, watcher, NULL) == 0);
  TRUE(pthread_create(&a, NULL, player, &even) == 0 && pthread_create(&b, NULL, player, &odd) == 0);
  TRUE(pthread_join(a, NULL) == 0 && pthread_join(b, NULL) == 0);
  __atomic_store_n(&ended, 1, __ATOMIC_RELEASE);
  TRUE(pthread_join(w, NULL) == 0);
  get(buffer(0), 16);
  for (int i = 0; i < 16; i++) TRUE(host[i] == 0);
  OK(mscclpp_comm_settle(comm, NULL, 0, 0));
  REDUCED(buffer(0), buffer(1), 1000, 0);
}

void repeated(void) {
  start();
  keys();
  kinds();
  changes();
  by_threads();

  /* Calls on two streams are put in order, which Go does. */
  void *first = stream;
  REDUCED(buffer(0), buffer(1), 1000, 1);
  CALL(cuStreamCreateWithPriority, (void **, unsigned, int), &stream, 1, 0);
  for (int i = 0; i < 3; i++) {
    REDUCED(buffer(0), buffer(1), 1000, 0);
    void *other = stream;
    stream = first;
    first = other;
  }
  OK(mscclpp_comm_destroy(comm));
}

/* ---- abort ---- */

static void *aborter(void *unused) {
  while (repeated_of(comm) < 100) sched_yield();
  OK(mscclpp_comm_abort(comm, "enough"));
  return unused;
}

/* Another thread aborts the communicator between two calls that are made without Go. */
void interrupted(void) {
  pthread_t a;
  mscclpp_result_t r;
  start();
  if (rank == 0) TRUE(pthread_create(&a, NULL, aborter, NULL) == 0);
  while ((r = call_of(comm, MSCCLPP_SUM, buffer(0), buffer(1), 16)) == MSCCLPP_SUCCESS) {
  }
  if (rank == 0) {
    TRUE(pthread_join(a, NULL) == 0);
    REFUSES(call_of(comm, MSCCLPP_SUM, buffer(0), buffer(1), 16), MSCCLPP_INVALID, "destroyed");
  } else {
    if (r != MSCCLPP_PEER) fprintf(stderr, "%s: %s\n", mscclpp_result_name(r), mscclpp_last_error());
    TRUE(r == MSCCLPP_PEER);
    OK(mscclpp_comm_destroy(comm));
  }
  CALL(cuStreamSynchronize, (void *), stream);
}
