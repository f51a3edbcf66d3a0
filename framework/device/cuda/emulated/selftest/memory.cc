#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

TEST(devices_describe_themselves) {
  int n, major, sms, can;
  char name[64], pci[32], small[4];
  CUuuid a, b;
  EXPECT(cuDeviceGetCount(&n), CUDA_ERROR_NOT_INITIALIZED);
  OK(cuInit(0));
  OK(cuDeviceGetCount(&n));
  EXPECT(n, 4);
  OK(cuDeviceGetName(name, sizeof name, 3));
  EXPECT(strcmp(name, "Emulated GPU"), 0);
  EXPECT(cuDeviceGetName(name, sizeof name, 4), CUDA_ERROR_INVALID_DEVICE);
  OK(cuDeviceGetPCIBusId(pci, sizeof pci, 1));
  EXPECT(strcmp(pci, "0000:E1:00.0"), 0);
  EXPECT(cuDeviceGetPCIBusId(small, sizeof small, 1), CUDA_ERROR_INVALID_VALUE);
  OK(cuDeviceGetUuid_v2(&a, 0));
  OK(cuDeviceGetUuid_v2(&b, 1));
  EXPECT(memcmp(&a, &b, sizeof a) != 0, true);
  OK(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
  OK(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
  EXPECT(major, 9);
  EXPECT(sms, 132);
  EXPECT(cuDeviceGetAttribute(&sms, 0, 0), CUDA_ERROR_INVALID_VALUE);
  OK(cuDeviceCanAccessPeer(&can, 0, 1));
  EXPECT(can, 1);
  OK(cuDeviceCanAccessPeer(&can, 2, 2));
  EXPECT(can, 0);
}

TEST(no_context_no_memory) {
  CUdeviceptr p;
  OK(cuInit(0));
  EXPECT(cuMemAlloc_v2(&p, 8), 201);  // CUDA_ERROR_INVALID_CONTEXT
  CUcontext c = use(), now;
  unsigned flags;
  int active;
  OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
  EXPECT(active, 1);
  OK(cuMemAlloc_v2(&p, 8));
  std::thread([&] { EXPECT(cuMemAlloc_v2(&p, 8), 201); }).join();
  OK(cuDevicePrimaryCtxRelease_v2(0));
  EXPECT(cuMemAlloc_v2(&p, 8), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  OK(cuCtxGetCurrent(&now));
  EXPECT(now == c, true);
  EXPECT(cuDevicePrimaryCtxRelease_v2(0), 201);
  OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
  EXPECT(active, 0);
}

TEST(memory_is_zero_counted_and_limited) {
  use();
  size_t before, after, total;
  CUdeviceptr p, q;
  OK(cuMemGetInfo_v2(&before, &total));
  EXPECT(total, 64 << 20);  // by the environment of the tests
  OK(cuMemAlloc_v2(&p, 1 << 20));
  OK(cuMemGetInfo_v2(&after, &total));
  EXPECT(before - after, 1 << 20);
  for (char c : download(p, 1 << 20)) EXPECT(c, 0);
  EXPECT(cuMemAlloc_v2(&q, 64 << 20), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT(cuMemAlloc_v2(&q, 0), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemFree_v2(p));
  OK(cuMemGetInfo_v2(&after, &total));
  EXPECT(after, before);
}

TEST(freed_memory_is_seen) {
  use();
  CUstream s = new_stream();
  CUdeviceptr p, again;
  OK(cuMemAlloc_v2(&p, 4096));
  OK(cuMemsetD8Async(p, 7, 4096, s));
  EXPECT(cuMemsetD8Async(p, 7, 4097, s), CUDA_ERROR_INVALID_VALUE);
  OK(cuStreamSynchronize(s));
  EXPECT(cuMemFree_v2(p + 8), CUDA_ERROR_INVALID_VALUE);
  EXPECT(download(p, 4096)[4095], 7);
  OK(cuMemFree_v2(p));
  EXPECT(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
  EXPECT(cuMemsetD8Async(p, 7, 8, s), CUDA_ERROR_INVALID_VALUE);
  EXPECT(cuStreamWriteValue64_v2(s, p, 1, 0), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemAlloc_v2(&again, 4096));
  EXPECT(again != p, true);
}

TEST(addresses_tell_what_they_are) {
  use(1);
  CUdeviceptr p, start;
  size_t bytes;
  unsigned type;
  int ordinal;
  void* host;
  OK(cuMemAlloc_v2(&p, 5000));
  OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p + 4999));
  EXPECT(type, CU_MEMORYTYPE_DEVICE);
  OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p));
  EXPECT(ordinal, 1);
  OK(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p + 17));
  OK(cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p + 17));
  EXPECT(start, p);
  EXPECT(bytes, 5000);
  OK(cuMemHostAlloc(&host, 100, CU_MEMHOSTALLOC_DEVICEMAP));
  OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(host)));
  EXPECT(type, CU_MEMORYTYPE_HOST);
  OK(cuMemFreeHost(host));
  EXPECT(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(&bytes)), CUDA_ERROR_INVALID_VALUE);
}

