// Images, kernels and launches. An image is a shared object for this processor, behind a line that names the toy.
#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "toy.h"

namespace toy {

using Entry = void (*)(const void* arguments, const void* shape);

// A loaded object. Launches hold it: it may be unloaded while they run.
struct Library {
  void* handle = nullptr;
  ~Library() {
    if (handle != nullptr) dlclose(handle);
  }
};

struct Kernel {
  std::shared_ptr<Library> library;
  Entry entry;
};

struct Module {
  std::shared_ptr<Library> library;
  std::map<std::string, std::unique_ptr<Kernel>> kernels;
};

namespace {

// The second argument of a kernel (mscclpp::LaunchShape). Kernels are compiled for one block of one thread, and right for any
// shape.
struct Shape {
  uint32_t grid, block, shared, reserved;
};

// The dynamic linker maps what the headers say, and faults if the file is shorter.
const char* objection(const unsigned char* image, uint64_t bytes) {
  Elf64_Ehdr h;
  if (bytes < sizeof h) return "it is too short";
  memcpy(&h, image, sizeof h);
  if (memcmp(h.e_ident, ELFMAG, SELFMAG) != 0 || h.e_ident[EI_CLASS] != ELFCLASS64) return "it is no ELF file of 64 bits";
  if (h.e_type != ET_DYN || h.e_machine != EM_X86_64) return "it is no shared object for toys";
  if (h.e_phentsize != sizeof(Elf64_Phdr) || h.e_phoff > bytes || h.e_phnum * sizeof(Elf64_Phdr) > bytes - h.e_phoff) return "its headers are cut off";
  for (unsigned i = 0; i < h.e_phnum; ++i) {
    Elf64_Phdr p;
    memcpy(&p, image + h.e_phoff + i * sizeof p, sizeof p);
    if (p.p_offset > bytes || p.p_filesz > bytes - p.p_offset) return "a segment is cut off";
  }
  return nullptr;
}

Status load(mscclpp_device* device, const void* image, uint64_t bytes, mscclpp_device_handle* out, char* log, uint64_t room) {
  if (const char* why = objection(static_cast<const unsigned char*>(image), bytes)) {
    snprintf(log, room, "%s", why);
    return answer(kBadImage, "toyModuleLoad");
  }
  const int fd = memfd_create("toy-image", MFD_CLOEXEC);
  if (fd < 0) return answer(MSCCLPP_DEVICE_NO_MEMORY, "toyModuleLoad");
  for (uint64_t done = 0; done < bytes;) {
    const ssize_t n = write(fd, static_cast<const char*>(image) + done, bytes - done);
    if (n <= 0) {
      close(fd);
      return answer(MSCCLPP_DEVICE_NO_MEMORY, "toyModuleLoad");
    }
    done += static_cast<uint64_t>(n);
  }
  // The linker takes equal paths for the same object, and descriptors are used again. The folder of the process leads to nothing once its
  // main thread has ended.
  static std::atomic<unsigned> loads{0};
  std::string path = "/proc/thread-self/fd";
  for (unsigned n = ++loads; n > 0; n >>= 1) path += (n & 1) != 0 ? "/." : "/";
  auto library = std::make_shared<Library>();
  library->handle = dlopen((path + "/" + std::to_string(fd)).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library->handle == nullptr) {
    const char* why = dlerror();
    snprintf(log, room, "%s", why != nullptr ? why : "unknown");
  }
  close(fd);
  if (library->handle == nullptr) return answer(kBadImage, "toyModuleLoad");
  auto* m = new Module{library, {}};
  std::lock_guard<std::mutex> lock(of(device)->mutex);
  of(device)->modules.insert(m);
  *out = reinterpret_cast<mscclpp_device_handle>(m);
  return answer(0, nullptr);
}

Status unload(mscclpp_device* device, mscclpp_device_handle module) {
  std::lock_guard<std::mutex> lock(of(device)->mutex);
  auto* m = reinterpret_cast<Module*>(module);
  if (of(device)->modules.erase(m) == 0) return answer(kBadHandle, "toyModuleUnload");
  delete m;
  return answer(0, nullptr);
}

Status find(mscclpp_device* device, mscclpp_device_handle module, const char* name, mscclpp_device_handle* out, mscclpp_device_kernel_info* info) {
  std::lock_guard<std::mutex> lock(of(device)->mutex);
  auto* m = reinterpret_cast<Module*>(module);
  if (of(device)->modules.count(m) == 0) return answer(kBadHandle, "toyKernelFind");
  auto& slot = m->kernels[name];
  if (slot == nullptr) {
    void* entry = dlsym(m->library->handle, name);
    if (entry == nullptr) {
      m->kernels.erase(name);
      return answer(MSCCLPP_DEVICE_NOT_FOUND, "toyKernelFind");
    }
    slot = std::make_unique<Kernel>(Kernel{m->library, reinterpret_cast<Entry>(entry)});
  }
  info->threads = kMostThreads, info->dynamic = kSharedMost, info->registers = 16;
  *out = reinterpret_cast<mscclpp_device_handle>(slot.get());
  return answer(0, nullptr);
}

Status allow(mscclpp_device*, mscclpp_device_handle, uint32_t shared) { return answer(shared <= kSharedMost ? 0 : MSCCLPP_DEVICE_INVALID, "toyKernelAllow"); }

Status fit(mscclpp_device*, mscclpp_device_handle, uint32_t block, uint32_t, uint32_t* blocks) {
  *blocks = block <= kMostThreads ? kProcessors : 0;
  return answer(0, nullptr);
}

// A device that is no toy copies the arguments into its queue, and allocates nothing here.
Status launch(mscclpp_device* device, const mscclpp_device_launch* l) {
  if (l->grid == 0 || l->block == 0 || l->block > kMostThreads || l->shared > kSharedMost) return answer(MSCCLPP_DEVICE_INVALID, "toyLaunch");
  auto* k = reinterpret_cast<Kernel*>(l->kernel);
  const auto* from = static_cast<const char*>(l->arguments);
  std::vector<char> arguments(from, from + l->bytes);
  const Shape shape = {l->grid, l->block, l->shared, 0};
  return enqueue(of(device), l->stream, {[library = k->library, entry = k->entry, arguments = std::move(arguments), shape] {
    entry(arguments.data(), &shape);
  }, nullptr, nullptr}, "toyLaunch");
}

}  // namespace

void fill_kernel(mscclpp_device_backend* t) {
  t->module_load = load, t->module_unload = unload, t->kernel_find = find, t->kernel_allow = allow, t->kernel_fit = fit, t->launch = launch;
}

}  // namespace toy
