// The answers of a machine that lacks something. Each test is run with the rest of its
// name in CUDA_EMULATED_WITHOUT, or in CUDA_VISIBLE_DEVICES.
#include <sys/mman.h>

#include "test.h"

static int attribute(int which) {
  int value;
  OK(cuDeviceGetAttribute(&value, which, 0));
  return value;
}

TEST(without_peer) {
  CUcontext other = use(1);
  use(0);
  int can;
  OK(cuDeviceCanAccessPeer(&can, 0, 1));
  EXPECT(can, 0);
  EXPECT(cuCtxEnablePeerAccess(other, 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
}

TEST(without_vmm) {
  use();
  const CUmemAllocationProp prop = pinned(0);
  size_t unit;
  CUmemGenericAllocationHandle h;
  CUdeviceptr p;
  EXPECT(attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED), 0);
  EXPECT(cuMemGetAllocationGranularity(&unit, &prop, 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT(cuMemCreate(&h, 2 << 20, &prop, 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT(cuMemAddressReserve(&p, 2 << 20, 0, 0, 0), CUDA_ERROR_NOT_SUPPORTED);
  OK(cuMemAlloc_v2(&p, 8));
}

TEST(without_ipc) {
  use();
  Word w;
  CUipcMemHandle h;
  bool capable = true;
  EXPECT(cuIpcGetMemHandle(&h, w.at), CUDA_ERROR_NOT_SUPPORTED);
  OK(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, w.at));
  EXPECT(capable, false);
}

TEST(without_dmabuf) {
  use();
  CUdeviceptr p;
  int fd;
  OK(cuMemAlloc_v2(&p, 4096));
  EXPECT(attribute(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED), 0);
  EXPECT(cuMemGetHandleForAddressRange(&fd, p, 4096, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0), CUDA_ERROR_NOT_SUPPORTED);
}

TEST(without_ordered) {
  use();
  EXPECT(attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING), 0);
  EXPECT(cuFlushGPUDirectRDMAWrites(1, 100), CUDA_ERROR_INVALID_VALUE);
  EXPECT(cuFlushGPUDirectRDMAWrites(0, 0), CUDA_ERROR_INVALID_VALUE);
  OK(cuFlushGPUDirectRDMAWrites(0, 100));
}

TEST(without_flush) {
  use();
  EXPECT(attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS), 0);
  EXPECT(attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING), CU_GPU_DIRECT_RDMA_WRITES_ORDERING_ALL_DEVICES);
  EXPECT(cuFlushGPUDirectRDMAWrites(0, 100), CUDA_ERROR_NOT_SUPPORTED);
}

TEST(without_register) {
  use();
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT(attribute(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED), 0);
  EXPECT(cuMemHostRegister_v2(page, 4096, CU_MEMHOSTREGISTER_DEVICEMAP), CUDA_ERROR_NOT_SUPPORTED);
}

TEST(without_memops) {
  use();
  Word w;
  EXPECT(attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS), 0);
  EXPECT(cuStreamWriteValue64_v2(new_stream(), w.at, 1, 0), CUDA_ERROR_NOT_SUPPORTED);
}

TEST(visible_3_1) {
  int n;
  char pci[16];
  OK(cuInit(0));
  OK(cuDeviceGetCount(&n));
  EXPECT(n, 2);
  OK(cuDeviceGetPCIBusId(pci, sizeof pci, 0));
  EXPECT(strcmp(pci, "0000:E3:00.0"), 0);
  EXPECT(cuDevicePrimaryCtxRelease_v2(2), CUDA_ERROR_INVALID_DEVICE);
}

// The list ends at what names no GPU.
TEST(visible_2_9_0) {
  int n;
  OK(cuInit(0));
  OK(cuDeviceGetCount(&n));
  EXPECT(n, 1);
}

TEST(visible_1_1) { EXPECT(cuInit(0), CUDA_ERROR_NO_DEVICE); }

TEST(visible_) { EXPECT(cuInit(0), CUDA_ERROR_NO_DEVICE); }
