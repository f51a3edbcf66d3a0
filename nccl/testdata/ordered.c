/* Two ranks on emulated GPUs: a call of the other library on one stream waits for one of this library on another. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>

#include "client.h"

enum { N = 1000 };

static void *driver, *blocked, *late;
static uint64_t* word;
static atomic_int asked, waited;

#define FUNCTION(name, types) ((int(*) types)dlsym(driver, #name))
#define CUDA(name, types, ...) EXPECT(FUNCTION(name, types)(__VA_ARGS__) == 0)

/* The other library has been called: the stream that it was given has to wait for the first one, which goes on now. */
static void called(cudaStream_t stream) {
  if ((void*)stream != late) return;
  atomic_fetch_add(&asked, 1);
  if (FUNCTION(cuStreamQuery, (cudaStream_t))(stream) == 600) atomic_fetch_add(&waited, 1); /* 600: not done */
  atomic_store((_Atomic(uint64_t)*)word, 1);
}

int main(void) {
  void *context, *in, *gathered, *sum, *standin;
  uintptr_t address;
  ncclComm_t comm;
  static float host[2 * N];
  place();
  EXPECT((driver = dlopen(getenv("MSCCLPP_CUDA_LIBRARY"), RTLD_NOW)) != NULL);
  CUDA(cuInit, (unsigned), 0);
  CUDA(cuDevicePrimaryCtxRetain, (void**, int), &context, rank);
  CUDA(cuCtxSetCurrent, (void*), context);
  CUDA(cuStreamCreateWithPriority, (void**, unsigned, int), &blocked, 1, 0);
  CUDA(cuStreamCreateWithPriority, (void**, unsigned, int), &late, 1, 0);
  NCCL(ncclCommInitRank(&comm, nranks, id, rank));
  EXPECT((standin = dlopen(getenv("MSCCLPP_NCCL_LIB_PATH"), RTLD_NOW | RTLD_NOLOAD)) != NULL);
  void (*hook)(void (*)(cudaStream_t));
  *(void**)&hook = dlsym(standin, "standin_hook");
  hook(called);
  CUDA(cuMemAlloc_v2, (void**, size_t), &in, sizeof host);
  CUDA(cuMemAlloc_v2, (void**, size_t), &gathered, sizeof host);
  CUDA(cuMemAlloc_v2, (void**, size_t), &sum, sizeof host);
  CUDA(cuMemHostAlloc, (void**, size_t, unsigned), (void**)&word, 4096, 3); /* portable, mapped */
  CUDA(cuMemHostGetDevicePointer_v2, (uintptr_t*, void*, unsigned), &address, word, 0);
  for (int i = 0; i < N; i++) host[i] = (float)(rank + 1);
  CUDA(cuMemcpyHtoD_v2, (uintptr_t, const void*, size_t), (uintptr_t)in, host, sizeof host);
  /* Once both have called, so that what is loaded at first calls is there. */
  NCCL(ncclAllGather(in, gathered, N, ncclFloat32, comm, blocked));
  NCCL(ncclAllReduce(in, sum, N, ncclFloat32, ncclSum, comm, blocked));
  *word = 0;
  CUDA(cuStreamWaitValue64_v2, (void*, uintptr_t, uint64_t, unsigned), blocked, address, 1, 0);
  NCCL(ncclAllGather(in, gathered, N, ncclFloat32, comm, blocked));
  NCCL(ncclAllReduce(gathered, sum, 2 * N, ncclFloat32, ncclSum, comm, late));
  CUDA(cuStreamSynchronize, (void*), late);
  EXPECT(asked == 1);
  EXPECT(waited == 1);
  CUDA(cuMemcpyDtoH_v2, (void*, uintptr_t, size_t), host, (uintptr_t)sum, sizeof host);
  for (int i = 0; i < 2 * N; i++) EXPECT(host[i] == (i < N ? 2 : 4)); /* of the gathered parts, twice */
  CUDA(cuStreamDestroy_v2, (void*), blocked);
  CUDA(cuStreamDestroy_v2, (void*), late);
  NCCL(ncclCommDestroy(comm));
  printf("rank %d ok\n", rank);
  return 0;
}
