// Memory as handles: created, exported, imported, mapped where the program says.
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "injected.h"
#include "multicast.h"
#include "state.h"

namespace {

bool proper(const AllocationProp* p) {
  return p != nullptr && p->type == 1 && p->location.type == 1 && valid_device(p->location.id);
}

bool aligned(uint64_t a, uint64_t b) { return a % kGranularity == 0 && b % kGranularity == 0 && b > 0; }

// The reserved range that holds all of the bytes.
bool within_reserved(uint64_t address, uint64_t bytes) {
  auto& reserved = state().reserved;
  auto it = reserved.upper_bound(address);
  if (it == reserved.begin()) return false;
  --it;
  return address - it->first < it->second && bytes <= it->second - (address - it->first);
}

// Calls f for the mapped ranges that make up exactly the bytes; false if none do.
template <class F>
bool each_mapped(uint64_t address, uint64_t bytes, F f) {
  uint64_t at = address;
  for (const uint64_t end = address + bytes; at < end;) {
    auto it = state().ranges.find(at);
    if (it == state().ranges.end() || it->second.kind != Range::kMapped || it->second.bytes > end - at) return false;
    at += it->second.bytes;
  }
  for (at = address; at < address + bytes;) {
    Range& r = state().ranges.find(at)->second;
    at += r.bytes;  // before f may remove it
    f(r);
  }
  return true;
}

long handles_of(const Backing* b) {
  return std::count_if(state().handles.begin(), state().handles.end(), [=](auto& h) { return h.second.get() == b; });
}

long ranges_of(const Backing* b) {
  return std::count_if(state().ranges.begin(), state().ranges.end(), [=](auto& r) { return r.second.backing.get() == b; });
}

// Steps that the real driver leaves undefined are errors here.
int kept(const char* call, const char* why) {
  fprintf(stderr, "emulated driver: %s: %s\n", call, why);
  return kInvalidValue;
}

}  // namespace

Backing* memory_of(AllocationHandle handle) {
  auto it = state().handles.find(handle);
  return it == state().handles.end() ? nullptr : it->second.get();
}

API int cuMemGetAllocationGranularity(size_t* bytes, const AllocationProp* prop, int option) {
  ENTER();
  if (!has("vmm")) return kNotSupported;
  if (bytes == nullptr || !proper(prop) || option < 0 || option > 1) return kInvalidValue;
  *bytes = kGranularity;
  return kSuccess;
}

API int cuMemCreate(AllocationHandle* handle, size_t bytes, const AllocationProp* prop, unsigned long long flags) {
  ENTER();
  if (!has("vmm")) return kNotSupported;
  if (int bad = check_captures()) return bad;
  if (handle == nullptr || !proper(prop) || !aligned(0, bytes) || flags != 0) return kInvalidValue;
  if ((prop->handle_types & kHandleFabric) != 0) return kNotPermitted;
  if ((prop->handle_types & ~kHandleDescriptor) != 0) return kNotSupported;
  auto backing = make_backing(bytes, prop->location.id);
  if (backing == nullptr) return kOutOfMemory;
  backing->handle_types = prop->handle_types;
  *handle = state().next++;
  state().handles[*handle] = std::move(backing);
  return kSuccess;
}

API int cuMemRelease(AllocationHandle handle) {
  ENTER();
  if (int bad = check_captures()) return bad;
  auto it = state().handles.find(handle);
  if (it == state().handles.end()) return kInvalidValue;
  const bool last = handles_of(it->second.get()) == 1;
  if (it->second->group != nullptr && last && it->second->group->binds()) return kept("cuMemRelease", "memory is still bound to the object");
  if (last && ranges_of(it->second.get()) == 0 && bound(it->second.get())) return kept("cuMemRelease", "the memory is still bound");
  state().handles.erase(it);
  return kSuccess;
}

