/* Two ranks on emulated GPUs, each with two threads that make calls by turns. Nearly all are repetitions, which are made without Go.
 * Between two of them a thread changes something that such a call depends on, and changes it back. */
#include <pthread.h>
#include <unistd.h>

#include "device.h"
#include "../../capi/mscclpp.h"
#include "../src/comm.h"

enum { N = 500, TURNS = 4, STORM = 300, WAITS = 20, BUSY = 600 /* CUDA_ERROR_NOT_READY */ };

static ncclComm_t comm;
static void *stream, *contexts[2];
static float *in, *out;

/* ---- threads ---- */

static struct {
  pthread_mutex_t lock;
  pthread_cond_t change;
  void (*job)(void);
} other = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL};

static void* worker(void* unused) {
  pthread_mutex_lock(&other.lock);
  for (;;) {
    while (other.job == NULL) pthread_cond_wait(&other.change, &other.lock);
    void (*job)(void) = other.job;
    pthread_mutex_unlock(&other.lock);
    job();
    pthread_mutex_lock(&other.lock);
    other.job = NULL;
    pthread_cond_broadcast(&other.change);
  }
  return unused;
}

static void begin(void (*job)(void)) {
  pthread_mutex_lock(&other.lock);
  other.job = job;
  pthread_cond_broadcast(&other.change);
  pthread_mutex_unlock(&other.lock);
}

static void join(void) {
  pthread_mutex_lock(&other.lock);
  while (other.job) pthread_cond_wait(&other.change, &other.lock);
  pthread_mutex_unlock(&other.lock);
}

/* on has one of the two threads do something, and waits for it. */
static void on(int thread, void (*job)(void)) {
  if (thread == 0) {
    job();
    return;
  }
  begin(job);
  join();
}

/* ---- calls ---- */

#define LIBRARY(name, ...) EXPECT(((__typeof__(&name))symbol(#name))(__VA_ARGS__) == MSCCLPP_SUCCESS)

static void* symbol(const char* name) {
  void *lib = dlopen("libmscclpp.so.1", RTLD_NOW | RTLD_NOLOAD), *at = lib ? dlsym(lib, name) : NULL;
  EXPECT(at != NULL);
  dlclose(lib);
  return at;
}

static mscclpp_comm_t inner(void) { return (mscclpp_comm_t)atomic_load(&comm->inner); }

/* repeated is how many calls were made without Go. */
static unsigned long repeated(void) {
  char text[32];
  size_t size = sizeof text;
  LIBRARY(mscclpp_comm_query, inner(), "calls.repeated", text, &size);
  return strtoul(text, NULL, 10);
}

static void settle(void) {
  void* none;
  CUDA(cuCtxPushCurrent_v2, (void*), contexts[0]);
  stream_sync(stream);
  CUDA(cuCtxPopCurrent_v2, (void**), &none);
}

static float seed, factor = 1;
static ncclRedOp_t op = ncclSum;

static void fill(void) {
  seed += 1;
  for (int i = 0; i < N; i++) in[i] = seed + (float)(rank + i % 50), out[i] = -1;
}

static void is_right(const char* what) {
  for (int i = 0; i < N; i++) {
    float want = factor * (2 * seed + 1 + (float)(2 * (i % 50)));
    if (out[i] != want) {
      fprintf(stderr, "rank %d: %s: element %d is %g: expected %g\n", rank, what, i, (double)out[i], (double)want);
      exit(1);
    }
  }
}

static void call(void) { NCCL(ncclAllReduce(in, out, N, ncclFloat32, op, comm, stream)); }

enum { BY_GO, BY_C, EITHER };

/* sum has a thread make a call, and checks the result, and whether C or Go has made it. */
static void sum(const char* what, int thread, int by) {
  unsigned long before = repeated();
  fill();
  on(thread, call);
  on(thread, settle);
  is_right(what);
  unsigned long made = repeated() - before;
  if (by != EITHER && made != (by == BY_C)) fprintf(stderr, "rank %d: %s: %lu calls were made without Go\n", rank, what, made);
  EXPECT(by == EITHER || made == (by == BY_C));
}

/* ---- what is changed between calls ---- */

static int turn;
static void *graph, *exec, *beside, *event, *handle;

static void* current(void) {
  void* c;
  CUDA(cuCtxGetCurrent, (void**), &c);
  return c;
}

/* the device that is current: another one, and none */
static void other_device(void) { CUDA(cuCtxSetCurrent, (void*), turn % 3 ? contexts[1] : NULL); }
static void own_device(void) { CUDA(cuCtxSetCurrent, (void*), contexts[0]); }

/* groups of one thread are none of the other's; calls in them are made when they end */
static void group_start(void) { NCCL(ncclGroupStart()); }
static void group_ends(void) { NCCL(ncclGroupEnd()); }

