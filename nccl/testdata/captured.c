/* Two ranks on emulated GPUs, as vLLM starts: one element of f32 is all that is called before other types, collectives
 * and messages are captured, in every mode. With TEST_NOTHING_TO_LOAD, nothing can be
 * loaded after the communicator is there. */
#include <dlfcn.h>
#include <stdint.h>
#include <time.h>

#include "client.h"

enum { N = 5000 };

static void *driver, *stream;
static uint16_t host[2 * N];

#define CUDA(name, types, ...) EXPECT(((int(*) types)dlsym(driver, #name))(__VA_ARGS__) == 0)

/* bf16 of small numbers */
static uint16_t bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return (uint16_t)(bits >> 16);
}

static void put(void* to, float value) {
  for (int i = 0; i < 2 * N; i++) host[i] = bf16(value);
  CUDA(cuMemcpyHtoD_v2, (uintptr_t, const void*, size_t), (uintptr_t)to, host, sizeof host);
}

static void all(void* from, int count, float value) {
  CUDA(cuMemcpyDtoH_v2, (void*, uintptr_t, size_t), host, (uintptr_t)from, (size_t)count * 2);
  for (int i = 0; i < count; i++)
    if (host[i] != bf16(value)) {
      fprintf(stderr, "rank %d: element %d is %#x: expected %#x\n", rank, i, host[i], bf16(value));
      exit(1);
    }
}

int main(void) {
  place();
  void *context, *in, *out, *graph, *exec, *memory;
  ncclComm_t comm;
  EXPECT((driver = dlopen(getenv("MSCCLPP_CUDA_LIBRARY"), RTLD_NOW)) != NULL);
  CUDA(cuInit, (unsigned), 0);
  CUDA(cuDevicePrimaryCtxRetain, (void**, int), &context, rank);
  CUDA(cuCtxSetCurrent, (void*), context);
  CUDA(cuStreamCreateWithPriority, (void**, unsigned, int), &stream, 1, 0);
  CUDA(cuMemAlloc_v2, (void**, size_t), &in, sizeof host);
  CUDA(cuMemAlloc_v2, (void**, size_t), &out, sizeof host);
  NCCL(ncclCommInitRank(&comm, nranks, id, rank));
  if (getenv("TEST_NOTHING_TO_LOAD")) EXPECT(setenv("CUDA_EMULATED_IMAGES", "/nonexistent", 1) == 0);
  put(in, 0);
  NCCL(ncclAllReduce(in, in, 1, ncclFloat32, ncclSum, comm, stream));
  CUDA(cuStreamSynchronize, (void*), stream);

  for (int mode = 0; mode < 3; mode++) {
    put(in, (float)(rank + 1));
    put(out, 0);
    CUDA(cuStreamBeginCapture_v2, (void*, int), stream, mode);
    NCCL(ncclMemAlloc(&memory, sizeof host)); /* new memory is no work */
    switch (mode) {
      case 0:
        NCCL(ncclAllReduce(in, out, N, ncclBfloat16, ncclSum, comm, stream));
        nanosleep(&(struct timespec){.tv_nsec = 400000000}, NULL); /* the library looks after its calls meanwhile, and must not spoil the capture */
        break;
      case 1:
        NCCL(ncclReduceScatter(in, (char*)in + rank * N * 2, N, ncclBfloat16, ncclSum, comm, stream));
        NCCL(ncclAllGather((char*)in + rank * N * 2, out, N, ncclBfloat16, comm, stream));
        break;
      case 2:
        NCCL(ncclGroupStart());
        for (int i = 0; i < 100; i++) { /* more than a kernel takes as its argument */
          NCCL(ncclSend((char*)in + i * 64, 32, ncclBfloat16, 1 - rank, comm, stream));
          NCCL(ncclRecv((char*)out + i * 64, 32, ncclBfloat16, 1 - rank, comm, stream));
        }
        NCCL(ncclGroupEnd());
        NCCL(ncclBroadcast(out, out, 1, ncclBfloat16, 0, comm, stream));
        break;
    }
    CUDA(cuStreamEndCapture, (void*, void**), stream, &graph);
    CUDA(cuGraphInstantiateWithFlags, (void**, void*, uint64_t), &exec, graph, 0);
    all(out, 2 * N, 0);
    CUDA(cuGraphLaunch, (void*, void*), exec, stream);
    CUDA(cuStreamSynchronize, (void*), stream);
    switch (mode) {
      case 0: all(out, N, 3); break;
      case 1: all(out, 2 * N, 3); break;
      case 2: all((char*)out + 2, 3199, (float)(2 - rank)); break;
    }
    NCCL(ncclMemFree(memory));
    CUDA(cuGraphExecDestroy, (void*), exec);
    CUDA(cuGraphDestroy, (void*), graph);
  }
  NCCL(ncclCommDestroy(comm));
  printf("rank %d ok\n", rank);
  return 0;
}