API int cuMemRetainAllocationHandle(AllocationHandle* handle, void* address) {
  ENTER();
  const Range* r = range_of(reinterpret_cast<uint64_t>(address));
  if (handle == nullptr || r == nullptr || r->kind != Range::kMapped) return kInvalidValue;
  *handle = state().next++;
  state().handles[*handle] = r->backing;
  return kSuccess;
}

API int cuMemAddressReserve(DevicePtr* address, size_t bytes, size_t alignment, DevicePtr, unsigned long long flags) {
  ENTER();
  if (!has("vmm")) return kNotSupported;
  if (address == nullptr || !aligned(0, bytes) || (alignment & (alignment - 1)) != 0 || flags != 0) return kInvalidValue;
  const uint64_t base = reserve(bytes, alignment);
  if (base == 0) return kOutOfMemory;
  state().reserved[base] = bytes;
  *address = base;
  return kSuccess;
}

API int cuMemAddressFree(DevicePtr address, size_t bytes) {
  ENTER();
  auto it = state().reserved.find(address);
  if (it == state().reserved.end() || it->second != bytes) return kInvalidValue;
  auto used = state().ranges.lower_bound(address);
  if (used != state().ranges.end() && used->first - address < bytes) return kInvalidValue;  // still mapped
  state().reserved.erase(it);
  return kSuccess;
}