static void in_groups(int flips, int calls) {
  on(flips, group_start);
  if (calls != flips) sum("beside a group of the other thread", calls, BY_C);
  unsigned long before = repeated();
  fill();
  on(flips, call);
  settle();
  EXPECT(repeated() == before && out[0] == -1);
  on(flips, group_ends);
  settle();
  is_right("in a group");
}

/* a stream that is captured, by a thread and in a mode */
static void begins(void) { CUDA(cuStreamBeginCapture_v2, (void*, int), stream, turn % 3); }
static void ends(void) { CUDA(cuStreamEndCapture, (void*, void**), stream, &graph); }

/* …and one that is joined to the capture of another one */
static void begins_beside(void) {
  CUDA(cuStreamBeginCapture_v2, (void*, int), beside, turn % 3);
  CUDA(cuEventRecord, (void*, void*), event, beside);
  CUDA(cuStreamWaitEvent, (void*, void*, unsigned), stream, event, 0);
}
static void ends_beside(void) {
  CUDA(cuEventRecord, (void*, void*), event, stream);
  CUDA(cuStreamWaitEvent, (void*, void*, unsigned), beside, event, 0);
  CUDA(cuStreamEndCapture, (void*, void**), beside, &graph);
}

static void launches(void) { CUDA(cuGraphLaunch, (void*, void*), exec, stream); }

static void captured(int flips, int calls, void (*begin)(void), void (*end)(void)) {
  fill();
  on(flips, begin);
  on(calls, call);
  on(flips, end);
  settle();
  EXPECT(out[0] == -1);
  CUDA(cuGraphInstantiateWithFlags, (void**, void*, uint64_t), &exec, graph, 0);
  CUDA(cuGraphDestroy, (void*), graph);
  for (int i = 0; i < 2; i++) {
    fill();
    on(i, launches);
    settle();
    is_right("in a graph");
    sum("between launches of a graph", calls, BY_C);
  }
  CUDA(cuGraphExecDestroy, (void*), exec);
}

/* operations of the program: all get the same handle */
static ncclRedOp_t multiplies;
static void makes_op(void) {
  float f = (float)(2 + turn);
  NCCL(ncclRedOpCreatePreMulSum(&multiplies, &f, ncclFloat32, ncclScalarHostImmediate, comm));
}
static void ends_op(void) { NCCL(ncclRedOpDestroy(multiplies, comm)); }
static void no_op(void) { FAILS(ncclAllReduce(in, out, N, ncclFloat32, multiplies, comm, stream), ncclInvalidArgument, "unknown"); }

static void with_ops(int flips, int calls) {
  on(flips, makes_op);
  sum("beside an operation", calls, BY_C);
  op = multiplies, factor = (float)(2 + turn);
  sum("with an operation", calls, BY_GO);
  sum("with an operation", 1 - calls, BY_GO);
  op = ncclSum, factor = 1;
  on(flips, ends_op);
  on(calls, no_op);
  sum("behind an operation", calls, BY_C);
}

/* registrations, which are local, and windows, in which calls are made by other kernels */
static void registers(void) { NCCL(ncclCommRegister(comm, in, N * sizeof *in, &handle)); }
static void deregisters(void) { NCCL(ncclCommDeregister(comm, handle)); }
static ncclWindow_t window;
static void window_opens(void) {
  NCCL(ncclCommWindowRegister(comm, in, 1 << 20, &window, NCCL_WIN_COLL_SYMMETRIC));
  EXPECT(window != NULL);
}
static void window_ends(void) { NCCL(ncclCommWindowDeregister(comm, window)); }

static uint64_t* word; /* see hold */

static void with_windows(int flips, int calls) {
  float *own_in = in, *own_out = out, *memory;
  NCCL(ncclMemAlloc((void**)&memory, 1 << 20));
  in = memory, out = memory + 1024;
  sum("memory of the library", calls, BY_C);
  on(flips, window_opens);
  for (int i = 0; i < 3; i++) sum("in a window", (calls + i) % 2, BY_GO);
  out = own_out;
  sum("from a window", calls, BY_GO);
  in = own_in;
  sum("beside a window", calls, BY_GO);
  sum("beside a window", 1 - calls, BY_C);
  hold(beside, word); /* what the window has mapped leaves behind all that the device has to do, while calls are made */
  on(flips, window_ends);
  in = memory;
  sum("behind a window", calls, BY_GO);
  for (int i = 0; i < WAITS; i++) sum("behind a window that waits", (calls + i) % 2, BY_C);
  release(word);
  for (int i = 0; i < WAITS; i++) sum("behind a window that leaves", (calls + i) % 2, BY_C);
  in = own_in;
  NCCL(ncclMemFree(memory));
}

