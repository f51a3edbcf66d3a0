/* Two ranks on emulated GPUs: a graph that another thread launches, and memory that is mapped anew, or freed in a capture. */
#include <pthread.h>
#include <unistd.h>

#include "device.h"

enum { N = 3000 };
static ncclComm_t comm;
static void *stream, *exec;

static void fill(float* x, float value) {
  for (int i = 0; i < N; i++) x[i] = value;
}

static void all(const float* x, float value, const char* what) {
  for (int i = 0; i < N; i++)
    if (x[i] != value) {
      fprintf(stderr, "rank %d: %s: element %d is %g: expected %g\n", rank, what, i, (double)x[i], (double)value);
      exit(1);
    }
}

static long resident(void) { /* KiB */
  long pages = 0;
  FILE* f = fopen("/proc/self/statm", "r");
  EXPECT(f && fscanf(f, "%*d %ld", &pages) == 1);
  fclose(f);
  return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void* launches(void* with) {
  void* context;
  (void)with;
  CUDA(cuDevicePrimaryCtxRetain, (void**, int), &context, rank);
  CUDA(cuCtxSetCurrent, (void*), context);
  CUDA(cuGraphLaunch, (void*, void*), exec, stream);
  stream_sync(stream);
  return NULL;
}

/* Graphs are launched by threads that never called the library, between calls of another one. */
static void graph_of_another_thread(void) {
  void* graph;
  pthread_t thread;
  float* x = device_alloc(N * sizeof *x);
  fill(x, 1);
  CUDA(cuStreamBeginCapture_v2, (void*, int), stream, 0);
  NCCL(ncclAllReduce(x, x, N, ncclFloat32, ncclSum, comm, stream));
  CUDA(cuStreamEndCapture, (void*, void**), stream, &graph);
  CUDA(cuGraphInstantiateWithFlags, (void**, void*, unsigned long long), &exec, graph, 0);
  CUDA(cuGraphDestroy, (void*), graph);
  for (int turn = 0; turn < 4; turn++) {
    EXPECT(pthread_create(&thread, NULL, launches, NULL) == 0);
    pthread_join(thread, NULL);
    all(x, (float)(2 << 2 * turn), "launched by another thread");
    NCCL(ncclAllReduce(x, x, N, ncclFloat32, ncclSum, comm, stream));
    stream_sync(stream);
    all(x, (float)(4 << 2 * turn), "called between launches");
  }
  CUDA(cuGraphExecDestroy, (void*), exec);
}

/* Structures of cuda.h. */
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

/* An allocator that maps other memory at the same addresses, as expandable segments do: calls use what is there when they are made. */
static void mapped_anew(void) {
  const struct allocation a = {.type = 1, .handles = 1, .location = {1, rank}};
  const struct grant g = {{1, rank}, 3};
  const size_t size = 2 << 20;
  uintptr_t at;
  uint64_t handle;
  CUDA(cuMemAddressReserve, (uintptr_t*, size_t, size_t, uintptr_t, uint64_t), &at, size, 0, 0, 0);
  for (int turn = 0; turn < 5; turn++) {
    CUDA(cuMemCreate, (uint64_t*, size_t, const void*, uint64_t), &handle, size, &a, 0);
    CUDA(cuMemMap, (uintptr_t, size_t, size_t, uint64_t, uint64_t), at, size, 0, handle, 0);
    CUDA(cuMemSetAccess, (uintptr_t, size_t, const void*, size_t), at, size, &g, 1);
    float* x = (float*)at;
    void* registered = NULL;
    if (turn % 2) NCCL(ncclCommRegister(comm, x, size, &registered));
    fill(x, (float)(turn + 1));
    NCCL(ncclAllReduce(x, x, N, ncclFloat32, ncclSum, comm, stream));
    NCCL(ncclBroadcast(x, x + N, N, ncclFloat32, 1, comm, stream));
    stream_sync(stream);
    all(x, (float)(2 * turn + 2), "memory that was mapped anew");
    all(x + N, (float)(2 * turn + 2), "memory that was mapped anew");
    NCCL(ncclCommDeregister(comm, registered));
    CUDA(cuMemUnmap, (uintptr_t, size_t), at, size);
    CUDA(cuMemRelease, (uint64_t), handle);
  }
  CUDA(cuMemAddressFree, (uintptr_t, size_t), at, size);
}

/* Programs capture the same calls again and again, and launch few of the graphs, as those do that compile: what belongs to a capture ends with it. */
static void throw_away_captures(void) {
  enum { GRAPHS = 300, WARM = 60, MESSAGES = 40 };
  void *graph, *made;
  size_t left, whole, before = 0;
  long kib = 0;
  float* x = device_alloc(2 * N * sizeof *x);
  for (int i = 0; i < GRAPHS; i++) {
    if (i == WARM) {
      CUDA(cuMemGetInfo_v2, (size_t*, size_t*), &before, &whole);
      kib = resident();
    }
    CUDA(cuStreamBeginCapture_v2, (void*, int), stream, 1);
    NCCL(ncclAllReduce(x, x, N, ncclFloat32, ncclSum, comm, stream));
    NCCL(ncclGroupStart());
    for (int m = 0; m < MESSAGES; m++) {
      NCCL(ncclSend(x + m, 1, ncclFloat32, 1 - rank, comm, stream));
      NCCL(ncclRecv(x + N + m, 1, ncclFloat32, 1 - rank, comm, stream));
    }
    NCCL(ncclGroupEnd());
    CUDA(cuStreamEndCapture, (void*, void**), stream, &graph);
    CUDA(cuGraphInstantiateWithFlags, (void**, void*, unsigned long long), &made, graph, 0);
    CUDA(cuGraphDestroy, (void*), graph);
    if (i % 10 == 0) {
      fill(x, 1);
      CUDA(cuGraphLaunch, (void*, void*), made, stream);
      stream_sync(stream);
      all(x, 2, "launched once");
      EXPECT(x[N] == 2 && x[N + MESSAGES - 1] == 2);
    }
    CUDA(cuGraphExecDestroy, (void*), made);
  }
  CUDA(cuMemGetInfo_v2, (size_t*, size_t*), &left, &whole);
  long more = resident() - kib;
  fprintf(stderr, "%d captures: %zu bytes of the GPU and %ld KiB of the host are gone\n", GRAPHS - WARM, before - left, more);
  EXPECT(left == before);
  EXPECT(more < 4 * 1024); /* the runtime's heap breathes */
}

/* Freeing waits for the device's work, and spoils no capture: of the thread that frees or of another one, in any mode. */
static void* freed;
static void* frees(void* with) {
  void* context;
  (void)with;
  CUDA(cuDevicePrimaryCtxRetain, (void**, int), &context, rank);
  CUDA(cuCtxSetCurrent, (void*), context);
  NCCL(ncclMemFree(freed));
  return NULL;
}

static void freed_in_a_capture(void) {
  void* graph;
  pthread_t thread;
  float* x = device_alloc(N * sizeof *x);
  for (int i = 0; i < 18; i++) {
    if (i / 3 % 3 == 0) NCCL(ncclMemAlloc(&freed, 64));
    else if (i / 3 % 3 == 1) freed = device_alloc(64);
    else { /* of which there is a window */
      ncclWindow_t window;
      NCCL(ncclMemAlloc(&freed, 1 << 20));
      NCCL(ncclCommWindowRegister(comm, freed, 1 << 20, &window, NCCL_WIN_COLL_SYMMETRIC));
    }
    fill(x, 1);
    CUDA(cuStreamBeginCapture_v2, (void*, int), stream, i % 3);
    NCCL(ncclAllReduce(x, x, N, ncclFloat32, ncclSum, comm, stream));
    if (i < 9) {
      NCCL(ncclMemFree(freed));
    } else {
      EXPECT(pthread_create(&thread, NULL, frees, NULL) == 0);
      pthread_join(thread, NULL);
    }
    NCCL(ncclAllReduce(x, x, N, ncclFloat32, ncclSum, comm, stream));
    CUDA(cuStreamEndCapture, (void*, void**), stream, &graph);
    CUDA(cuGraphInstantiateWithFlags, (void**, void*, unsigned long long), &exec, graph, 0);
    CUDA(cuGraphDestroy, (void*), graph);
    CUDA(cuGraphLaunch, (void*, void*), exec, stream);
    stream_sync(stream);
    all(x, 4, "a graph in whose capture memory was freed");
    CUDA(cuGraphExecDestroy, (void*), exec);
    FAILS(ncclMemFree(freed), ncclInvalidArgument, "expected memory that the driver has allocated");
  }
}

int main(void) {
  place();
  device_open(rank);
  stream = stream_new();
  NCCL(ncclCommInitRank(&comm, nranks, id, rank));
  graph_of_another_thread();
  mapped_anew();
  throw_away_captures();
  freed_in_a_capture();
  NCCL(ncclCommDestroy(comm));
  printf("rank %d ok\n", rank);
  return 0;
}
