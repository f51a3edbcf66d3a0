// libgdrapi.so.2 of the emulated machine: memory of its GPUs for the processor. It is
// stricter than the real one, and writes down what it is asked to do.
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "machine.h"

namespace {

constexpr uint64_t kGpuPage = 1 << 16;

struct Pin {
  uint64_t address, bytes;
  void* at;  // where it is mapped, or null
};

struct Gdr {
  std::vector<Pin*> pins;
};

struct Handle {
  unsigned long h;
};

Pin* pin_of(Gdr* g, Handle h) {
  auto it = std::find(g->pins.begin(), g->pins.end(), reinterpret_cast<Pin*>(h.h));
  return it == g->pins.end() ? nullptr : *it;
}

bool lacks(const char* ability) {
  for (const std::string& lacking : machine_lacks()) {
    if (lacking == ability) return true;
  }
  return false;
}

// Notes a call: a line of one write, so that those of several threads do not mix.
__attribute__((format(printf, 1, 2))) void note(const char* format, ...) {
  const char* path = getenv("CUDA_EMULATED_GDRCOPY_LOG");
  if (path == nullptr) return;
  char line[128];
  va_list args;
  va_start(args, format);
  const int n = vsnprintf(line, sizeof line, format, args);
  va_end(args);
  const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) return;
  if (write(fd, line, static_cast<size_t>(n)) != n) abort();
  close(fd);
}

// A second mapping of shared memory; memory that was freed is none any more, and its
// addresses are never used again.
void* again(uint64_t address, uint64_t bytes) { return mremap(reinterpret_cast<void*>(address), 0, bytes, MREMAP_MAYMOVE); }

bool is_there(uint64_t address, uint64_t bytes) {
  for (uint64_t at = address; at < address + bytes; at += kGpuPage) {
    void* m = again(at, kGpuPage);
    if (m == MAP_FAILED) return false;
    munmap(m, kGpuPage);
  }
  return true;
}

}  // namespace

API void gdr_runtime_get_version(int* major, int* minor) {
  *major = lacks("gdr_version") ? 1 : 2;
  *minor = 4;
}

API Gdr* gdr_open() {
  if (lacks("gdr_open")) {
    errno = ENOENT;
    return nullptr;
  }
  note("open\n");
  return new Gdr;
}

API int gdr_close(Gdr* g) {
  if (!g->pins.empty()) {
    note("close of what is pinned\n");
    return EBUSY;
  }
  delete g;
  note("close\n");
  return 0;
}

API int gdr_pin_buffer(Gdr* g, unsigned long address, size_t bytes, uint64_t p2p_token, uint32_t va_space, Handle* made) {
  if (lacks("gdr_pin_buffer")) return EPERM;
  if (address % kGpuPage != 0 || bytes % kGpuPage != 0 || bytes == 0 || p2p_token != 0 || va_space != 0) return EINVAL;
  if (!is_there(address, bytes)) return EFAULT;
  Pin* p = new Pin{address, bytes, nullptr};
  g->pins.push_back(p);
  made->h = reinterpret_cast<unsigned long>(p);
  note("pin %#lx %zu\n", address, bytes);
  return 0;
}

API int gdr_unpin_buffer(Gdr* g, Handle h) {
  Pin* p = pin_of(g, h);
  if (p == nullptr || p->at != nullptr) {
    note("unpin of what is mapped, or not pinned\n");
    return EINVAL;
  }
  const bool late = !is_there(p->address, p->bytes);
  g->pins.erase(std::find(g->pins.begin(), g->pins.end(), p));
  delete p;
  note(late ? "unpin of memory that was freed\n" : "unpin\n");
  return late ? EFAULT : 0;
}

// A mapping of its own, so that a process that uses it too long faults.
API int gdr_map(Gdr* g, Handle h, void** at, size_t bytes) {
  if (lacks("gdr_map")) return ENOMEM;
  Pin* p = pin_of(g, h);
  if (p == nullptr || p->at != nullptr || bytes > p->bytes) return EINVAL;
  void* m = again(p->address, bytes);
  if (m == MAP_FAILED) return errno;
  *at = p->at = m;
  note("map\n");
  return 0;
}

API int gdr_unmap(Gdr* g, Handle h, void* at, size_t bytes) {
  Pin* p = pin_of(g, h);
  if (p == nullptr || p->at == nullptr || p->at != at) {
    note("unmap of what is not mapped\n");
    return EINVAL;
  }
  p->at = nullptr;
  note("unmap\n");
  return munmap(at, bytes) == 0 ? 0 : errno;
}
