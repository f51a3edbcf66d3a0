/* Functions that RCCL has beside NCCL's. */
#include "../export.h"
#include "../log.h"
#include "../types.h"

EXPORT(ncclResult_t, AllToAll, const void* send, void* recv, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
  return pncclAlltoAll(send, recv, count, type, comm, stream);
}

/* Every rank sends each other one a part of its own size: messages, in a group. */
EXPORT(ncclResult_t, AlltoAllv, const void* send, const size_t sendcounts[], const size_t sdispls[], void* recv, const size_t recvcounts[],
       const size_t rdispls[], ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
  int n = 0, element = type_size(type);
  if (sendcounts == NULL || sdispls == NULL || recvcounts == NULL || rdispls == NULL)
    return fail(ncclInvalidArgument, "ncclAlltoAllv : counts and displacements: expected no NULL");
  if (element == 0) return fail(ncclInvalidArgument, "ncclAlltoAllv : invalid type %d", (int)type);
  ncclResult_t r = pncclCommCount(comm, &n);
  if (r != ncclSuccess || (r = pncclGroupStart()) != ncclSuccess) return r;
  for (int peer = 0; peer < n && r == ncclSuccess; peer++) {
    if (sendcounts[peer]) r = pncclSend((const char*)send + sdispls[peer] * (size_t)element, sendcounts[peer], type, peer, comm, stream);
    if (r == ncclSuccess && recvcounts[peer]) r = pncclRecv((char*)recv + rdispls[peer] * (size_t)element, recvcounts[peer], type, peer, comm, stream);
  }
  ncclResult_t end = pncclGroupEnd();
  return r == ncclSuccess ? end : r;
}

/* Its name until RCCL 2.28. */
EXPORT(ncclResult_t, AllToAllv, const void* send, const size_t sendcounts[], const size_t sdispls[], void* recv, const size_t recvcounts[],
       const size_t rdispls[], ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
  return pncclAlltoAllv(send, sendcounts, sdispls, recv, recvcounts, rdispls, type, comm, stream);
}

EXPORT(ncclResult_t, AllReduceWithBias, const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
       cudaStream_t stream, const void* bias) {
  (void)send, (void)recv, (void)count, (void)type, (void)op, (void)comm, (void)stream, (void)bias;
  return fail(ncclInvalidUsage, "ncclAllReduceWithBias : not in this library: expected ncclAllReduce, and an addition of the program");
}

/* Algorithms of MSCCL come as files of another format than this library's plans. */
#define MSCCL(name, ...)                                                                   \
  VISIBLE ncclResult_t pmsccl##name(__VA_ARGS__);                                          \
  VISIBLE ncclResult_t msccl##name(__VA_ARGS__) __attribute__((weak, alias("pmsccl" #name))); \
  ncclResult_t pmsccl##name(__VA_ARGS__)

static ncclResult_t no_algorithms(const char* function) {
  return fail(ncclInvalidUsage, "%s : algorithms of MSCCL are not in this library: expected plans, which collectives.plans names", function);
}

MSCCL(LoadAlgo, const char* path, int* handle, int rank) {
  (void)path, (void)handle, (void)rank;
  return no_algorithms("mscclLoadAlgo");
}

MSCCL(RunAlgo, const void* send, const size_t sendcounts[], const size_t sdispls[], void* recv, const size_t recvcounts[], const size_t rdispls[],
      size_t count, ncclDataType_t type, int root, int peer, ncclRedOp_t op, int handle, ncclComm_t comm, cudaStream_t stream) {
  (void)send, (void)sendcounts, (void)sdispls, (void)recv, (void)recvcounts, (void)rdispls, (void)count, (void)type, (void)root, (void)peer, (void)op;
  (void)handle, (void)comm, (void)stream;
  return no_algorithms("mscclRunAlgo");
}

MSCCL(UnloadAlgo, int handle) {
  (void)handle;
  return no_algorithms("mscclUnloadAlgo");
}
