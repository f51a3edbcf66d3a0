// Memory of the device, shares of it, and memory of the host.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "toy.h"

namespace toy {
namespace {

enum Sort { kOwn, kImported, kHost };

struct Block {
  Sort sort;
  int device;
  uint64_t start, bytes;  // of the mapping
  int fd;                 // of own memory
  uint64_t host;          // of kHost: where the host has it
};

// Memory is that of the process: its devices use each other's.
struct Memory {
  std::mutex mutex;
  std::map<uint64_t, Block> blocks;  // by start
  int users = 0;                     // of Access
  uint64_t used[kDevices] = {};
};

Memory& memory() {
  static auto* m = new Memory;  // threads may be running at exit
  return *m;
}

uint64_t pages(uint64_t bytes) {
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

void protect(const Block& b, bool on) {
  if (b.sort != kHost) mprotect(reinterpret_cast<void*>(b.start), b.bytes, on ? PROT_READ | PROT_WRITE : PROT_NONE);
}

// Maps a file; the lock is held. 0 if that fails.
uint64_t map(int fd, uint64_t offset, uint64_t bytes, bool host) {
  const int rights = host || memory().users > 0 ? PROT_READ | PROT_WRITE : PROT_NONE;
  void* at = mmap(nullptr, bytes, rights, MAP_SHARED, fd, static_cast<off_t>(offset));
  return at == MAP_FAILED ? 0 : reinterpret_cast<uint64_t>(at);
}

// A file in memory that cannot shrink, all of it there. -1: errno says why not.
int file(uint64_t bytes) {
  const int fd = memfd_create("toy-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return -1;
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0 ||
      posix_fallocate(fd, 0, static_cast<off_t>(bytes)) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

void describe(const Block& b, uint64_t address, uint64_t bytes, mscclpp_device_memory* m) {
  m->address = address, m->bytes = bytes, m->start = b.start, m->whole = b.bytes, m->handle = b.start;
  m->shares = b.sort == kOwn ? 1 : 0, m->on_host = b.sort == kHost, m->ordinal = b.device;
}

// Takes the block that begins at an address; the lock is held.
bool take(uint64_t start, Sort sort, Block* out) {
  auto it = memory().blocks.find(start);
  if (it == memory().blocks.end() || it->second.sort != sort) return false;
  *out = it->second;
  memory().blocks.erase(it);
  return true;
}

Status alloc(mscclpp_device* device, uint64_t bytes, mscclpp_device_memory* out) {
  Device* d = of(device);
  if (bytes == 0) return answer(MSCCLPP_DEVICE_INVALID, "toyAlloc");
  Memory& m = memory();
  std::lock_guard<std::mutex> lock(m.mutex);
  if (bytes > d->memory || pages(bytes) > d->memory - std::min(d->memory, m.used[d->index])) return answer(MSCCLPP_DEVICE_NO_MEMORY, "toyAlloc");
  Block b = {kOwn, d->index, 0, pages(bytes), file(pages(bytes)), 0};
  if (b.fd < 0) return answer(MSCCLPP_DEVICE_NO_MEMORY, "toyAlloc");
  if ((b.start = map(b.fd, 0, b.bytes, false)) == 0) {
    close(b.fd);
    return answer(MSCCLPP_DEVICE_NO_MEMORY, "toyAlloc");
  }
  m.used[d->index] += b.bytes;
  m.blocks[b.start] = b;
  describe(b, b.start, bytes, out);
  return answer(0, nullptr);
}

Status free_memory(mscclpp_device*, const mscclpp_device_memory* which) {
  Memory& m = memory();
  std::lock_guard<std::mutex> lock(m.mutex);
  Block b;
  if (!take(which->handle, kOwn, &b)) return answer(kBadAddress, "toyFree");
  m.used[b.device] -= b.bytes;
  munmap(reinterpret_cast<void*>(b.start), b.bytes);
  close(b.fd);
  return answer(0, nullptr);
}

Status range_of(mscclpp_device*, uint64_t address, mscclpp_device_memory* out) {
  Memory& m = memory();
  std::lock_guard<std::mutex> lock(m.mutex);
  auto it = m.blocks.upper_bound(address);
  if (it == m.blocks.begin()) return answer(MSCCLPP_DEVICE_INVALID, "toyRange");
  const Block& b = (--it)->second;
  if (address - b.start >= b.bytes) return answer(MSCCLPP_DEVICE_INVALID, "toyRange");
  describe(b, address, b.start + b.bytes - address, out);
  return answer(0, nullptr);
}

Status memory_info(mscclpp_device* device, uint64_t* available, uint64_t* total) {
  Device* d = of(device);
  std::lock_guard<std::mutex> lock(memory().mutex);
  *total = d->memory, *available = d->memory - std::min(d->memory, memory().used[d->index]);
  return answer(0, nullptr);
}

Status reaches(mscclpp_device*, int32_t other, int32_t* can) {
  *can = other >= 0 && other < kDevices;
  return answer(0, nullptr);
}

// Nothing has to be done: the devices of a process have the same mappings.
Status grant(mscclpp_device*, mscclpp_device*, const mscclpp_device_memory*) { return answer(0, nullptr); }

Status export_share(mscclpp_device*, const mscclpp_device_memory* which, mscclpp_device_share* share) {
  std::lock_guard<std::mutex> lock(memory().mutex);
  auto it = memory().blocks.find(which->handle);
  if (it == memory().blocks.end() || it->second.sort != kOwn || share->kind != 0 || which->address != which->start) {
    return answer(MSCCLPP_DEVICE_UNSUPPORTED, "toyExport");
  }
  share->fd = fcntl(it->second.fd, F_DUPFD_CLOEXEC, 0), share->blob_bytes = 0;
  return answer(share->fd < 0 ? MSCCLPP_DEVICE_UNAVAILABLE : 0, "toyExport");
}

Status import_share(mscclpp_device* device, const mscclpp_device_share* share, uint64_t offset, uint64_t bytes, mscclpp_device_memory* out) {
  struct stat info;
  const uint64_t page = pages(1);
  if (share->kind != 0 || share->fd < 0 || bytes == 0 || fstat(share->fd, &info) != 0) return answer(MSCCLPP_DEVICE_INVALID, "toyImport");
  // A file that can shrink would fault later.
  const int seals = fcntl(share->fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return answer(MSCCLPP_DEVICE_INVALID, "toyImport");
  const auto size = static_cast<uint64_t>(info.st_size);
  if (offset > size || bytes > size - offset) return answer(MSCCLPP_DEVICE_INVALID, "toyImport");
  const uint64_t from = offset / page * page;
  std::lock_guard<std::mutex> lock(memory().mutex);
  Block b = {kImported, of(device)->index, 0, pages(offset - from + bytes), -1, 0};
  if ((b.start = map(share->fd, from, b.bytes, false)) == 0) return answer(MSCCLPP_DEVICE_NO_MEMORY, "toyImport");
  memory().blocks[b.start] = b;
  describe(b, b.start + offset - from, bytes, out);
  return answer(0, nullptr);
}

Status unmap(mscclpp_device*, const mscclpp_device_memory* which) {
  std::lock_guard<std::mutex> lock(memory().mutex);
  Block b;
  if (!take(which->handle, kImported, &b)) return answer(kBadAddress, "toyUnmap");
  munmap(reinterpret_cast<void*>(b.start), b.bytes);
  return answer(0, nullptr);
}

// The device has its own address of it, where the file is known: callers must not take one for the other.
Status host_register(mscclpp_device* device, uint64_t host, uint64_t bytes, int32_t fd, uint64_t offset, uint64_t* address) {
  std::lock_guard<std::mutex> lock(memory().mutex);
  Block b = {kHost, of(device)->index, host, bytes, -1, host};
  if (fd >= 0 && (b.start = map(fd, offset, bytes, true)) == 0) return answer(MSCCLPP_DEVICE_NO_MEMORY, "toyRegister");
  if (fd < 0 && memory().blocks.count(host) != 0) return answer(MSCCLPP_DEVICE_INVALID, "toyRegister");
  memory().blocks[b.start] = b;
  *address = b.start;
  return answer(0, nullptr);
}

Status host_unregister(mscclpp_device*, uint64_t host) {
  std::lock_guard<std::mutex> lock(memory().mutex);
  for (auto it = memory().blocks.begin(); it != memory().blocks.end(); ++it) {
    if (it->second.sort != kHost || it->second.host != host) continue;
    if (it->first != host) munmap(reinterpret_cast<void*>(it->first), it->second.bytes);
    memory().blocks.erase(it);
    return answer(0, nullptr);
  }
  return answer(kBadAddress, "toyUnregister");
}

Status host_alloc(mscclpp_device* device, uint64_t bytes, uint64_t* host, uint64_t* address) {
  const int fd = file(pages(bytes));
  if (fd < 0) return answer(MSCCLPP_DEVICE_NO_MEMORY, "toyHostAlloc");
  void* at = mmap(nullptr, pages(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  Status st = answer(MSCCLPP_DEVICE_NO_MEMORY, "toyHostAlloc");
  if (at != MAP_FAILED) {
    *host = reinterpret_cast<uint64_t>(at);
    st = host_register(device, *host, pages(bytes), fd, 0, address);
    if (st.code != 0) munmap(at, pages(bytes));
  }
  close(fd);
  return st;
}

Status host_free(mscclpp_device* device, uint64_t host) {
  uint64_t bytes = 0;
  {
    std::lock_guard<std::mutex> lock(memory().mutex);
    for (auto& b : memory().blocks) {
      if (b.second.sort == kHost && b.second.host == host) bytes = b.second.bytes;
    }
  }
  const Status st = host_unregister(device, host);
  if (st.code == 0) munmap(reinterpret_cast<void*>(host), bytes);
  return st;
}

Status transfer(void* to, const void* from, uint64_t device_address, uint64_t bytes, const char* call) {
  if (!known(device_address, bytes)) return answer(MSCCLPP_DEVICE_INVALID, call);
  Access access;
  memmove(to, from, bytes);
  return answer(0, nullptr);
}

Status upload(mscclpp_device*, uint64_t to, const void* from, uint64_t bytes) {
  return transfer(reinterpret_cast<void*>(to), from, to, bytes, "toyUpload");
}

Status download(mscclpp_device*, void* to, uint64_t from, uint64_t bytes) {
  return transfer(to, reinterpret_cast<const void*>(from), from, bytes, "toyDownload");
}

Status fill(mscclpp_device*, uint64_t to, uint8_t value, uint64_t bytes) {
  if (!known(to, bytes)) return answer(MSCCLPP_DEVICE_INVALID, "toyFill");
  Access access;
  memset(reinterpret_cast<void*>(to), value, bytes);
  return answer(0, nullptr);
}

}  // namespace

Access::Access() {
  Memory& m = memory();
  std::lock_guard<std::mutex> lock(m.mutex);
  if (m.users++ > 0) return;
  for (auto& b : m.blocks) protect(b.second, true);
}

Access::~Access() {
  Memory& m = memory();
  std::lock_guard<std::mutex> lock(m.mutex);
  if (--m.users > 0) return;
  for (auto& b : m.blocks) protect(b.second, false);
}

bool known(uint64_t address, uint64_t bytes) {
  Memory& m = memory();
  std::lock_guard<std::mutex> lock(m.mutex);
  auto it = m.blocks.upper_bound(address);
  if (it == m.blocks.begin()) return false;
  const Block& b = (--it)->second;
  return address - b.start <= b.bytes && bytes <= b.bytes - (address - b.start);
}

void fill_memory(mscclpp_device_backend* t) {
  t->memory_info = memory_info, t->reaches = reaches, t->alloc = alloc, t->free_memory = free_memory, t->range_of = range_of;
  t->grant = grant, t->upload = upload, t->download = download, t->fill = fill;
  t->export_share = export_share, t->import_share = import_share, t->unmap = unmap;
  t->host_alloc = host_alloc, t->host_free = host_free, t->host_register = host_register, t->host_unregister = host_unregister;
}

}  // namespace toy
