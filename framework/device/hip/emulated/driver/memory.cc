// Memory, and what shares it.
#include <string.h>

#include <mutex>
#include <set>

#include "hip.h"
#include "machine.h"

namespace {

// Memory for signals: 8 bytes of the host, which hipFree frees.
std::mutex g_mutex;
std::set<void*>* g_signals = new std::set<void*>;

DevicePtr number(const void* p) { return reinterpret_cast<DevicePtr>(p); }
void* pointer(DevicePtr p) { return reinterpret_cast<void*>(p); }

// Allocations of 5.7 and later. Uncached ones are of 7 and later.
int core_of(const AllocationProp* p, AllocationProp* core) {
  constexpr int kUncached = 0x40000000;
  if (p == nullptr) return kInvalidValue;
  *core = *p;
  if (core->type == kUncached && hip_version() >= 70000000) core->type = 1;
  return core->type == 1 && (core->handle_types & ~kHandleDescriptor) == 0 ? kSuccess : kInvalidValue;
}

}  // namespace

HIP int hipMemGetInfo(size_t* free, size_t* total) {
  HIP_ENTER();
  return cuMemGetInfo_v2(free, total);
}

// 0: ordinary, 1: fine-grained, 2: for signals, 3: uncached.
HIP int hipExtMallocWithFlags(void** address, size_t bytes, unsigned flags) {
  HIP_ENTER();
  if (address == nullptr || flags > 3 || (flags == 3 && !hip_has("uncached"))) return kInvalidValue;
  if (flags == 2) {
    if (bytes != 8) return kInvalidValue;
    const int bad = cuMemHostAlloc(address, bytes, 3);
    std::lock_guard<std::mutex> lock(g_mutex);
    if (bad == 0) g_signals->insert(*address);
    return bad;
  }
  DevicePtr p = 0;
  const auto allocations = machine_allocations();
  const int bad = cuMemAlloc_v2(&p, bytes);
  *address = pointer(p);
  if (bad == 0) machine_allocated(p, flags == 3);
  return bad;
}

HIP int hipMalloc(void** address, size_t bytes) { return hipExtMallocWithFlags(address, bytes, 0); }

HIP int hipFree(void* address) {
  HIP_ENTER();
  {
    std::lock_guard<std::mutex> lock(g_mutex);
    if (g_signals->erase(address) == 1) return cuMemFreeHost(address);
  }
  return address == nullptr ? kSuccess : cuMemFree_v2(number(address));
}

HIP int hipHostMalloc(void** address, size_t bytes, unsigned flags) {
  HIP_ENTER();
  if ((flags & 0x40000000u) != 0 && (flags & 0x80000000u) != 0) return kInvalidValue;
  return cuMemHostAlloc(address, bytes, flags & 7);
}

HIP int hipHostFree(void* address) {
  HIP_ENTER();
  return cuMemFreeHost(address);
}

HIP int hipHostRegister(void* address, size_t bytes, unsigned flags) {
  HIP_ENTER();
  return flags > 15 ? kInvalidValue : cuMemHostRegister_v2(address, bytes, flags & 3);
}

HIP int hipHostUnregister(void* address) {
  HIP_ENTER();
  return cuMemHostUnregister(address);
}

HIP int hipHostGetDevicePointer(void** address, void* host, unsigned flags) {
  HIP_ENTER();
  DevicePtr p = 0;
  const int bad = cuMemHostGetDevicePointer_v2(&p, host, flags);
  if (bad == 0) *address = pointer(p);
  return bad;
}

// Before 6.0, memory of the host is 0 and that of devices 1; from then on 1 and 2, as in CUDA.
HIP int hipPointerGetAttribute(void* value, int which, void* address) {
  HIP_ENTER();
  if (int bad = cuPointerGetAttribute(value, which, number(address))) return bad;
  if (which == 2 && hip_version() < 60000000) *static_cast<int*>(value) -= 1;
  return kSuccess;
}

HIP int hipIpcGetMemHandle(IpcHandle* handle, void* address) {
  HIP_ENTER();
  return cuIpcGetMemHandle(handle, number(address));
}

// The one flag that is taken was 0 before 6.0, and is 1 since.
HIP int hipIpcOpenMemHandle(void** address, IpcHandle handle, unsigned flags) {
  HIP_ENTER();
  if (flags != (hip_version() < 60000000 ? 0u : 1u)) return kInvalidValue;
  DevicePtr p = 0;
  const int bad = cuIpcOpenMemHandle_v2(&p, handle, 1);
  if (bad == 0) *address = pointer(p);
  return bad;
}

HIP int hipIpcCloseMemHandle(void* address) {
  HIP_ENTER();
  return cuIpcCloseMemHandle(number(address));
}

HIP int hipMemGetAllocationGranularity(size_t* bytes, const AllocationProp* prop, int option) {
  AllocationProp core;
  HIP_ENTER();
  if (int bad = core_of(prop, &core)) return bad;
  return cuMemGetAllocationGranularity(bytes, &core, option);
}

HIP int hipMemCreate(AllocationHandle* handle, size_t bytes, const AllocationProp* prop, unsigned long long flags) {
  AllocationProp core;
  HIP_ENTER();
  if (int bad = core_of(prop, &core)) return bad;
  const int bad = cuMemCreate(handle, bytes, &core, flags);
  if (bad == 0) machine_created(*handle, prop->type != core.type);
  return bad;
}

HIP int hipMemRelease(AllocationHandle handle) {
  HIP_ENTER();
  return cuMemRelease(handle);
}

HIP int hipMemAddressReserve(void** address, size_t bytes, size_t alignment, void* hint, unsigned long long flags) {
  HIP_ENTER();
  DevicePtr p = 0;
  const int bad = cuMemAddressReserve(&p, bytes, alignment, number(hint), flags);
  if (bad == 0) *address = pointer(p);
  return bad;
}

HIP int hipMemAddressFree(void* address, size_t bytes) {
  HIP_ENTER();
  return cuMemAddressFree(number(address), bytes);
}

HIP int hipMemMap(void* address, size_t bytes, size_t offset, AllocationHandle handle, unsigned long long flags) {
  HIP_ENTER();
  const int bad = offset != 0 ? kInvalidValue : cuMemMap(number(address), bytes, offset, handle, flags);
  if (bad == 0) machine_mapped();
  return bad;
}

HIP int hipMemUnmap(void* address, size_t bytes) {
  HIP_ENTER();
  return cuMemUnmap(number(address), bytes);
}

HIP int hipMemSetAccess(void* address, size_t bytes, const AccessDesc* access, size_t count) {
  HIP_ENTER();
  return cuMemSetAccess(number(address), bytes, access, count);
}

HIP int hipMemExportToShareableHandle(void* shareable, AllocationHandle handle, int type, unsigned long long flags) {
  HIP_ENTER();
  return cuMemExportToShareableHandle(shareable, handle, type, flags);
}

HIP int hipMemImportFromShareableHandle(AllocationHandle* handle, void* shareable, int type) {
  HIP_ENTER();
  return cuMemImportFromShareableHandle(handle, shareable, type);
}

HIP int hipMemGetHandleForAddressRange(void* handle, void* address, size_t bytes, int type, unsigned long long flags) {
  HIP_ENTER();
  return hip_has("dmabuf") ? cuMemGetHandleForAddressRange(handle, number(address), bytes, type, flags) : kNotSupported;
}
