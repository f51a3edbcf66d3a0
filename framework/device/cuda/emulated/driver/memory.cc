// Device memory: a memfd each, mapped into an arena of addresses that are never
// used twice, so that the use of freed memory is a fault or an error.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "state.h"

namespace {

uint64_t round_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

}  // namespace

Backing::~Backing() {
  if (fd >= 0) close(fd);
  if (device >= 0) state().devices[device]->used -= bytes;
}

uint64_t reserve(uint64_t bytes, uint64_t alignment) {
  State& s = state();
  const uint64_t base = round_up(s.arena_next, std::max(alignment, kGranularity));
  const uint64_t room = round_up(bytes, kGranularity);
  if (base > s.arena_end || room > s.arena_end - base) return 0;
  s.arena_next = base + room;
  return base;
}

bool in_arena(uint64_t address) { return address >= state().arena && address < state().arena_end; }

// Allocated at once: lack of memory is an error here and no fault later.
std::shared_ptr<Backing> make_backing(uint64_t bytes, int device) {
  Device& d = *state().devices[device];
  if (bytes > state().limit || d.used > state().limit - bytes) return nullptr;
  const int fd = memfd_create("emulated-gpu", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return nullptr;
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0 || posix_fallocate(fd, 0, static_cast<off_t>(bytes)) != 0 ||
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {  // processes that map it rely on its size
    close(fd);
    return nullptr;
  }
  auto b = std::make_shared<Backing>();
  b->fd = fd;
  b->bytes = bytes;
  b->device = device;
  d.used += bytes;
  return b;
}

Range* range_of(uint64_t address) {
  auto& ranges = state().ranges;
  auto it = ranges.upper_bound(address);
  if (it == ranges.begin()) return nullptr;
  Range& r = (--it)->second;
  return address - r.base < r.bytes ? &r : nullptr;
}

Range& add_range(Range range) {
  range.id = state().next++;
  return state().ranges[range.base] = std::move(range);
}

// Takes the memory away; the addresses of device memory stay taken.
void remove_range(uint64_t base) {
  auto it = state().ranges.find(base);
  const Range& r = it->second;
  void* at = reinterpret_cast<void*>(base);
  const uint64_t whole = round_up(r.bytes, kPage);
  if (r.kind == Range::kHostAllocated) {
    munmap(at, whole);
  } else if (!r.host()) {
    mmap(at, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  }
  state().ranges.erase(it);
}

// Whether all of the bytes are memory of the host or of a device, open to device.
bool usable(uint64_t address, uint64_t bytes, int device) {
  while (bytes > 0) {
    const Range* r = range_of(address);
    if (r == nullptr) return false;
    if (r->kind == Range::kMapped) {
      auto it = r->access.find(device);
      if (it == r->access.end() || it->second != 3 || r->backing->group != nullptr) return false;
    }
    const uint64_t n = std::min(bytes, r->base + r->bytes - address);
    address += n;
    bytes -= n;
  }
  return true;
}

void release_memory(Context* context) {
  std::vector<uint64_t> gone;
  for (auto& [base, r] : state().ranges) {
    if (r.context == context) gone.push_back(base);
  }
  for (uint64_t base : gone) remove_range(base);
  auto& opened = state().opened;
  for (auto it = opened.begin(); it != opened.end();) {
    it = state().ranges.count(it->second) == 0 ? opened.erase(it) : std::next(it);
  }
}

API int cuMemGetInfo_v2(size_t* free, size_t* total) {
  ENTER_CONTEXT(current);
  if (free == nullptr || total == nullptr) return kInvalidValue;
  *total = state().limit;
  *free = state().limit - state().devices[current->device]->used;
  return kSuccess;
}

API int cuMemAlloc_v2(DevicePtr* address, size_t bytes) {
  ENTER_UNSAFE(current);
  if (address == nullptr || bytes == 0) return kInvalidValue;
  if (bytes > state().limit) return kOutOfMemory;
  auto backing = make_backing(round_up(bytes, kPage), current->device);
  const uint64_t base = backing == nullptr ? 0 : reserve(backing->bytes, kGranularity);
  if (base == 0) return kOutOfMemory;
  if (mmap(reinterpret_cast<void*>(base), backing->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, backing->fd, 0) ==
      MAP_FAILED) {
    return kOutOfMemory;
  }
  Range r{};
  r.kind = Range::kAllocated;
  r.base = base;
  r.bytes = bytes;
  r.device = current->device;
  r.context = current;
  r.backing = backing;
  add_range(std::move(r));
  *address = base;
  return kSuccess;
}

// Waits for everything enqueued on the device, as the driver does.
API int cuMemFree_v2(DevicePtr address) {
  ENTER_UNSAFE(current);
  if (address == 0) return kSuccess;
  const Range* r = range_of(address);
  if (r == nullptr || r->kind != Range::kAllocated || r->base != address) return kInvalidValue;
  Context* owner = r->context;
  std::vector<Mark> work = owner->left;
  work.push_back(owner->legacy->mark());
  for (Stream* s : owner->streams) work.push_back(s->mark());
  lock.unlock();
  for (const Mark& m : work) m.wait();
  lock.lock();
  if (state().ranges.count(address) == 0) return kInvalidValue;  // freed twice at once
  remove_range(address);
  return kSuccess;
}

API int cuPointerGetAttribute(void* value, int which, DevicePtr address) {
  ENTER_CONTEXT(current);
  const Range* r = range_of(address);
  if (value == nullptr || r == nullptr) return kInvalidValue;
  switch (which) {
    case 1: *static_cast<Context**>(value) = r->context; return kSuccess;
    case 2: *static_cast<unsigned*>(value) = r->host() ? 1 : 2; return kSuccess;
    case 3: *static_cast<DevicePtr*>(value) = address; return kSuccess;
    case 4:
      if (!r->host()) return kInvalidValue;
      *static_cast<DevicePtr*>(value) = address;
      return kSuccess;
    case 7: *static_cast<uint64_t*>(value) = r->id; return kSuccess;
    case 8: *static_cast<bool*>(value) = false; return kSuccess;
    case 9: *static_cast<int*>(value) = r->device; return kSuccess;
    case 10: *static_cast<bool*>(value) = r->kind == Range::kAllocated && has("ipc"); return kSuccess;
    case 11: *static_cast<DevicePtr*>(value) = r->base; return kSuccess;
    case 12: *static_cast<size_t*>(value) = r->bytes; return kSuccess;
    case 13: *static_cast<bool*>(value) = true; return kSuccess;
    case 14: *static_cast<uint64_t*>(value) = r->kind == Range::kMapped ? r->backing->handle_types : 0; return kSuccess;
    case 15: *static_cast<bool*>(value) = !r->host() && has("dmabuf"); return kSuccess;
  }
  return kInvalidValue;
}
