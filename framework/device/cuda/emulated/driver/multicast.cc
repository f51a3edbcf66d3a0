// The driver's functions for multicast objects.
#include "multicast.h"

#include <stdio.h>

#include "injected.h"
#include "machine.h"

namespace {

// Sizes and offsets of windows are multiples of this. It need not be the unit of memory.
uint64_t least_unit() { return number("CUDA_EMULATED_MULTICAST_UNIT", kGranularity); }

bool proper(const MulticastProp* p) {
  return p != nullptr && p->devices >= 1 && p->devices <= static_cast<unsigned>(machine_gpus()) && p->bytes > 0 && p->flags == 0 &&
         (p->handle_types & ~static_cast<unsigned long long>(kHandleDescriptor | kHandleFabric)) == 0;
}

bool whole(uint64_t offset, uint64_t bytes) { return bytes > 0 && offset % least_unit() == 0 && bytes % least_unit() == 0; }

int physical_of(int device) { return state().devices[static_cast<size_t>(device)]->physical; }

// Says what a program has done, where the code alone would not tell.
int refused(const char* call, const char* why) {
  fprintf(stderr, "emulated driver: %s: %s\n", call, why);
  return kInvalidValue;
}

int bind_range(Lock& lock, const char* call, AllocationHandle handle, uint64_t offset, const std::shared_ptr<Backing>& memory,
         uint64_t memory_offset, uint64_t bytes) {
  const std::shared_ptr<Group> group = state().handles[handle]->group;
  if (!whole(offset, bytes) || memory_offset % least_unit() != 0) return refused(call, "offsets and size have to be multiples of the unit");
  if (offset + bytes > group->bytes() || memory_offset + bytes > memory->bytes) return refused(call, "beyond the end of the window, or of the memory");
  if (memory->device < 0) return refused(call, "the memory is that of another process");
  if (group->handle_types() != 0 && memory->handle_types == 0) return refused(call, "the window can be exported, and the memory cannot");
  const int physical = physical_of(memory->device);
  if (!group->added(physical)) return kInvalidDevice;
  group->await_all(lock);
  return group->bind(physical, offset, memory, memory_offset, bytes);
}

}  // namespace

bool bound(const Backing* memory) {
  for (auto& [handle, b] : state().handles) {
    if (b->group != nullptr && b->group->binds(memory)) return true;
  }
  return false;
}

API int cuMulticastGetGranularity(size_t* bytes, const MulticastProp* prop, int option) {
  ENTER();
  if (int bad = injected(lock, "cuMulticastGetGranularity")) return bad;
  if (!has("multicast")) return kNotSupported;
  if (bytes == nullptr || !proper(prop) || option < 0 || option > 1) return kInvalidValue;
  *bytes = option == 1 && prop->bytes >= 512ull << 20 ? 512ull << 20 : least_unit();
  return kSuccess;
}

API int cuMulticastCreate(AllocationHandle* handle, const MulticastProp* prop) {
  ENTER();
  if (int bad = injected(lock, "cuMulticastCreate")) return bad;
  if (!has("multicast")) return kNotSupported;
  if (int bad = check_captures()) return bad;
  if (handle == nullptr || !proper(prop) || !whole(0, prop->bytes)) return kInvalidValue;
  if ((prop->handle_types & kHandleFabric) != 0) return kNotPermitted;
  auto b = std::make_shared<Backing>();
  b->group = Group::create(prop->devices, prop->bytes, static_cast<int>(prop->handle_types));
  if (b->group == nullptr) return kOutOfMemory;
  b->bytes = prop->bytes;
  b->handle_types = static_cast<int>(prop->handle_types);
  *handle = state().next++;
  state().handles[*handle] = std::move(b);
  return kSuccess;
}

API int cuMulticastAddDevice(AllocationHandle handle, DeviceId device) {
  ENTER();
  if (!valid_device(device)) return kInvalidDevice;
  if (int bad = injected(lock, "cuMulticastAddDevice", physical_of(device))) return bad;
  if (!has("multicast")) return kNotSupported;
  Backing* object = memory_of(handle);
  if (object == nullptr || object->group == nullptr) return kInvalidValue;
  return object->group->add(physical_of(device));
}

API int cuMulticastBindMem(AllocationHandle handle, size_t offset, AllocationHandle memory, size_t memory_offset, size_t bytes,
                           unsigned long long flags) {
  ENTER();
  if (int bad = injected(lock, "cuMulticastBindMem")) return bad;
  if (!has("multicast")) return kNotSupported;
  Backing *object = memory_of(handle), *bound = memory_of(memory);
  if (object == nullptr || object->group == nullptr || bound == nullptr || bound->group != nullptr || flags != 0) return kInvalidValue;
  return bind_range(lock, "cuMulticastBindMem", handle, offset, state().handles[memory], memory_offset, bytes);
}

API int cuMulticastBindAddr(AllocationHandle handle, size_t offset, DevicePtr address, size_t bytes, unsigned long long flags) {
  ENTER();
  if (int bad = injected(lock, "cuMulticastBindAddr")) return bad;
  if (!has("multicast")) return kNotSupported;
  Backing* object = memory_of(handle);
  const Range* r = range_of(address);
  if (object == nullptr || object->group == nullptr || flags != 0) return kInvalidValue;
  if (r == nullptr || r->kind != Range::kMapped || r->backing->group != nullptr || r->base + r->bytes - address < bytes) {
    return refused("cuMulticastBindAddr", "expected memory of one handle");
  }
  return bind_range(lock, "cuMulticastBindAddr", handle, offset, r->backing, address - r->base, bytes);
}

API int cuMulticastUnbind(AllocationHandle handle, DeviceId device, size_t offset, size_t bytes) {
  ENTER();
  if (!valid_device(device)) return kInvalidDevice;
  if (int bad = injected(lock, "cuMulticastUnbind", physical_of(device))) return bad;
  if (!has("multicast")) return kNotSupported;
  Backing* object = memory_of(handle);
  if (object == nullptr || object->group == nullptr) return kInvalidValue;
  if (int bad = object->group->unbind(physical_of(device), offset, bytes)) {
    refused("cuMulticastUnbind", "expected the offset and the size of one range that is bound");
    return bad;
  }
  return kSuccess;
}