API int cuMemMap(DevicePtr address, size_t bytes, size_t offset, AllocationHandle handle, unsigned long long flags) {
  ENTER();
  if (int bad = check_captures()) return bad;
  auto it = state().handles.find(handle);
  if (it == state().handles.end() || flags != 0 || offset != 0 || !aligned(address, bytes)) return kInvalidValue;
  if (bytes > it->second->bytes || !within_reserved(address, bytes)) return kInvalidValue;
  if (bytes != it->second->bytes) return kNotSupported;  // as the real one: an allocation is mapped whole
  auto next = state().ranges.lower_bound(address);
  if (next != state().ranges.end() && next->first - address < bytes) return kInvalidValue;  // mapped already
  if (range_of(address) != nullptr) return kInvalidValue;
  const std::shared_ptr<Backing> backing = it->second;
  if (backing->group != nullptr) {
    backing->group->await_all(lock);
    if (int bad = injected(lock, "cuMemMap")) return bad;
  } else if (mmap(reinterpret_cast<void*>(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, backing->fd, 0) == MAP_FAILED) {
    return kOutOfMemory;
  }
  Range r{};
  r.kind = Range::kMapped;
  r.base = address;
  r.bytes = bytes;
  r.device = backing->device < 0 ? 0 : backing->device;
  r.backing = backing;
  add_range(std::move(r));
  return kSuccess;
}

API int cuMemUnmap(DevicePtr address, size_t bytes) {
  ENTER();
  if (int bad = check_captures()) return bad;
  bool in_use = false;
  bool all = bytes > 0 && each_mapped(address, bytes, [&](Range& r) {
    const Backing* b = r.backing.get();
    in_use = in_use || (handles_of(b) == 0 && ranges_of(b) == 1 && bound(b));
  });
  if (in_use) return kept("cuMemUnmap", "the memory is still bound");
  all = all && each_mapped(address, bytes, [](Range& r) { remove_range(r.base); });
  return all ? kSuccess : kInvalidValue;
}

API int cuMemSetAccess(DevicePtr address, size_t bytes, const AccessDesc* access, size_t count) {
  ENTER();
  if (int bad = check_captures()) return bad;
  if (access == nullptr || count == 0 || bytes == 0) return kInvalidValue;
  for (size_t i = 0; i < count; ++i) {
    if (access[i].location.type != 1 || !valid_device(access[i].location.id)) return kInvalidDevice;
    if (access[i].flags != 0 && access[i].flags != 1 && access[i].flags != 3) return kInvalidValue;
  }
  bool possible = true;
  const bool all = each_mapped(address, bytes, [&](Range& r) {
    for (size_t i = 0; i < count; ++i) {
      const int device = access[i].location.id;
      if (r.backing->device >= 0 && device != r.backing->device && !has("peer")) {
        possible = false;
        continue;
      }
      r.access[device] = access[i].flags;
    }
    if (r.backing->group != nullptr) return;  // only multimem reaches a window: all else faults
    int most = 0;
    for (auto& [device, flags] : r.access) most |= flags;
    mprotect(reinterpret_cast<void*>(r.base), r.bytes, most == 0 ? PROT_NONE : most == 1 ? PROT_READ : PROT_READ | PROT_WRITE);
  });
  if (!all) return kInvalidValue;
  return possible ? kSuccess : kInvalidDevice;
}

API int cuMemExportToShareableHandle(void* shareable, AllocationHandle handle, int type, unsigned long long flags) {
  ENTER();
  auto it = state().handles.find(handle);
  if (shareable == nullptr || it == state().handles.end() || flags != 0) return kInvalidValue;
  if (type == kHandleFabric) return kNotPermitted;
  if (type != kHandleDescriptor || (it->second->handle_types & type) == 0) return kInvalidValue;
  if (it->second->group != nullptr) {
    if (int bad = injected(lock, "cuMemExportToShareableHandle")) return bad;
  }
  const int fd = fcntl(it->second->group != nullptr ? it->second->group->fd() : it->second->fd, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return kOutOfMemory;
  *static_cast<int*>(shareable) = fd;
  return kSuccess;
}

API int cuMemImportFromShareableHandle(AllocationHandle* handle, void* shareable, int type) {
  ENTER();
  if (!has("vmm")) return kNotSupported;
  if (int bad = check_captures()) return bad;
  if (handle == nullptr) return kInvalidValue;
  if (type == kHandleFabric) return kNotPermitted;
  if (type != kHandleDescriptor) return kInvalidValue;
  const int theirs = static_cast<int>(reinterpret_cast<intptr_t>(shareable));
  struct stat info;
  if (std::shared_ptr<Group> group = Group::open(theirs)) {
    if (int bad = injected(lock, "cuMemImportFromShareableHandle")) return bad;
    if (!has("multicast")) return kNotSupported;
    auto b = std::make_shared<Backing>();
    b->bytes = group->bytes();
    b->handle_types = group->handle_types();
    b->group = std::move(group);
    *handle = state().next++;
    state().handles[*handle] = std::move(b);
    return kSuccess;
  }
  if (fstat(theirs, &info) != 0 || !S_ISREG(info.st_mode) || !aligned(0, static_cast<uint64_t>(info.st_size))) {
    return kInvalidValue;
  }
  auto b = std::make_shared<Backing>();
  b->fd = fcntl(theirs, F_DUPFD_CLOEXEC, 0);
  if (b->fd < 0) return kOutOfMemory;
  b->bytes = static_cast<uint64_t>(info.st_size);
  b->handle_types = kHandleDescriptor;
  *handle = state().next++;
  state().handles[*handle] = std::move(b);
  return kSuccess;
}

// The writes of an emulated adapter are visible at once.
API int cuFlushGPUDirectRDMAWrites(int target, int scope) {
  ENTER_CONTEXT(current);
  if (target != 0 || (scope != 100 && scope != 200)) return kInvalidValue;
  return has("flush") ? kSuccess : kNotSupported;
}

// The descriptor is that of the memfd: it maps and counts as the memory does, but a
// network card takes no memfd for a dma-buf.
API int cuMemGetHandleForAddressRange(void* handle, DevicePtr address, size_t bytes, int type, unsigned long long flags) {
  ENTER_CONTEXT(current);
  const Range* r = range_of(address);
  if (handle == nullptr || type != 1 || flags != 0 || r == nullptr || r->host()) return kInvalidValue;
  if (address % kPage != 0 || bytes % kPage != 0 || bytes == 0 || bytes > r->backing->bytes) return kInvalidValue;
  if (!has("dmabuf") || address != r->base || r->backing->group != nullptr) return kNotSupported;
  const int fd = fcntl(r->backing->fd, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return kOutOfMemory;
  *static_cast<int*>(handle) = fd;
  return kSuccess;
}
