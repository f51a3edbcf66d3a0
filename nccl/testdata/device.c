/* Two ranks on emulated GPUs, each in a process: streams and memory of the program, which destroys the stream and
 * the communicator while calls are still queued; a graph; an operator whose scalar is on the device. */
#include <dlfcn.h>
#include <stdint.h>

#include "client.h"

enum { N = 100000, CALLS = 20 };

static void* driver;
static float host[N];

#define CUDA(name, types, ...) EXPECT(((int(*) types)dlsym(driver, #name))(__VA_ARGS__) == 0)

static void put(void* to, float value) {
  for (int i = 0; i < N; i++) host[i] = value;
  CUDA(cuMemcpyHtoD_v2, (uintptr_t, const void*, size_t), (uintptr_t)to, host, sizeof host);
}

static void all(void* from, float value) {
  CUDA(cuMemcpyDtoH_v2, (void*, uintptr_t, size_t), host, (uintptr_t)from, sizeof host);
  for (int i = 0; i < N; i++)
    if (host[i] != value) {
      fprintf(stderr, "rank %d: element %d is %g: expected %g\n", rank, i, (double)host[i], (double)value);
      exit(1);
    }
}

int main(void) {
  place();
  void *context, *stream, *allocated, *mapped;
  ncclComm_t comm;
  EXPECT((driver = dlopen(getenv("MSCCLPP_CUDA_LIBRARY"), RTLD_NOW)) != NULL);
  CUDA(cuInit, (unsigned), 0);
  CUDA(cuDevicePrimaryCtxRetain, (void**, int), &context, rank);
  CUDA(cuCtxSetCurrent, (void*), context);
  CUDA(cuStreamCreateWithPriority, (void**, unsigned, int), &stream, 1, 0);
  NCCL(ncclCommInitRank(&comm, nranks, id, rank));
  int device;
  NCCL(ncclCommCuDevice(comm, &device));
  EXPECT(device == rank);
  CUDA(cuMemAlloc_v2, (void**, size_t), &allocated, sizeof host);
  NCCL(ncclMemAlloc(&mapped, sizeof host));

  /* NCCL_CHECK_POINTERS is set */
  FAILS(ncclAllReduce(host, mapped, N, ncclFloat32, ncclSum, comm, stream), ncclInvalidArgument, "sendbuff");
  FAILS(ncclBroadcast(allocated, host, N, ncclFloat32, 0, comm, stream), ncclInvalidArgument, "recvbuff");

  /* in a graph, after a call outside of it */
  put(allocated, (float)(rank + 1));
  NCCL(ncclAllReduce(allocated, mapped, N, ncclFloat32, ncclSum, comm, stream));
  CUDA(cuStreamSynchronize, (void*), stream);
  all(mapped, 3);
  void *graph, *exec;
  CUDA(cuStreamBeginCapture_v2, (void*, int), stream, 0);
  NCCL(ncclAllReduce(mapped, mapped, N, ncclFloat32, ncclSum, comm, stream));
  CUDA(cuStreamEndCapture, (void*, void**), stream, &graph);
  CUDA(cuGraphInstantiateWithFlags, (void**, void*, uint64_t), &exec, graph, 0);
  for (int i = 0; i < 2; i++) CUDA(cuGraphLaunch, (void*, void*), exec, stream);
  CUDA(cuStreamSynchronize, (void*), stream);
  all(mapped, 12);
  CUDA(cuGraphExecDestroy, (void*), exec);
  CUDA(cuGraphDestroy, (void*), graph);

  /* a scalar on the device, the first element of mapped, which differs between ranks: read when the call's turn comes */
  ncclRedOp_t times;
  NCCL(ncclRedOpCreatePreMulSum(&times, mapped, ncclFloat32, ncclScalarDevice, comm));
  put(mapped, (float)(2 + rank));
  NCCL(ncclAllReduce(allocated, allocated, N, ncclFloat32, times, comm, stream));
  CUDA(cuStreamSynchronize, (void*), stream);
  all(allocated, 8); /* 1 * 2 + 2 * 3 */
  CUDA(cuStreamBeginCapture_v2, (void*, int), stream, 0);
  NCCL(ncclAllReduce(allocated, allocated, N, ncclFloat32, times, comm, stream));
  CUDA(cuStreamEndCapture, (void*, void**), stream, &graph);
  NCCL(ncclRedOpDestroy(times, comm));
  CUDA(cuGraphInstantiateWithFlags, (void**, void*, uint64_t), &exec, graph, 0);
  for (int i = 0; i < 2; i++) {
    float factor = (float)(i + rank); /* 0 + 1, then 1 + 2 */
    CUDA(cuMemcpyHtoD_v2, (uintptr_t, const void*, size_t), (uintptr_t)mapped, &factor, sizeof factor);
    CUDA(cuGraphLaunch, (void*, void*), exec, stream);
    CUDA(cuStreamSynchronize, (void*), stream);
    all(allocated, i == 0 ? 8 : 24);
  }
  CUDA(cuGraphExecDestroy, (void*), exec);
  CUDA(cuGraphDestroy, (void*), graph);

  /* Destroy waits for what is queued, on a stream that is not there any more. */
  put(allocated, 1);
  for (int i = 0; i < CALLS; i++) NCCL(ncclAllReduce(allocated, allocated, N, ncclFloat32, ncclSum, comm, stream));
  CUDA(cuStreamDestroy_v2, (void*), stream);
  NCCL(ncclCommDestroy(comm));
  all(allocated, (float)(1 << CALLS));

  CUDA(cuCtxSetCurrent, (void*), NULL);
  NCCL(ncclMemFree(mapped));
  NCCL(ncclMemFree(allocated)); /* memory of cuMemAlloc, with no context current */
  CUDA(cuDevicePrimaryCtxRelease_v2, (int), rank);
  printf("rank %d ok\n", rank);
  return 0;
}
