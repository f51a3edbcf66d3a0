#include "image.h"

#include "executor.h"
#include "interpret.h"

#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

Executor* g_executor;

namespace {

constexpr unsigned kExecutable = 0x10;  // MFD_EXEC

// One parameter: ".param .align 8 .b8 name[80]" or ".param .u64 name".
size_t add_parameter(size_t offset, const std::string& text) {
  size_t size = 0, align = 0, count = 1;
  if (const size_t at = text.find(".align "); at != std::string::npos) align = strtoul(text.c_str() + at + 7, nullptr, 10);
  for (size_t at = text.find('.'); at != std::string::npos; at = text.find('.', at + 1)) {
    const char kind = text[at + 1];
    const size_t bits = strtoul(text.c_str() + at + 2, nullptr, 10);
    if (strchr("busf", kind) != nullptr && bits >= 8) size = bits / 8;
  }
  if (const size_t at = text.find('['); at != std::string::npos) count = strtoul(text.c_str() + at + 1, nullptr, 10);
  if (size == 0) return offset;
  align = std::max(align, size);
  return (offset + align - 1) / align * align + size * count;
}

// Writes all of the image into a file of its own, so that two loads share nothing.
int copy_of(const void* data, size_t bytes) {
  int fd = memfd_create("emulated-image", MFD_CLOEXEC | kExecutable);
  if (fd < 0) fd = memfd_create("emulated-image", MFD_CLOEXEC);  // before Linux 6.3: always executable
  for (size_t done = 0; fd >= 0 && done < bytes;) {
    const ssize_t n = write(fd, static_cast<const char*>(data) + done, bytes - done);
    if (n <= 0) {
      close(fd);
      return -1;
    }
    done += static_cast<size_t>(n);
  }
  return fd;
}

// How long an ELF file is: the driver does not know either.
size_t elf_bytes(const void* data) {
  const auto* h = static_cast<const Elf64_Ehdr*>(data);
  size_t end = h->e_shoff + static_cast<size_t>(h->e_shnum) * h->e_shentsize;
  const auto* p = reinterpret_cast<const Elf64_Phdr*>(static_cast<const char*>(data) + h->e_phoff);
  end = std::max<size_t>(end, h->e_phoff + static_cast<size_t>(h->e_phnum) * h->e_phentsize);
  for (int i = 0; i < h->e_phnum; ++i) end = std::max<size_t>(end, p[i].p_offset + p[i].p_filesz);
  return end;
}

int open_library(int fd, Image* image, std::string* why) {
  image->fd = fd;  // kept open: the linker takes equal paths for the same object
  if (fd < 0) return 2;
  char path[64];
  snprintf(path, sizeof path, "/proc/thread-self/fd/%d", fd);  // that of the process leads to nothing once its main thread has ended
  image->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (image->library != nullptr) return 0;
  const char* text = dlerror();
  *why = std::string("emulated: dlopen: ") + (text != nullptr ? text : "unknown");
  return kInvalidImage;
}

int open_file(const std::string& path, Image* image, std::string* why) {
  FILE* f = fopen(path.c_str(), "re");
  if (f == nullptr) {
    *why = "emulated: no CPU image stands for this PTX, or machine code: expected " + path + " (CUDA_EMULATED_IMAGES)";
    return kNoBinaryForGpu;
  }
  std::string data;
  char part[65536];
  for (size_t n; (n = fread(part, 1, sizeof part, f)) > 0;) data.append(part, n);
  fclose(f);
  return open_library(copy_of(data.data(), data.size()), image, why);
}

}  // namespace

Image::~Image() {
  if (library != nullptr) dlclose(library);
  if (fd >= 0) close(fd);
}

