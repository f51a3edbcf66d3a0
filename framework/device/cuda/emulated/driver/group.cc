// The state of a multicast object, which its processes share.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "multicast.h"

namespace {

constexpr uint64_t kGroupMagic = 0x5453414355554d45ull;
constexpr int kMostDevices = 32, kMostBinds = 256;

struct Bind {
  int32_t used, physical, pid, fd;
  uint64_t inode, offset, memory_offset, bytes;
};

}  // namespace

struct SharedGroup {
  uint64_t magic, bytes;
  uint32_t devices;
  int32_t handle_types;
  pthread_mutex_t mutex;  // robust: a process may die with it
  std::atomic<uint32_t> added;
  int32_t physical[kMostDevices];
  Bind binds[kMostBinds];
};

namespace {

constexpr uint64_t kSharedBytes = (sizeof(SharedGroup) + kPage - 1) / kPage * kPage;

class Hold {
 public:
  explicit Hold(SharedGroup* g) : g_(g) {
    if (pthread_mutex_lock(&g->mutex) == EOWNERDEAD) pthread_mutex_consistent(&g->mutex);
  }
  ~Hold() { pthread_mutex_unlock(&g_->mutex); }

 private:
  SharedGroup* g_;
};

SharedGroup* map_group(int fd) {
  void* at = mmap(nullptr, kSharedBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return at == MAP_FAILED ? nullptr : static_cast<SharedGroup*>(at);
}

uint32_t place(const SharedGroup* g, int physical) {
  const uint32_t n = g->added.load(std::memory_order_acquire);
  return static_cast<uint32_t>(std::find(g->physical, g->physical + n, physical) - g->physical);
}

}  // namespace

std::shared_ptr<Group> Group::create(uint32_t devices, uint64_t bytes, int handle_types) {
  std::shared_ptr<Group> g(new Group);
  g->fd_ = memfd_create("emulated-multicast", MFD_CLOEXEC);
  if (g->fd_ < 0 || ftruncate(g->fd_, static_cast<off_t>(kSharedBytes)) != 0) return nullptr;
  if ((g->shared_ = map_group(g->fd_)) == nullptr) return nullptr;
  pthread_mutexattr_t a;
  pthread_mutexattr_init(&a);
  pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&g->shared_->mutex, &a);
  pthread_mutexattr_destroy(&a);
  g->shared_->bytes = bytes;
  g->shared_->devices = devices;
  g->shared_->handle_types = handle_types;
  g->shared_->magic = kGroupMagic;
  return g;
}

std::shared_ptr<Group> Group::open(int fd) {
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || static_cast<uint64_t>(info.st_size) != kSharedBytes) return nullptr;
  std::shared_ptr<Group> g(new Group);
  g->fd_ = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (g->fd_ < 0 || (g->shared_ = map_group(g->fd_)) == nullptr || g->shared_->magic != kGroupMagic) return nullptr;
  return g;
}

Group::~Group() {
  for (auto& [key, m] : mapped_) munmap(m.first, m.second);
  if (shared_ != nullptr) munmap(shared_, kSharedBytes);
  if (fd_ >= 0) close(fd_);
}

uint64_t Group::bytes() const { return shared_->bytes; }
int Group::handle_types() const { return shared_->handle_types; }

int Group::add(int physical) {
  Hold hold(shared_);
  const uint32_t n = shared_->added.load();
  if (n == shared_->devices || place(shared_, physical) < n) return kInvalidValue;
  shared_->physical[n] = physical;
  shared_->added.store(n + 1, std::memory_order_release);
  return kSuccess;
}

bool Group::added(int physical) const { return place(shared_, physical) < shared_->added.load(std::memory_order_acquire); }

void Group::await_all(Lock& lock) const {
  lock.unlock();
  while (shared_->added.load(std::memory_order_acquire) < shared_->devices) usleep(200);
  lock.lock();
}

int Group::bind(int physical, uint64_t offset, const std::shared_ptr<Backing>& memory, uint64_t memory_offset, uint64_t bytes) {
  struct stat info;
  if (fstat(memory->fd, &info) != 0) return kUnknown;
  Hold hold(shared_);
  int free = -1;
  for (int i = 0; i < kMostBinds; ++i) {
    const Bind& b = shared_->binds[i];
    if (b.used == 0) free = free < 0 ? i : free;
    if (b.used != 0 && b.physical == physical && offset < b.offset + b.bytes && b.offset < offset + bytes) return kInvalidValue;
  }
  if (free < 0) return kOutOfMemory;
  shared_->binds[free] = {1, physical, getpid(), memory->fd, info.st_ino, offset, memory_offset, bytes};
  kept_[free] = memory;
  return kSuccess;
}

int Group::unbind(int physical, uint64_t offset, uint64_t bytes) {
  Hold hold(shared_);
  for (auto it = kept_.begin(); it != kept_.end(); ++it) {
    Bind& b = shared_->binds[it->first];
    if (b.physical != physical || b.offset != offset || b.bytes != bytes) continue;
    b.used = 0;
    kept_.erase(it);
    return kSuccess;
  }
  return kInvalidValue;
}

bool Group::binds(const Backing* memory) const {
  return std::any_of(kept_.begin(), kept_.end(), [=](auto& k) { return k.second.get() == memory; });
}

// The memory of a device in this process. It stays mapped as long as the object: its owner may be gone by then.
char* Group::copy_of(int pid, int fd, uint64_t inode, uint64_t offset, uint64_t bytes) {
  char key[160], path[64];
  snprintf(key, sizeof key, "%d %d %lu %lu %lu", pid, fd, static_cast<unsigned long>(inode), static_cast<unsigned long>(offset),
           static_cast<unsigned long>(bytes));
  if (auto it = mapped_.find(key); it != mapped_.end()) return it->second.first;
  snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
  const int file = ::open(path, O_RDWR | O_CLOEXEC);
  struct stat info;
  void* at = MAP_FAILED;
  if (file >= 0 && fstat(file, &info) == 0 && info.st_ino == inode) {
    at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, static_cast<off_t>(offset));
  }
  if (file >= 0) close(file);
  if (at == MAP_FAILED) return nullptr;
  mapped_[key] = {static_cast<char*>(at), bytes};
  return static_cast<char*>(at);
}

// Devices bind the same ranges: one that some have not bound, or otherwise, is a hole.
std::vector<Part> Group::parts() {
  Hold hold(shared_);
  std::vector<Part> all;
  for (const Bind& first : shared_->binds) {
    if (first.used == 0 || first.physical != shared_->physical[0]) continue;
    Part p{first.offset, first.bytes, {}};
    for (uint32_t d = 0; d < shared_->devices; ++d) {
      for (const Bind& b : shared_->binds) {
        if (b.used == 0 || b.physical != shared_->physical[d] || b.offset != p.offset || b.bytes != p.bytes) continue;
        if (char* c = copy_of(b.pid, b.fd, b.inode, b.memory_offset, b.bytes)) p.copies.push_back(c);
      }
    }
    if (p.copies.size() == shared_->devices) all.push_back(std::move(p));
  }
  return all;
}
