/* Two ranks on emulated GPUs of AMD's, each in a process, over librccl.so.1: the names that RCCL has beside NCCL's, and what it
 * refuses. */
#include <dlfcn.h>
#include <stdint.h>

#include "client.h"

enum { N = 5000, MOST = 3 };

/* As rccl.h declares them. */
ncclResult_t ncclAllToAll(const void* send, void* recv, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllToAllv(const void* send, const size_t sendcounts[], const size_t sdispls[], void* recv, const size_t recvcounts[],
                           const size_t rdispls[], ncclDataType_t type, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAlltoAllv(const void* send, const size_t sendcounts[], const size_t sdispls[], void* recv, const size_t recvcounts[],
                           const size_t rdispls[], ncclDataType_t type, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllReduceWithBias(const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                   cudaStream_t stream, const void* bias);
ncclResult_t mscclLoadAlgo(const char* path, int* handle, int rank);

static void* runtime;
static float host[MOST * N];

#define HIP(name, types, ...) EXPECT(((int(*) types)dlsym(runtime, #name))(__VA_ARGS__) == 0)

static void copy(void* to, const void* from, size_t bytes, void* stream) {
  HIP(hipMemcpyAsync, (void*, const void*, size_t, int, void*), to, from, bytes, 4, stream);
  HIP(hipStreamSynchronize, (void*), stream);
}

/* element is what a rank sends at a place. */
static float element(int of, int at) { return (float)(of * 10 + at % 7 + 1); }

static void fill(void* to, void* stream) {
  for (int i = 0; i < MOST * N; i++) host[i] = element(rank, i);
  copy(to, host, sizeof host, stream);
}

static void is(int at, float want) {
  if (host[at] == want) return;
  fprintf(stderr, "rank %d: element %d is %g: expected %g\n", rank, at, (double)host[at], (double)want);
  exit(1);
}

static void refused(ncclComm_t comm, void* send, void* recv, void* stream) {
  int handle;
  FAILS(ncclAllReduce(send, recv, 16, ncclFloat8e4m3, ncclSum, comm, stream), ncclInvalidArgument, "FNUZ");
  FAILS(ncclReduceScatter(send, recv, 16, ncclFloat8e5m2, ncclMax, comm, stream), ncclInvalidArgument, "FNUZ");
  FAILS(ncclAllReduceWithBias(send, recv, 16, ncclFloat32, ncclSum, comm, stream, send), ncclInvalidUsage, "ncclAllReduceWithBias");
  FAILS(mscclLoadAlgo("x", &handle, rank), ncclInvalidUsage, "plans");
  FAILS(ncclAllReduce(host, recv, 16, ncclFloat32, ncclSum, comm, stream), ncclInvalidArgument, "sendbuff"); /* NCCL_CHECK_POINTERS */
  FAILS(ncclAllToAllv(send, NULL, NULL, recv, NULL, NULL, ncclFloat32, comm, stream), ncclInvalidArgument, "ncclAlltoAllv");
}

typedef ncclResult_t (*exchange)(const void*, const size_t*, const size_t*, void*, const size_t*, const size_t*, ncclDataType_t, ncclComm_t, cudaStream_t);

/* uneven sends 1000 elements to oneself and N to the other rank, from places of their own. */
static void uneven(exchange by, ncclComm_t comm, void* send, void* recv, void* stream) {
  size_t counts[2], sends[2], recvs[2];
  for (int peer = 0; peer < 2; peer++) counts[peer] = peer == rank ? 1000 : N, sends[peer] = (size_t)peer * N, recvs[peer] = (size_t)(1 - peer) * (N + 8);
  copy(recv, send, sizeof host, stream);
  NCCL(by(send, counts, sends, recv, counts, recvs, ncclFloat32, comm, stream));
  copy(host, recv, sizeof host, stream);
  for (int peer = 0; peer < 2; peer++)
    for (size_t i = 0; i < counts[peer]; i++) is((int)(recvs[peer] + i), element(peer, rank * N + (int)i));
}

int main(void) {
  place();
  void *stream, *send, *recv;
  ncclComm_t comm;
  int version, device;
  NCCL(ncclGetVersion(&version));
  EXPECT(version == 22606);
  EXPECT((runtime = dlopen(getenv("MSCCLPP_HIP_LIBRARY"), RTLD_NOW)) != NULL);
  HIP(hipSetDevice, (int), rank);
  HIP(hipStreamCreateWithPriority, (void**, unsigned, int), &stream, 1, 0);
  NCCL(ncclCommInitRank(&comm, nranks, id, rank));
  NCCL(ncclCommCuDevice(comm, &device));
  EXPECT(device == rank);
  HIP(hipMalloc, (void**, size_t), &send, sizeof host);
  NCCL(ncclMemAlloc(&recv, sizeof host));

  fill(send, stream);
  NCCL(ncclAllReduce(send, recv, N, ncclFloat32, ncclSum, comm, stream));
  copy(host, recv, sizeof host, stream);
  for (int i = 0; i < N; i++) is(i, element(0, i) + element(1, i));

  NCCL(ncclAllToAll(send, recv, N, ncclFloat32, comm, stream));
  copy(host, recv, sizeof host, stream);
  for (int i = 0; i < 2 * N; i++) is(i, element(i / N, rank * N + i % N));

  /* Bytes of any type are moved as they are. */
  NCCL(ncclAllGather(send, recv, 64, ncclFloat8e4m3, comm, stream));
  copy(host, recv, sizeof host, stream);
  for (int i = 0; i < 32; i++) is(i, element(i / 16, i % 16));

  uneven(ncclAllToAllv, comm, send, recv, stream);
  uneven(ncclAlltoAllv, comm, send, recv, stream);
  refused(comm, send, recv, stream);

  NCCL(ncclMemFree(recv));
  HIP(hipFree, (void*), send);
  NCCL(ncclCommFinalize(comm));
  NCCL(ncclCommDestroy(comm));
  HIP(hipStreamDestroy, (void*), stream);
  return 0;
}
