/* Two ranks on emulated GPUs: what makes, ends and asks about communicators, and the first call on a second stream, beside a capture of a stream
 * with which they have nothing to do: the capture goes on, in every mode, and whichever thread has opened it. */
#include <pthread.h>

#include "device.h"

enum { N = 700, OWN = 2 }; /* modes: global and thread-local, which forbid more than the third */
static ncclComm_t parent;
static float* x;

static void fill(float value) {
  for (int i = 0; i < N; i++) x[i] = value;
}

static void all(float value, const char* what) {
  for (int i = 0; i < N; i++)
    if (x[i] != value) {
      fprintf(stderr, "rank %d: %s: element %d is %g: expected %g\n", rank, what, i, (double)x[i], (double)value);
      exit(1);
    }
}

static void stream_destroy(void* s) { CUDA(cuStreamDestroy_v2, (void*), s); }

/* A capture of a stream, with one operation. */
static void *captured, *graph;
static unsigned char* written;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int open_, over, spoiled;

static void begin(int mode) {
  CUDA(cuStreamBeginCapture_v2, (void*, int), captured, mode);
  CUDA(cuMemsetD8Async, (uintptr_t, unsigned char, size_t, void*), (uintptr_t)written, 7, 1, captured);
}

static void* elsewhere(void* mode) {
  void* context;
  CUDA(cuDevicePrimaryCtxRetain, (void**, int), &context, rank);
  CUDA(cuCtxSetCurrent, (void*), context);
  begin(*(int*)mode);
  pthread_mutex_lock(&lock);
  open_ = 1;
  pthread_cond_broadcast(&changed);
  while (!over) pthread_cond_wait(&changed, &lock);
  pthread_mutex_unlock(&lock);
  spoiled = DRIVER(cuStreamEndCapture, (void*, void**), captured, &graph);
  return NULL;
}

/* beside does something while a stream is captured in a mode: of this thread, or from OWN on of another one. */
static void beside(int how, unsigned flags, void (*what)(void), const char* name) {
  void* exec;
  pthread_t thread;
  int mode = how % OWN;
  open_ = over = 0;
  *written = 0;
  CUDA(cuStreamCreateWithPriority, (void**, unsigned, int), &captured, flags, 0);
  if (how < OWN) {
    begin(mode);
    what();
    spoiled = DRIVER(cuStreamEndCapture, (void*, void**), captured, &graph);
  } else {
    EXPECT(pthread_create(&thread, NULL, elsewhere, &mode) == 0);
    pthread_mutex_lock(&lock);
    while (!open_) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    what();
    pthread_mutex_lock(&lock);
    over = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    pthread_join(thread, NULL);
  }
  if (spoiled) {
    fprintf(stderr, "rank %d: %s has spoiled a capture in mode %d of %s thread: error %d\n", rank, name, mode, how < OWN ? "this" : "another", spoiled);
    exit(1);
  }
  CUDA(cuGraphInstantiateWithFlags, (void**, void*, unsigned long long), &exec, graph, 0);
  CUDA(cuGraphDestroy, (void*), graph);
  CUDA(cuGraphLaunch, (void*, void*), exec, captured);
  stream_sync(captured);
  EXPECT(*written == 7);
  CUDA(cuGraphExecDestroy, (void*), exec);
  stream_destroy(captured);
}

static ncclComm_t comm;
static void *first, *second;

/* made makes a communicator that has made calls on a stream, which is destroyed then. */
static void made(void) {
  NCCL(ncclCommSplit(parent, 0, rank, &comm, NULL));
  first = stream_new();
  fill(1);
  for (int i = 0; i < 3; i++) NCCL(ncclAllReduce(x, x, N, ncclFloat32, ncclSum, comm, first));
  stream_destroy(first);
}

static void destroys(void) {
  NCCL(ncclCommDestroy(comm));
  all(8, "calls before ncclCommDestroy");
}

static void finalizes(void) {
  NCCL(ncclCommFinalize(comm));
  all(8, "calls before ncclCommFinalize");
}

static void aborts(void) { NCCL(ncclCommAbort(comm)); }

static void calls(void) {
  NCCL(ncclAllReduce(x, x, N, ncclFloat32, ncclSum, comm, second));
  NCCL(ncclAllReduce(x, x, N, ncclFloat32, ncclSum, comm, second));
}

static void makes_and_ends(void) {
  made();
  NCCL(ncclCommDestroy(comm));
  all(8, "calls of a communicator that was made beside a capture");
}

static void *registration, *memory;
static void deregisters(void) { NCCL(ncclCommDeregister(comm, registration)); }

static ncclWindow_t window;
static void closes_window(void) { NCCL(ncclCommWindowDeregister(comm, window)); }

/* A communicator with calls in a graph: nothing tells of their end but the device. */
static void captures_first(void) {
  void *own, *exec;
  made();
  second = stream_new();
  CUDA(cuStreamBeginCapture_v2, (void*, int), second, 2);
  NCCL(ncclAllReduce(x, x, N, ncclFloat32, ncclSum, comm, second));
  CUDA(cuStreamEndCapture, (void*, void**), second, &own);
  CUDA(cuGraphInstantiateWithFlags, (void**, void*, unsigned long long), &exec, own, 0);
  CUDA(cuGraphDestroy, (void*), own);
  CUDA(cuGraphExecDestroy, (void*), exec);
  stream_destroy(second);
}

int main(void) {
  place();
  device_open(rank);
  x = device_alloc(N * sizeof *x);
  written = device_alloc(1);
  NCCL(ncclCommInitRank(&parent, nranks, id, rank));
  for (int how = 0; how < 2 * OWN; how++) {
    made();
    beside(how, 1, destroys, "ncclCommDestroy");
    captures_first();
    beside(how, 1, destroys, "ncclCommDestroy behind a capture of its own");
    made();
    beside(how, 1, finalizes, "ncclCommFinalize");
    NCCL(ncclCommDestroy(comm));
    made();
    beside(how, 1, aborts, "ncclCommAbort");
    made();
    NCCL(ncclMemAlloc(&memory, 1 << 20));
    NCCL(ncclCommRegister(comm, memory, 1 << 20, &registration));
    beside(how, 1, deregisters, "ncclCommDeregister");
    NCCL(ncclCommWindowRegister(comm, memory, 1 << 20, &window, NCCL_WIN_COLL_SYMMETRIC));
    beside(how, 1, closes_window, "ncclCommWindowDeregister");
    /* A stream that the default stream waits for is known to be captured. */
    second = stream_new();
    beside(how, 0, calls, "the first call on a second stream");
    stream_sync(second);
    all(32, "calls on two streams");
    NCCL(ncclMemFree(memory));
    NCCL(ncclCommDestroy(comm));
    beside(how, 1, makes_and_ends, "ncclCommSplit and ncclCommDestroy");
    stream_destroy(second);
  }
  NCCL(ncclCommDestroy(parent));
  printf("rank %d ok\n", rank);
  return 0;
}
