// Legacy handles between processes, and memory of the host.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "state.h"

namespace {

constexpr uint64_t kMagic = 0x4350494c554d45ull;  // "EMULIPC"

// The content of a handle: a descriptor of a process, and which file it has to be.
struct Ticket {
  uint64_t magic;
  int32_t pid, fd;
  uint64_t inode, bytes;
  uint8_t pad[32];
};
static_assert(sizeof(Ticket) == sizeof(IpcHandle), "a ticket is a handle");

// Whether all pages of a range are mapped: there is nothing to pin otherwise.
bool mapped(uint64_t address, uint64_t bytes) {
  const uint64_t first = address / kPage * kPage, last = (address + bytes + kPage - 1) / kPage * kPage;
  std::vector<unsigned char> pages((last - first) / kPage);
  return mincore(reinterpret_cast<void*>(first), last - first, pages.data()) == 0;
}

int add_host(Context* context, Range::Kind kind, void* address, uint64_t bytes) {
  Range r{};
  r.kind = kind;
  r.base = reinterpret_cast<uint64_t>(address);
  r.bytes = bytes;
  r.device = context->device;
  r.context = context;
  add_range(std::move(r));
  return kSuccess;
}

}  // namespace

API int cuIpcGetMemHandle(IpcHandle* handle, DevicePtr address) {
  ENTER_CONTEXT(current);
  const Range* r = range_of(address);
  if (handle == nullptr || r == nullptr || r->kind != Range::kAllocated) return kInvalidValue;
  if (!has("ipc")) return kNotSupported;
  struct stat info;
  if (fstat(r->backing->fd, &info) != 0) return kUnknown;
  Ticket t{};
  t.magic = kMagic;
  t.pid = getpid();
  t.fd = r->backing->fd;
  t.inode = info.st_ino;
  t.bytes = r->bytes;
  memcpy(handle, &t, sizeof t);
  return kSuccess;
}

// As with the driver: not in the process that made the handle, and opened again
// the address is the same.
API int cuIpcOpenMemHandle_v2(DevicePtr* address, IpcHandle handle, unsigned flags) {
  ENTER_UNSAFE(current);
  Ticket t;
  memcpy(&t, &handle, sizeof t);
  if (address == nullptr || flags > 1 || t.magic != kMagic) return kInvalidValue;
  if (!has("ipc")) return kNotSupported;
  if (t.pid == getpid()) return kInvalidContext;
  const std::string key(reinterpret_cast<char*>(&t), sizeof t);
  if (auto it = state().opened.find(key); it != state().opened.end()) {
    ++state().ranges[it->second].opens;
    *address = it->second;
    return kSuccess;
  }
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/fd/%d", t.pid, t.fd);
  auto b = std::make_shared<Backing>();
  b->fd = open(path, O_RDWR | O_CLOEXEC);
  struct stat info;
  if (b->fd < 0 || fstat(b->fd, &info) != 0 || info.st_ino != t.inode) return kInvalidHandle;  // freed, or its process ended
  b->bytes = static_cast<uint64_t>(info.st_size);
  const uint64_t base = reserve(b->bytes, kGranularity);
  if (base == 0 || mmap(reinterpret_cast<void*>(base), b->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, b->fd, 0) ==
                       MAP_FAILED) {
    return kOutOfMemory;
  }
  Range r{};
  r.kind = Range::kOpened;
  r.base = base;
  r.bytes = t.bytes;
  r.device = current->device;
  r.context = current;
  r.backing = b;
  add_range(std::move(r));
  state().opened[key] = base;
  *address = base;
  return kSuccess;
}

API int cuIpcCloseMemHandle(DevicePtr address) {
  ENTER_UNSAFE(current);
  auto it = state().ranges.find(address);
  if (it == state().ranges.end() || it->second.kind != Range::kOpened) return kInvalidValue;
  if (--it->second.opens > 0) return kSuccess;
  for (auto o = state().opened.begin(); o != state().opened.end(); ++o) {
    if (o->second == address) {
      state().opened.erase(o);
      break;
    }
  }
  remove_range(address);
  return kSuccess;
}

API int cuMemHostAlloc(void** address, size_t bytes, unsigned flags) {
  ENTER_UNSAFE(current);
  if (address == nullptr || bytes == 0 || flags > 7) return kInvalidValue;
  if (bytes > state().limit) return kOutOfMemory;
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return kOutOfMemory;
  *address = p;
  return add_host(current, Range::kHostAllocated, p, bytes);
}

API int cuMemFreeHost(void* address) {
  ENTER_UNSAFE(current);
  auto it = state().ranges.find(reinterpret_cast<uint64_t>(address));
  if (it == state().ranges.end() || it->second.kind != Range::kHostAllocated) return kInvalidValue;
  remove_range(it->first);
  return kSuccess;
}

API int cuMemHostRegister_v2(void* address, size_t bytes, unsigned flags) {
  ENTER_UNSAFE(current);
  const uint64_t base = reinterpret_cast<uint64_t>(address);
  if (base == 0 || bytes == 0 || flags > 15 || in_arena(base)) return kInvalidValue;
  if (!has("register")) return kNotSupported;
  auto next = state().ranges.lower_bound(base);
  const bool overlaps = next != state().ranges.end() && next->first - base < bytes;
  if (overlaps || range_of(base) != nullptr) return kHostMemoryAlreadyRegistered;
  if (!mapped(base, bytes)) return kInvalidValue;
  return add_host(current, Range::kHostRegistered, address, bytes);
}

API int cuMemHostUnregister(void* address) {
  ENTER_UNSAFE(current);
  auto it = state().ranges.find(reinterpret_cast<uint64_t>(address));
  if (it == state().ranges.end() || it->second.kind != Range::kHostRegistered) return kHostMemoryNotRegistered;
  remove_range(it->first);
  return kSuccess;
}

API int cuMemHostGetDevicePointer_v2(DevicePtr* device, void* host, unsigned flags) {
  ENTER_CONTEXT(current);
  const Range* r = range_of(reinterpret_cast<uint64_t>(host));
  if (device == nullptr || flags != 0 || r == nullptr || !r->host()) return kInvalidValue;
  *device = reinterpret_cast<uint64_t>(host);
  return kSuccess;
}
