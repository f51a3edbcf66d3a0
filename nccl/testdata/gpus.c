/* Two emulated GPUs of one process: devices, streams, captures. */
#include <dlfcn.h>
#include <stdint.h>

#include "client.h"

enum { N = 1000 };
static void* driver;
static ncclComm_t comms[2];
static float* buffer[2];
static void* contexts[2];

#define CUDA(name, types, ...) EXPECT(((int(*) types)dlsym(driver, #name))(__VA_ARGS__) == 0)

static void current(int device) { CUDA(cuCtxSetCurrent, (void*), contexts[device]); }

static int device_now(void) {
  int d;
  CUDA(cuCtxGetDevice, (int*), &d);
  return d;
}

static void* stream_of(int device) {
  void* s;
  current(device);
  CUDA(cuStreamCreateWithPriority, (void**, unsigned, int), &s, 1, 0);
  return s;
}

static void set(float value) {
  for (int r = 0; r < 2; r++)
    for (int i = 0; i < N; i++) buffer[r][i] = value;
}

static void all(float value) {
  for (int r = 0; r < 2; r++)
    for (int i = 0; i < N; i++) EXPECT(buffer[r][i] == value);
}

static void devices(void) {
  int d;
  FAILS(ncclCommInitAll(comms, 2, (int[]){0, 99}), ncclInvalidArgument, "invalid device 99");
  FAILS(ncclCommInitAll(comms, 2, (int[]){1, 1}), ncclInvalidUsage, "duplicate device 1");
  current(1);
  NCCL(ncclCommInitAll(comms, 2, (int[]){1, 0}));
  EXPECT(device_now() == 1);
  NCCL(ncclCommCuDevice(comms[0], &d));
  EXPECT(d == 1); /* the device, not the rank */
  NCCL(ncclCommCuDevice(comms[1], &d));
  EXPECT(d == 0);
  for (int r = 0; r < 2; r++) NCCL(ncclCommDestroy(comms[r]));
  /* the device is the one that is current at each call */
  ncclUniqueId one;
  NCCL(ncclGetUniqueId(&one));
  NCCL(ncclGroupStart());
  for (int r = 0; r < 2; r++) {
    current(r);
    NCCL(ncclCommInitRank(&comms[r], 2, one, r));
  }
  NCCL(ncclGroupEnd());
  EXPECT(device_now() == 1);
  for (int r = 0; r < 2; r++) {
    NCCL(ncclCommCuDevice(comms[r], &d));
    EXPECT(d == r);
  }
}

/* doubles adds the buffers of both ranks, each on a stream. */
static void doubles(void* of0, void* of1) {
  void* streams[] = {of0, of1};
  for (int r = 0; r < 2; r++) NCCL(ncclAllReduce(buffer[r], buffer[r], N, ncclFloat32, ncclSum, comms[r], streams[r]));
}

static void several_streams(void) {
  void *a[] = {stream_of(0), stream_of(1)}, *b[] = {stream_of(0), stream_of(1)};
  uint64_t* word;
  current(0);
  CUDA(cuMemAlloc_v2, (void**, size_t), (void**)&word, 4096);
  *word = 0;
  set(1);
  CUDA(cuStreamWaitValue64_v2, (void*, uintptr_t, uint64_t, unsigned), b[0], (uintptr_t)word, 1, 0);
  NCCL(ncclGroupStart());
  doubles(a[0], a[1]);
  doubles(b[0], b[1]);
  NCCL(ncclGroupEnd());
  EXPECT(device_now() == 0);
  int busy = ((int (*)(void*))dlsym(driver, "cuStreamQuery"))(a[0]);
  EXPECT(busy == 600); /* CUDA_ERROR_NOT_READY: it waits for the other stream */
  all(1);
  __atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
  for (int r = 0; r < 2; r++) CUDA(cuStreamSynchronize, (void*), a[r]);
  all(4); /* each stream has waited for all */
  for (int r = 0; r < 2; r++) CUDA(cuStreamSynchronize, (void*), b[r]);
}

static void captures(void) {
  void *a[] = {stream_of(0), stream_of(1)}, *b[] = {stream_of(0), stream_of(1)}, *graph[2], *exec[2];
  set(1);
  for (int r = 0; r < 2; r++) CUDA(cuStreamBeginCapture_v2, (void*, int), a[r], 2);
  NCCL(ncclGroupStart());
  doubles(a[0], a[1]);
  doubles(b[0], b[1]);
  FAILS(ncclGroupEnd(), ncclInvalidUsage, "captured");
  NCCL(ncclGroupStart());
  doubles(a[0], a[1]);
  NCCL(ncclGroupEnd());
  for (int r = 0; r < 2; r++) {
    CUDA(cuStreamEndCapture, (void*, void**), a[r], &graph[r]);
    CUDA(cuGraphInstantiateWithFlags, (void**, void*, uint64_t), &exec[r], graph[r], 0);
  }
  all(1);
  for (int turn = 0; turn < 2; turn++) {
    for (int r = 0; r < 2; r++) CUDA(cuGraphLaunch, (void*, void*), exec[r], a[r]);
    for (int r = 0; r < 2; r++) CUDA(cuStreamSynchronize, (void*), a[r]);
    all(2 << turn * 2);
    NCCL(ncclGroupStart()); /* beside it, an ordinary call */
    doubles(b[0], b[1]);
    NCCL(ncclGroupEnd());
    for (int r = 0; r < 2; r++) CUDA(cuStreamSynchronize, (void*), b[r]);
  }
  all(16);
  for (int r = 0; r < 2; r++) {
    CUDA(cuGraphExecDestroy, (void*), exec[r]);
    CUDA(cuGraphDestroy, (void*), graph[r]);
  }
}

/* The device that is current need not be that of the communicator, and stays. */
static void other_device(void) {
  void* s[] = {stream_of(0), stream_of(1)};
  set(3);
  current(1);
  NCCL(ncclGroupStart());
  doubles(s[0], s[1]);
  NCCL(ncclGroupEnd());
  EXPECT(device_now() == 1);
  for (int r = 0; r < 2; r++) CUDA(cuStreamSynchronize, (void*), s[r]);
  all(6);
}

static void memory(void) {
  char *big, *foreign, garbage[64];
  current(0);
  NCCL(ncclMemAlloc((void**)&big, 10 << 20));
  buffer[0] = (float*)(big + (5 << 20) + 64); /* inside */
  current(1);
  NCCL(ncclMemAlloc((void**)&foreign, 1 << 20));
  buffer[1] = (float*)foreign;
  other_device();
  NCCL(ncclMemFree(big)); /* another device is current */
  NCCL(ncclMemFree(foreign));
  CUDA(cuMemAlloc_v2, (void**, size_t), (void**)&foreign, 4096);
  NCCL(ncclMemFree(foreign)); /* of another allocator */
  FAILS(ncclMemFree(garbage), ncclInvalidArgument, "expected memory that the driver has allocated");
}

int main(void) {
  EXPECT((driver = dlopen(getenv("MSCCLPP_CUDA_LIBRARY"), RTLD_NOW)) != NULL);
  CUDA(cuInit, (unsigned), 0);
  for (int r = 0; r < 2; r++) {
    CUDA(cuDevicePrimaryCtxRetain, (void**, int), &contexts[r], r);
    current(r);
    CUDA(cuMemAlloc_v2, (void**, size_t), (void**)&buffer[r], N * sizeof(float));
  }
  devices();
  several_streams();
  captures();
  other_device();
  memory();
  for (int r = 0; r < 2; r++) NCCL(ncclCommDestroy(comms[r]));
  printf("ok\n");
  return 0;
}