/* other memory at the same address */
struct location { int type, id; };
struct allocation {
  int type, handles;
  struct location location;
  void* unused;
  char flags[8];
};
struct grant {
  struct location location;
  int flags;
};
static uintptr_t at;
enum { MAPPED = 2 << 20 };

static void maps(void) {
  const struct allocation a = {.type = 1, .handles = 1, .location = {1, rank}};
  const struct grant g = {{1, rank}, 3};
  uint64_t memory;
  CUDA(cuMemCreate, (uint64_t*, size_t, const void*, uint64_t), &memory, MAPPED, &a, 0);
  CUDA(cuMemMap, (uintptr_t, size_t, size_t, uint64_t, uint64_t), at, MAPPED, 0, memory, 0);
  CUDA(cuMemSetAccess, (uintptr_t, size_t, const void*, size_t), at, MAPPED, &g, 1);
  CUDA(cuMemRelease, (uint64_t), memory);
}
static void unmaps(void) { CUDA(cuMemUnmap, (uintptr_t, size_t), at, MAPPED); }

static void mapped_anew(int flips, int calls) {
  float* own = in;
  in = (float*)at;
  for (int i = 0; i < 2; i++) {
    on(flips, maps);
    sum("memory that was mapped anew", calls, BY_C);
    on(flips, unmaps);
  }
  in = own;
}

/* records */
static void records(void) { LIBRARY(mscclpp_trace_start, inner()); }
static void no_records(void) { LIBRARY(mscclpp_trace_stop, inner()); }

/* selectors, and plans that they choose: one that gives each rank its own numbers, so that a result shows which plan has made it */
static int asked;
static const char* chosen;
static const char* selector(void* with, const mscclpp_request_t* r) {
  EXPECT(with == &asked && r->count == N);
  asked++;
  return chosen;
}
static void selects(void) { LIBRARY(mscclpp_selector_register, inner(), selector, &asked); }
static void selects_no_more(void) { LIBRARY(mscclpp_selector_register, inner(), NULL, NULL); }

static void with_selectors(int flips, int calls) {
  int before = asked;
  chosen = NULL;
  on(flips, selects);
  sum("with a selector", calls, BY_GO);
  sum("with a selector", 1 - calls, BY_GO);
  EXPECT(asked == before + 2);
  chosen = "own";
  fill();
  on(calls, call);
  settle();
  EXPECT(asked == before + 3 && memcmp(in, out, N * sizeof *in) == 0);
  on(flips, selects_no_more);
  sum("behind a selector", calls, BY_GO);
  sum("behind a selector", 1 - calls, BY_C);
  EXPECT(asked == before + 3);
}

static void has_plan(void) {
  mscclpp_plan_t plan;
  mscclpp_register_options_t options = MSCCLPP_REGISTER_OPTIONS_INIT;
  options.flags = MSCCLPP_PLAN_UNVERIFIED;
  LIBRARY(mscclpp_plan_read, getenv("PLAN"), &plan);
  LIBRARY(mscclpp_plan_register, inner(), plan, &options);
  LIBRARY(mscclpp_plan_free, plan);
}

/* simple makes a change, two calls, and the change back. */
static void simple(const char* what, int flips, int calls, void (*change)(void), void (*back)(void), int by) {
  on(flips, change);
  sum(what, calls, by);
  sum(what, 1 - calls, by);
  on(flips, back);
}

static void each(int flips, int calls) {
  void* before = current();
  simple("another device is current", flips, calls, other_device, own_device, BY_C);
  EXPECT(current() == before);
  in_groups(flips, calls);
  captured(flips, calls, begins, ends);
  captured(flips, calls, begins_beside, ends_beside);
  with_ops(flips, calls);
  simple("registered", flips, calls, registers, deregisters, BY_C);
  with_windows(flips, calls);
  mapped_anew(flips, calls);
  simple("with records", flips, calls, records, no_records, BY_GO);
  with_selectors(flips, calls);
  sum("as before", calls, BY_C);
}

/* The other thread changes what is this rank's alone, while calls are made. */
static atomic_int calm;
static void storms(void) {
  void *own = stream_new(), *memory, *made, *registered;
  ncclResult_t state;
  for (int i = 0; !atomic_load(&calm); i++) {
    ncclRedOp_t o;
    NCCL(ncclGroupStart());
    NCCL(ncclRedOpCreatePreMulSum(&o, &seed, ncclFloat32, ncclScalarDevice, comm));
    NCCL(ncclGroupEnd());
    NCCL(ncclMemAlloc(&memory, 4096));
    NCCL(ncclCommRegister(comm, memory, 4096, &registered));
    CUDA(cuCtxSetCurrent, (void*), contexts[i % 2]);
    CUDA(cuCtxSetCurrent, (void*), contexts[0]);
    CUDA(cuStreamBeginCapture_v2, (void*, int), own, i % 3);
    CUDA(cuEventRecord, (void*, void*), event, own);
    NCCL(ncclCommGetAsyncError(comm, &state));
    EXPECT(state == ncclSuccess);
    CUDA(cuStreamEndCapture, (void*, void**), own, &made);
    CUDA(cuGraphDestroy, (void*), made);
    NCCL(ncclCommDeregister(comm, registered));
    NCCL(ncclMemFree(memory));
    NCCL(ncclRedOpDestroy(o, comm));
  }
  CUDA(cuStreamDestroy_v2, (void*), own);
}

