/* Two ranks on emulated GPUs: pinned memory of the host as buffers, the default streams, memory that is freed after a
 * call, and a call that one rank captures while the
 * other makes it. With TEST_MODE=short the GPUs have too little memory for a communicator. */
#include "device.h"

enum { N = 5000 };
static ncclComm_t comm;

static float* pinned(void) {
  float* p;
  CUDA(cuMemHostAlloc, (void**, size_t, unsigned), (void**)&p, N * sizeof *p, 3); /* portable, mapped */
  return p;
}

static void summed(const float* x, const char* what) {
  for (int i = 0; i < N; i++)
    if (x[i] != (float)(3 + 2 * i)) {
      fprintf(stderr, "rank %d: %s: element %d is %g\n", rank, what, i, (double)x[i]);
      exit(1);
    }
}

static void all_reduce(float* in, float* out, void* stream, const char* what) {
  for (int i = 0; i < N; i++) in[i] = (float)(rank + 1 + i);
  NCCL(ncclAllReduce(in, out, N, ncclFloat32, ncclSum, comm, stream));
  stream_sync(stream);
  summed(out, what);
}

/* The program allocates half of the GPU, uses it, and frees it, again and again: calls keep no memory alive. */
static void gives_back(void) {
  enum { TURNS = 100 };
  const size_t half = strtoul(getenv("CUDA_EMULATED_MEMORY"), NULL, 10) / 2;
  void* stream = stream_new();
  for (int i = 0; i < TURNS; i++) {
    float* x;
    CUDA(cuMemAlloc_v2, (void**, size_t), (void**)&x, half);
    all_reduce(x, x + half / sizeof *x - N, stream, "the ends of half of the memory");
    CUDA(cuMemFree_v2, (uintptr_t), (uintptr_t)x);
  }
}

/* with_deadline makes a communicator whose calls wait for so long at most; those before may take longer on a busy machine. */
static void with_deadline(const char* deadline) {
  ncclUniqueId* next = device_alloc(sizeof *next);
  if (rank == 0) NCCL(ncclGetUniqueId(next));
  NCCL(ncclBroadcast(next, next, sizeof *next, ncclInt8, 0, comm, NULL));
  stream_sync(NULL);
  NCCL(ncclCommDestroy(comm));
  EXPECT(setenv("MSCCLPP_COMM__DEADLINE", deadline, 1) == 0);
  NCCL(ncclCommInitRank(&comm, nranks, *next, rank));
}

/* Rank 0 records the call, and does not launch the graph: rank 1 waits for it, and with a deadline both are told so. */
static void captured_by_one(void) {
  float* x = device_alloc(N * sizeof *x);
  void *stream = stream_new(), *graph;
  ncclResult_t state = ncclSuccess;
  all_reduce(x, x, stream, "before the capture");
  if (rank == 0) {
    CUDA(cuStreamBeginCapture_v2, (void*, int), stream, 2);
    NCCL(ncclAllReduce(x, x, N, ncclFloat32, ncclSum, comm, stream));
    CUDA(cuStreamEndCapture, (void*, void**), stream, &graph);
    CUDA(cuGraphDestroy, (void*), graph);
  } else {
    NCCL(ncclAllReduce(x, x, N, ncclFloat32, ncclSum, comm, stream));
  }
  do NCCL(ncclCommGetAsyncError(comm, &state));
  while (state == ncclSuccess);
  EXPECT(state == ncclRemoteError && strstr(ncclGetLastError(NULL), rank == 1 ? "rank 0" : "rank 1"));
  stream_sync(stream); /* the kernel of rank 1 has left */
  NCCL(ncclCommAbort(comm));
}

int main(void) {
  const char* mode = getenv("TEST_MODE");
  place();
  device_open(rank);
  if (mode && strcmp(mode, "short") == 0) {
    ncclResult_t r = ncclCommInitRank(&comm, nranks, id, rank);
    EXPECT((r == ncclSystemError || r == ncclRemoteError) && comm == NULL); /* of this GPU, or of the other rank's */
    EXPECT(strstr(ncclGetLastError(NULL), "out of memory"));
    printf("rank %d ok\n", rank);
    return 0;
  }
  NCCL(ncclCommInitRank(&comm, nranks, id, rank));
  float *a = pinned(), *b = device_alloc(N * sizeof *b);
  all_reduce(a, a, NULL, "pinned memory, in place, the default stream");
  all_reduce(a, b, (void*)1, "from pinned memory, the legacy stream");
  all_reduce(b, a, (void*)1, "to pinned memory, the legacy stream");
  gives_back();
  with_deadline("10s");
  captured_by_one();
  printf("rank %d ok\n", rank);
  return 0;
}
