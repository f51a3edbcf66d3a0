/* The order of calls on several streams, which the program may destroy; and what Destroy waits for. */
#include "device.h"

enum { N = 5000, BUSY = 600 /* CUDA_ERROR_NOT_READY */ };

static float* x;
static uint64_t* word;
static ncclComm_t comm;

static void set(float value) {
  for (int i = 0; i < N; i++) x[i] = value;
}
static void all(float value) {
  for (int i = 0; i < N; i++) EXPECT(x[i] == value);
}
static void doubles(void* stream) { NCCL(ncclAllReduce(x, x, N, ncclFloat32, ncclSum, comm, stream)); }
static int busy(void* stream) {
  int r = DRIVER(cuStreamQuery, (void*), stream);
  EXPECT(r == 0 || r == BUSY);
  return r == BUSY;
}

/* A stream with calls on it is destroyed: the next call, on another one, comes behind them. */
static void destroyed_streams(int calls) {
  void *first = stream_new(), *second = stream_new();
  set(1);
  hold(first, word);
  for (int i = 0; i < calls; i++) doubles(first);
  CUDA(cuStreamDestroy_v2, (void*), first);
  doubles(second);
  EXPECT(busy(second));
  release(word);
  stream_sync(second);
  all((float)(1 << (calls + 1)));
  CUDA(cuStreamDestroy_v2, (void*), second);
}

/* A stream is destroyed, and a new one gets its handle: it is another stream all the same. */
static void reused_handle(int calls) {
  void *first = stream_new(), *second = NULL, *others[64];
  int n = 0;
  set(1);
  hold(first, word);
  for (int i = 0; i < calls; i++) doubles(first);
  CUDA(cuStreamDestroy_v2, (void*), first);
  while ((second = stream_new()) != first && n < 64) others[n++] = second;
  EXPECT(second == first); /* the emulated driver allocates streams, and memory is used again */
  doubles(second);
  EXPECT(busy(second));
  release(word);
  stream_sync(second);
  all((float)(1 << (calls + 1)));
  doubles(second);
  stream_sync(second);
  all((float)(1 << (calls + 2)));
  CUDA(cuStreamDestroy_v2, (void*), second);
  while (n > 0) CUDA(cuStreamDestroy_v2, (void*), others[--n]);
}

/* Calls between launches of a graph, on its stream and beside it. */
static void graphs(void) {
  void *stream = stream_new(), *beside = stream_new(), *joined = stream_new(), *graph, *exec, *event;
  CUDA(cuEventCreate, (void**, unsigned), &event, 2);
  set(1);
  doubles(stream);
  /* The capture has two streams; calls of other streams before it are no part of it. */
  doubles(beside);
  stream_sync(beside);
  CUDA(cuStreamBeginCapture_v2, (void*, int), stream, 0);
  doubles(stream);
  CUDA(cuEventRecord, (void*, void*), event, stream);
  CUDA(cuStreamWaitEvent, (void*, void*, unsigned), joined, event, 0);
  doubles(joined);
  CUDA(cuEventRecord, (void*, void*), event, joined);
  CUDA(cuStreamWaitEvent, (void*, void*, unsigned), stream, event, 0);
  doubles(stream);
  CUDA(cuStreamEndCapture, (void*, void**), stream, &graph);
  CUDA(cuGraphInstantiateWithFlags, (void**, void*, uint64_t), &exec, graph, 0);
  all(4);
  float want = 4;
  for (int i = 0; i < 3; i++) {
    CUDA(cuGraphLaunch, (void*, void*), exec, stream);
    doubles(stream);
    stream_sync(stream);
    doubles(beside);
    stream_sync(beside);
    want *= 32;
  }
  all(want);
  CUDA(cuGraphExecDestroy, (void*), exec);
  CUDA(cuGraphDestroy, (void*), graph);
  for (void** s = (void*[]){stream, beside, joined, NULL}; *s; s++) CUDA(cuStreamDestroy_v2, (void*), *s);
  CUDA(cuEventDestroy_v2, (void*), event);
}

static ncclComm_t split(void) {
  ncclComm_t c;
  NCCL(ncclCommSplit(comm, 0, rank, &c, NULL));
  return c;
}

int main(void) {
  place();
  device_open(rank);
  NCCL(ncclCommInitRank(&comm, nranks, id, rank));
  ncclComm_t world = comm;
  x = device_alloc(N * sizeof *x);
  word = device_alloc(4096);
  uint64_t* other = word + 8;

  for (int i = 0; i < 3; i++) { /* the first stream of a communicator, and later ones; many calls, too */
    comm = split();
    for (int k = 0; k < 2 + i; k++) destroyed_streams(1 + 4 * i);
    /* Destroy waits for the calls, and for no other stream. */
    void *own = stream_new(), *spins = stream_new();
    set(1);
    doubles(own);
    hold(spins, other);
    CUDA(cuStreamDestroy_v2, (void*), own);
    if (i % 2) NCCL(ncclCommFinalize(comm));
    NCCL(ncclCommDestroy(comm));
    EXPECT(busy(spins));
    all(2);
    release(other);
    stream_sync(spins);
    comm = world;
  }

  for (int i = 0; i < 3; i++) {
    comm = split();
    reused_handle(1 + 2 * i);
    NCCL(ncclCommDestroy(comm));
    comm = world;
  }

  comm = split();
  graphs();
  NCCL(ncclCommDestroy(comm));
  comm = world;
  comm = split(); /* whose first call is captured */
  graphs();
  NCCL(ncclCommDestroy(comm));
  NCCL(ncclCommDestroy(world));
  printf("rank %d ok\n", rank);
  return 0;
}