TEST(handles_map_twice) {
  use();
  const CUmemAllocationProp prop = pinned(0), fabric = pinned(0, CU_MEM_HANDLE_TYPE_FABRIC), none = pinned(9);
  const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  size_t unit;
  CUmemGenericAllocationHandle h, same;
  CUdeviceptr a, b;
  int fd = -1;
  OK(cuMemGetAllocationGranularity(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  EXPECT(cuMemCreate(&h, unit, &fabric, 0), CUDA_ERROR_NOT_PERMITTED);
  EXPECT(cuMemCreate(&h, unit, &none, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT(cuMemCreate(&h, unit + 1, &prop, 0), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemCreate(&h, unit, &prop, 0));
  OK(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  OK(cuMemImportFromShareableHandle(&same, reinterpret_cast<void*>(static_cast<intptr_t>(fd)), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(fd);
  OK(cuMemAddressReserve(&a, 2 * unit, 0, 0, 0));
  b = a + unit;
  EXPECT(cuMemMap(a + 8, unit, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemMap(a, unit, 0, h, 0));
  EXPECT(cuMemMap(a, unit, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemMap(b, unit, 0, same, 0));
  CUstream s = new_stream();
  EXPECT(cuMemsetD8Async(a, 1, 8, s), CUDA_ERROR_INVALID_VALUE);  // no access yet
  OK(cuMemSetAccess(a, 2 * unit, &access, 1));
  OK(cuMemRelease(h));
  OK(cuMemRelease(same));
  EXPECT(cuMemRelease(h), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemsetD8Async(a, 5, unit, s));
  OK(cuStreamSynchronize(s));
  EXPECT(download(b + unit - 1, 1)[0], 5);
  EXPECT(cuMemAddressFree(a, 2 * unit), CUDA_ERROR_INVALID_VALUE);  // mapped
  OK(cuMemUnmap(a, 2 * unit));
  OK(cuMemAddressFree(a, 2 * unit));
  EXPECT(cuMemsetD8Async(a, 1, 8, s), CUDA_ERROR_INVALID_VALUE);
}

TEST(host_memory_is_registered_once) {
  use();
  void* page = mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CUdeviceptr d;
  EXPECT(cuMemHostGetDevicePointer_v2(&d, page, 0), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemHostRegister_v2(page, 8192, CU_MEMHOSTREGISTER_DEVICEMAP));
  EXPECT(cuMemHostRegister_v2(static_cast<char*>(page) + 4096, 4096, 0), 712);
  OK(cuMemHostGetDevicePointer_v2(&d, page, 0));
  EXPECT(d, reinterpret_cast<CUdeviceptr>(page));
  OK(cuMemHostUnregister(page));
  EXPECT(cuMemHostUnregister(page), 713);
  munmap(page, 8192);
  EXPECT(cuMemHostRegister_v2(page, 8192, 0), CUDA_ERROR_INVALID_VALUE);
}

// Memory of one process, reached by another: the child writes, the parent reads.
TEST(another_process_writes) {
  int to_child[2], to_parent[2];
  EXPECT(pipe(to_child) | pipe(to_parent), 0);
  const pid_t child = fork();  // before the library is used
  CUipcMemHandle h;
  CUdeviceptr p;
  char done = 0;
  if (child == 0) {
    EXPECT(read(to_child[0], &h, sizeof h), sizeof h);
    use(1);
    CUdeviceptr again;
    OK(cuIpcOpenMemHandle_v2(&p, h, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    OK(cuIpcOpenMemHandle_v2(&again, h, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    EXPECT(again, p);
    CUstream s = new_stream();
    OK(cuMemsetD8Async(p, 9, 3000, s));
    OK(cuStreamSynchronize(s));
    OK(cuIpcCloseMemHandle(p));
    OK(cuIpcCloseMemHandle(p));
    EXPECT(cuIpcCloseMemHandle(p), CUDA_ERROR_INVALID_VALUE);
    EXPECT(write(to_parent[1], &done, 1), 1);
    EXPECT(read(to_child[0], &done, 1), 1);
    EXPECT(cuIpcOpenMemHandle_v2(&p, h, 1), 400);  // freed: CUDA_ERROR_INVALID_HANDLE
    _Exit(0);
  }
  use(0);
  OK(cuMemAlloc_v2(&p, 3000));
  OK(cuIpcGetMemHandle(&h, p + 100));
  CUdeviceptr own;
  EXPECT(cuIpcOpenMemHandle_v2(&own, h, 1), 201);
  EXPECT(write(to_child[1], &h, sizeof h), sizeof h);
  EXPECT(read(to_parent[0], &done, 1), 1);
  EXPECT(download(p + 2999, 1)[0], 9);
  OK(cuMemFree_v2(p));
  EXPECT(write(to_child[1], &done, 1), 1);
  int status;
  EXPECT(waitpid(child, &status, 0), child);
  EXPECT(status, 0);
}

TEST(ranges_as_descriptors) {
  use();
  CUdeviceptr p;
  int fd = -1;
  OK(cuMemAlloc_v2(&p, 8192));
  EXPECT(cuMemGetHandleForAddressRange(&fd, p, 100, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemGetHandleForAddressRange(&fd, p, 8192, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
  char* view = static_cast<char*>(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  view[8191] = 3;
  EXPECT(download(p + 8191, 1)[0], 3);
  EXPECT(fcntl(fd, F_GETFD), FD_CLOEXEC);
}

TEST(peers_are_enabled_once) {
  CUcontext other = use(1);
  CUcontext mine = use(0);
  EXPECT(cuCtxEnablePeerAccess(mine, 0), CUDA_ERROR_INVALID_DEVICE);
  OK(cuCtxEnablePeerAccess(other, 0));
  EXPECT(cuCtxEnablePeerAccess(other, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
}
