// Multicast objects: every step, and every answer to a step out of order.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

namespace {

constexpr size_t kUnit = 2 << 20;
using Handle = CUmemGenericAllocationHandle;

CUmulticastObjectProp window(unsigned devices, size_t bytes = kUnit, unsigned long long types = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
  CUmulticastObjectProp p{};
  p.numDevices = devices;
  p.size = bytes;
  p.handleTypes = types;
  return p;
}

Handle object(unsigned devices, size_t bytes = kUnit) {
  const CUmulticastObjectProp p = window(devices, bytes);
  Handle h;
  OK(cuMulticastCreate(&h, &p));
  return h;
}

Handle memory(int device, size_t bytes = kUnit, int types = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
  const CUmemAllocationProp p = pinned(device, types);
  Handle h;
  OK(cuMemCreate(&h, bytes, &p, 0));
  return h;
}

CUdeviceptr reserved(size_t bytes = kUnit) {
  CUdeviceptr p;
  OK(cuMemAddressReserve(&p, bytes, 0, 0, 0));
  return p;
}

}  // namespace

TEST(multicast_granularity) {
  use();
  CUmulticastObjectProp p = window(2);
  size_t unit;
  int supported;
  OK(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 0));
  EXPECT(supported, 1);
  OK(cuMulticastGetGranularity(&unit, &p, CU_MULTICAST_GRANULARITY_MINIMUM));
  EXPECT(unit, kUnit);
  p.size = 512u << 20;  // the recommended unit depends on the size
  OK(cuMulticastGetGranularity(&unit, &p, CU_MULTICAST_GRANULARITY_RECOMMENDED));
  EXPECT(unit, 512 << 20);
  EXPECT(cuMulticastGetGranularity(&unit, &p, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT(cuMulticastGetGranularity(nullptr, &p, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST(multicast_create_is_checked) {
  use();
  Handle h;
  CUmulticastObjectProp p = window(2, kUnit + 4096);
  EXPECT(cuMulticastCreate(&h, &p), CUDA_ERROR_INVALID_VALUE);
  p = window(2, 0);
  EXPECT(cuMulticastCreate(&h, &p), CUDA_ERROR_INVALID_VALUE);
  p = window(0);
  EXPECT(cuMulticastCreate(&h, &p), CUDA_ERROR_INVALID_VALUE);
  p = window(5);  // of four
  EXPECT(cuMulticastCreate(&h, &p), CUDA_ERROR_INVALID_VALUE);
  p = window(2);
  p.flags = 1;
  EXPECT(cuMulticastCreate(&h, &p), CUDA_ERROR_INVALID_VALUE);
  p = window(2, kUnit, CU_MEM_HANDLE_TYPE_FABRIC);
  EXPECT(cuMulticastCreate(&h, &p), CUDA_ERROR_NOT_PERMITTED);
  p = window(2, kUnit, 0);
  OK(cuMulticastCreate(&h, &p));
  int fd;
  EXPECT(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemRelease(h));
}

TEST(multicast_devices_are_added_once) {
  use();
  Handle h = object(2), m = memory(0);
  EXPECT(cuMulticastAddDevice(m, 0), CUDA_ERROR_INVALID_VALUE);  // no object
  EXPECT(cuMulticastAddDevice(h, 9), CUDA_ERROR_INVALID_DEVICE);
  OK(cuMulticastAddDevice(h, 0));
  EXPECT(cuMulticastAddDevice(h, 0), CUDA_ERROR_INVALID_VALUE);
  OK(cuMulticastAddDevice(h, 1));
  EXPECT(cuMulticastAddDevice(h, 2), CUDA_ERROR_INVALID_VALUE);  // one more than the object has room for
  Handle other = memory(2);
  EXPECT(cuMulticastBindMem(h, 0, other, 0, kUnit, 0), CUDA_ERROR_INVALID_DEVICE);
}

TEST(multicast_binds_wait_for_all_devices) {
  use();
  Handle h = object(2), m = memory(0);
  const CUdeviceptr at = reserved();
  OK(cuMulticastAddDevice(h, 0));
  std::atomic<int> done{0};
  std::thread binds([&] {
    use();
    OK(cuMulticastBindMem(h, 0, m, 0, kUnit, 0));
    done++;
  });
  std::thread maps([&] {
    use();
    OK(cuMemMap(at, kUnit, 0, h, 0));
    done++;
  });
  usleep(20000);  // a call that did not wait would have returned
  EXPECT(done, 0);
  OK(cuMulticastAddDevice(h, 1));
  binds.join();
  maps.join();
  EXPECT(done, 2);
}

TEST(multicast_binds_are_checked) {
  use();
  Handle h = object(1, 2 * kUnit), m = memory(0, 2 * kUnit), unshared = memory(0, kUnit, 0);
  OK(cuMulticastAddDevice(h, 0));
  EXPECT(cuMulticastBindMem(h, 4096, m, 0, kUnit, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT(cuMulticastBindMem(h, 0, m, 4096, kUnit, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT(cuMulticastBindMem(h, 0, m, 0, 4096, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT(cuMulticastBindMem(h, 0, m, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT(cuMulticastBindMem(h, kUnit, m, 0, 2 * kUnit, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT(cuMulticastBindMem(h, 0, m, 2 * kUnit, kUnit, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT(cuMulticastBindMem(h, 0, m, 0, kUnit, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT(cuMulticastBindMem(h, 0, h, 0, kUnit, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT(cuMulticastBindMem(m, 0, m, 0, kUnit, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT(cuMulticastBindMem(h, 0, unshared, 0, kUnit, 0), CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr legacy;
  OK(cuMemAlloc_v2(&legacy, kUnit));
  EXPECT(cuMulticastBindAddr(h, 0, legacy, kUnit, 0), CUDA_ERROR_INVALID_VALUE);
  OK(cuMulticastBindMem(h, 0, m, kUnit, kUnit, 0));
  EXPECT(cuMulticastBindMem(h, 0, m, 0, kUnit, 0), CUDA_ERROR_INVALID_VALUE);  // bound already
  OK(cuMulticastBindMem(h, kUnit, m, 0, kUnit, 0));
  OK(cuMulticastUnbind(h, 0, 0, kUnit));
  const CUdeviceptr at = reserved(2 * kUnit);
  OK(cuMemMap(at, 2 * kUnit, 0, m, 0));
  OK(cuMulticastBindAddr(h, 0, at + kUnit, kUnit, 0));
}

TEST(multicast_unbinds_what_was_bound) {
  use();
  Handle h = object(1, 2 * kUnit), m = memory(0, 2 * kUnit);
  OK(cuMulticastAddDevice(h, 0));
  OK(cuMulticastBindMem(h, 0, m, 0, 2 * kUnit, 0));
  EXPECT(cuMulticastUnbind(h, 0, 0, kUnit), CUDA_ERROR_INVALID_VALUE);
  EXPECT(cuMulticastUnbind(h, 0, kUnit, kUnit), CUDA_ERROR_INVALID_VALUE);
  EXPECT(cuMulticastUnbind(h, 1, 0, 2 * kUnit), CUDA_ERROR_INVALID_VALUE);
  EXPECT(cuMulticastUnbind(m, 0, 0, 2 * kUnit), CUDA_ERROR_INVALID_VALUE);
  EXPECT(cuMemRelease(h), CUDA_ERROR_INVALID_VALUE);  // bound
  EXPECT(cuMemRelease(m), CUDA_ERROR_INVALID_VALUE);  // bound, and its last name
  OK(cuMulticastUnbind(h, 0, 0, 2 * kUnit));
  EXPECT(cuMulticastUnbind(h, 0, 0, 2 * kUnit), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemRelease(h));
  OK(cuMemRelease(m));
}

TEST(multicast_windows_are_mapped_whole) {
  CUcontext c = use();
  (void)c;
  Handle h = object(1, 2 * kUnit);
  OK(cuMulticastAddDevice(h, 0));
  const CUdeviceptr at = reserved(2 * kUnit);
  EXPECT(cuMemMap(at, kUnit, kUnit, h, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT(cuMemMap(at, kUnit, 0, h, 0), CUDA_ERROR_NOT_SUPPORTED);
  OK(cuMemMap(at, 2 * kUnit, 0, h, 0));
  CUmemAccessDesc all{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  OK(cuMemSetAccess(at, 2 * kUnit, &all, 1));
  EXPECT(cuMemsetD8Async(at, 0, 8, new_stream()), CUDA_ERROR_INVALID_VALUE);  // only multimem reaches it
  OK(cuMemUnmap(at, 2 * kUnit));
  OK(cuMemAddressFree(at, 2 * kUnit));
  OK(cuMemRelease(h));
}

// Another process opens the object by its descriptor, adds its device and binds; what a process leaves when it dies does
// not keep the others.
TEST(multicast_between_processes) {
  int there[2], back[2];
  EXPECT(pipe(there), 0);
  EXPECT(pipe(back), 0);
  const pid_t child = fork();
  if (child == 0) {
    use(1);
    int fd;
    EXPECT(read(there[0], &fd, sizeof fd), sizeof fd);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", getppid(), fd);
    const int own = open(path, O_RDWR);
    Handle h;
    OK(cuMemImportFromShareableHandle(&h, reinterpret_cast<void*>(static_cast<intptr_t>(own)), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    OK(cuMulticastAddDevice(h, 1));
    OK(cuMulticastBindMem(h, 0, memory(1), 0, kUnit, 0));
    EXPECT(write(back[1], &fd, sizeof fd), sizeof fd);
    pause();
  }
  use(0);
  Handle h = object(2);
  int fd, answer;
  OK(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  EXPECT(write(there[1], &fd, sizeof fd), sizeof fd);
  OK(cuMulticastAddDevice(h, 0));
  Handle m = memory(0);
  OK(cuMulticastBindMem(h, 0, m, 0, kUnit, 0));
  EXPECT(read(back[0], &answer, sizeof answer), sizeof answer);
  EXPECT(kill(child, SIGKILL), 0);
  EXPECT(waitpid(child, nullptr, 0), child);
  OK(cuMulticastUnbind(h, 0, 0, kUnit));
  OK(cuMemRelease(h));
  OK(cuMemRelease(m));
}

TEST(without_multicast) {
  use();
  int supported;
  OK(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 0));
  EXPECT(supported, 0);
  const CUmulticastObjectProp p = window(2);
  Handle h;
  size_t unit;
  EXPECT(cuMulticastCreate(&h, &p), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT(cuMulticastGetGranularity(&unit, &p, 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT(cuMulticastAddDevice(1, 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT(cuMulticastBindMem(1, 0, 2, 0, kUnit, 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT(cuMulticastBindAddr(1, 0, 2, kUnit, 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT(cuMulticastUnbind(1, 0, 0, kUnit), CUDA_ERROR_NOT_SUPPORTED);
}

// The Go test sets CUDA_EMULATED_FAULTS for this one.
TEST(faults_multicast) {
  use();
  Handle h = object(1), m = memory(0);
  EXPECT(cuMulticastAddDevice(h, 0), CUDA_ERROR_INVALID_DEVICE);
  OK(cuMulticastAddDevice(h, 0));
  EXPECT(cuMulticastBindMem(h, 0, m, 0, kUnit, 0), CUDA_ERROR_SYSTEM_NOT_READY);
  EXPECT(cuMulticastBindMem(h, 0, m, 0, kUnit, 0), CUDA_ERROR_SYSTEM_NOT_READY);
  EXPECT(cuMulticastBindMem(h, 0, m, 0, kUnit, 0), CUDA_ERROR_MULTICAST_RESOURCE_FULL);
  OK(cuMulticastBindMem(h, 0, m, 0, kUnit, 0));
  EXPECT(cuMemMap(reserved(), kUnit, 0, h, 0), CUDA_ERROR_ILLEGAL_STATE);
  use(1);
  Handle other = object(1), mine = memory(1);
  OK(cuMulticastAddDevice(other, 1));
  OK(cuMulticastBindMem(other, 0, mine, 0, kUnit, 0));  // the fault was for the first GPU
}