static void in_a_storm(void) {
  unsigned long before = repeated();
  int mode = 2; /* of waits beside captures: relaxed */
  CUDA(cuThreadExchangeStreamCaptureMode, (int*), &mode);
  begin(storms);
  for (int i = 0; i < STORM; i++) sum("in a storm", 0, EITHER);
  atomic_store(&calm, 1);
  join();
  CUDA(cuThreadExchangeStreamCaptureMode, (int*), &mode);
  EXPECT(repeated() - before > STORM / 2);
}

/* ---- the end, and other streams: each on a communicator of its own ---- */

static void split(int first, int second) {
  static ncclComm_t world;
  if (world == NULL) world = comm;
  NCCL(ncclCommSplit(world, 0, rank, &comm, NULL));
  sum("the first", first, BY_GO);
  for (int i = 0; i < 4; i++) sum("another one", i % 2 ? first : second, BY_C);
}

static ncclResult_t result;
static void fails(void) { result = ncclAllReduce(in, out, N, ncclFloat32, ncclSum, comm, stream); }
static void aborts(void) { NCCL(ncclCommAbort(comm)); }
static void revokes(void) { NCCL(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT)); }
static void finalizes(void) { NCCL(ncclCommFinalize(comm)); }
static void destroys(void) { NCCL(ncclCommDestroy(comm)); }

static void ended(int flips, int calls, void (*end)(void), ncclResult_t code, int destroyed) {
  split(flips, calls);
  fill();
  on(flips, end);
  for (int i = 0; i < 2; i++) {
    on((calls + i) % 2, fails);
    EXPECT(result == code);
  }
  settle();
  EXPECT(out[0] == -1);
  if (!destroyed) on(flips, destroys);
}

/* A call on another stream comes behind those that were made on the first, whichever thread makes it. */
static int is_busy;
static void holds(void) { hold(stream, word); }
static void waits(void) {
  int r = DRIVER(cuStreamQuery, (void*), stream);
  EXPECT(r == 0 || r == BUSY);
  is_busy = r == BUSY;
}

static void other_streams(int first, int second, void* a, void* b) {
  void* own = stream;
  stream = a;
  split(first, first);
  fill();
  on(first, holds);
  on(first, call);
  stream = b;
  on(second, call);
  on(second, waits);
  EXPECT(is_busy && out[0] == -1);
  release(word);
  on(second, settle);
  is_right("on another stream");
  for (int i = 0; i < 4; i++) {
    stream = i % 2 ? a : b;
    fill();
    on(i % 2 ? first : second, call);
    on(i % 2 ? first : second, settle);
    is_right("on two streams");
  }
  destroys();
  stream = own;
}

int main(void) {
  pthread_t thread;
  void* const of_thread = (void*)2;
  place();
  device_open(rank);
  contexts[0] = current();
  CUDA(cuDevicePrimaryCtxRetain, (void**, int), &contexts[1], 1 - rank);
  EXPECT(pthread_create(&thread, NULL, worker, NULL) == 0);
  on(1, own_device);
  stream = stream_new(), beside = stream_new();
  CUDA(cuEventCreate, (void**, unsigned), &event, 2);
  CUDA(cuMemAddressReserve, (uintptr_t*, size_t, size_t, uintptr_t, uint64_t), &at, MAPPED, 0, 0, 0);
  in = device_alloc(N * sizeof *in), out = device_alloc(N * sizeof *out), word = device_alloc(4096);
  NCCL(ncclCommInitRank(&comm, nranks, id, rank));
  has_plan();
  sum("the first", 0, BY_GO);
  sum("the second", 1, BY_C);
  for (turn = 0; turn < TURNS; turn++) each(turn % 2, turn / 2 % 2);
  in_a_storm();
  for (turn = 0; turn < TURNS; turn++) {
    ended(turn % 2, turn / 2 % 2, aborts, ncclInvalidArgument, 1);
    ended(turn % 2, turn / 2 % 2, revokes, ncclInvalidUsage, 0);
    ended(turn % 2, turn / 2 % 2, finalizes, ncclInvalidUsage, 0);
    other_streams(turn % 2, turn / 2 % 2, stream, beside);
    other_streams(turn % 2, 1 - turn % 2, of_thread, of_thread);
  }
  printf("rank %d ok\n", rank);
  return 0;
}
