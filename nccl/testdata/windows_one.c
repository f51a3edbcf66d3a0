/* Windows and device communicators of four GPUs of one process, whose one thread makes them in groups. */
#include "windows.h"

enum { N = 4 };
static ncclComm_t comms[N];
static void *contexts[N], *streams[N], *kernels[N];
static char* memory[N];
static uint64_t* results[N];
static ncclWindow_t windows[N];
static char devcomms[N][DEVCOMM];

static void current(int device) { CUDA(cuCtxSetCurrent, (void*), contexts[device]); }

/* exchange has a kernel of each GPU write to all others. */
static void exchange(void) {
  for (int r = 0; r < N; r++)
    for (int p = 0; p < N; p++) ((uint32_t*)(memory[r] + 64))[p] = 7;
  for (int r = 0; r < N; r++) {
    struct exchange e = {windows[r], devcomms[r], 64, 0, results[r]};
    current(r);
    launch(kernels[r], streams[r], &e);
  }
  for (int r = 0; r < N; r++) {
    stream_sync(streams[r]);
    EXPECT(*results[r] == 1);
  }
}

int main(void) {
  EXPECT((driver = dlopen(getenv("MSCCLPP_CUDA_LIBRARY"), RTLD_NOW)) != NULL);
  CUDA(cuInit, (unsigned), 0);
  for (int r = 0; r < N; r++) {
    CUDA(cuDevicePrimaryCtxRetain, (void**, int), &contexts[r], r);
    current(r);
    streams[r] = stream_new();
    kernels[r] = kernel_of("window_exchange");
    results[r] = device_alloc(8);
    memory[r] = memory_new((size_t)(r + 1) * MIB);
  }
  NCCL(ncclCommInitAll(comms, N, NULL));
  for (int turn = 0; turn < 2; turn++) {
    struct wishes w = {.barriers = 1};
    NCCL(ncclGroupStart());
    for (int r = 0; r < N; r++) NCCL(ncclCommWindowRegister(comms[r], memory[r], (size_t)(r + 1) * MIB, &windows[r], NCCL_WIN_COLL_SYMMETRIC));
    NCCL(ncclGroupEnd());
    NCCL(ncclGroupStart());
    for (int r = 0; r < N; r++) NCCL(ncclDevCommCreate(comms[r], &w, devcomms[r]));
    NCCL(ncclGroupEnd());
    exchange();
    for (int r = 0; r < N; r++) NCCL(ncclDevCommDestroy(comms[r], devcomms[r]));
    if (turn == 0)
      for (int r = 0; r < N; r++) NCCL(ncclCommWindowDeregister(comms[r], windows[r]));
  }
  NCCL(ncclGroupStart());
  for (int r = 0; r < N; r++)
    for (int i = 0; i < 1000; i++) ((float*)(memory[r] + 4096))[i] = (float)(r * i);
  for (int r = 0; r < N; r++) NCCL(ncclAllReduce(memory[r] + 4096, memory[r] + 4096, 1000, ncclFloat32, ncclSum, comms[r], streams[r]));
  NCCL(ncclGroupEnd());
  for (int r = 0; r < N; r++) {
    stream_sync(streams[r]);
    for (int i = 0; i < 1000; i++) EXPECT(((float*)(memory[r] + 4096))[i] == (float)(6 * i));
  }
  for (int r = 0; r < N; r++) NCCL(ncclMemFree(memory[r])); /* whose windows are still there */
  for (int r = 0; r < N; r++) NCCL(ncclCommDestroy(comms[r]));
  /* a rank alone */
  void* at;
  current(0);
  memory[0] = memory_new(MIB);
  NCCL(ncclCommInitAll(comms, 1, NULL));
  windows[0] = window_new(comms[0], memory[0] + 8192, 100);
  NCCL(ncclGetLsaDevicePointer(windows[0], 4, 0, &at));
  memory[0][8196] = 'y';
  EXPECT(*(char*)at == 'y');
  NCCL(ncclCommDestroy(comms[0]));
  NCCL(ncclMemFree(memory[0]));
  printf("ok\n");
  return 0;
}