std::map<std::string, Entry> parse_ptx(const std::string& text) {
  std::map<std::string, Entry> out;
  for (size_t at = text.find(".entry "); at != std::string::npos; at = text.find(".entry ", at + 1)) {
    const size_t name = at + 7, end = text.find_first_of(" \t\r\n({", name), body = text.find('{', name);
    if (end == std::string::npos || body == std::string::npos) break;
    Entry e;
    const size_t open = text.find('(', name);
    if (open < body) {
      const size_t close = text.find(')', open);
      std::string list = text.substr(open + 1, close - open - 1);
      for (size_t from = 0; from != std::string::npos && from < list.size();) {
        const size_t comma = list.find(',', from);
        e.parameters = add_parameter(e.parameters, list.substr(from, comma - from));
        from = comma == std::string::npos ? comma : comma + 1;
      }
    }
    for (const char* limit : {".maxntid ", ".reqntid "}) {
      const size_t l = text.find(limit, name);
      if (l < body) e.max_threads = atoi(text.c_str() + l + 9);
    }
    out[text.substr(name, end - name)] = e;
  }
  return out;
}

std::string image_name(const std::string& text) {
  uint64_t h = 0xcbf29ce484222325ull;
  for (unsigned char c : text) h = (h ^ c) * 0x100000001b3ull;
  char hex[20];
  snprintf(hex, sizeof hex, "%016lx", static_cast<unsigned long>(h));
  return hex;
}

// Opens the CPU image that stands for what a GPU would run. It has all the entry points.
static int stand_for(const std::string& what, const std::string& folder, Image* out, std::string* why) {
  out->gpu = true;
  const std::string path = folder + "/" + image_name(what) + ".so";
  if (int bad = open_file(path, out, why)) return bad;
  out->other = access((path + ".other").c_str(), F_OK) == 0;
  for (auto& [name, entry] : out->entries) {
    if (!out->other && dlsym(out->library, name.c_str()) == nullptr) {
      *why = "emulated: the CPU image has no " + name + ": it was built from other sources than what it stands for";
      return kNoBinaryForGpu;
    }
  }
  return kSuccess;
}

int load_image(const void* data, const std::string& folder, std::shared_ptr<Image>* image, std::string* why) {
  auto out = std::make_shared<Image>();
  if (memcmp(data, ELFMAG, SELFMAG) == 0) {
    const auto* h = static_cast<const Elf64_Ehdr*>(data);
    if (is_cubin(data)) {
      if (int bad = read_cubin(data, &out->entries, why)) return bad;
      if (int bad = stand_for(std::string(static_cast<const char*>(data), elf_bytes(data)), folder, out.get(), why)) return bad;
    } else if (is_code_object(data)) {
      if (int bad = read_code_object(data, &out->entries)) return bad;
      if (g_executor != nullptr) {
        out->gpu = true;
        out->executed = g_executor->load(std::string(static_cast<const char*>(data), elf_bytes(data)), why);
        if (out->executed == 0) return kInvalidImage;
      } else if (int bad = stand_for(std::string(static_cast<const char*>(data), elf_bytes(data)), folder, out.get(), why)) return bad;
      out->other = true;  // how many bytes its kernels take is not known
    } else {
      if (h->e_ident[EI_CLASS] != ELFCLASS64 || h->e_type != ET_DYN) return kInvalidImage;
      if (int bad = open_library(copy_of(data, elf_bytes(data)), out.get(), why)) return bad;
    }
    *image = out;
    return kSuccess;
  }
  const std::string text(static_cast<const char*>(data));
  if (text.find(".version") == std::string::npos || text.find(".target") == std::string::npos) {
    *why = "ptxas emulated, line 1; fatal   : Missing .version directive at start of file";
    return text.empty() ? kInvalidImage : kInvalidPtx;
  }
  out->entries = parse_ptx(text);
  if (interprets()) {
    out->gpu = true;
    out->program = decode(image_name(text), text, why);
    if (out->program == nullptr) return kInvalidPtx;
    *image = out;
    return kSuccess;
  }
  if (int bad = stand_for(text, folder, out.get(), why)) return bad;
  *image = out;
  return kSuccess;
}
