// Code objects of AMD's GPUs: the names of the kernels in them. The code itself is not looked at: an image for the CPU stands for
// it. The library over this core that has such GPUs judges which of them it takes.
#include <elf.h>
#include <string.h>

#include "image.h"

namespace {

constexpr int kMachine = 224;  // EM_AMDGPU

}  // namespace

bool is_code_object(const void* data) {
  const auto* h = static_cast<const Elf64_Ehdr*>(data);
  return h->e_ident[EI_CLASS] == ELFCLASS64 && h->e_machine == kMachine;
}

// A kernel has a descriptor, the symbol NAME.kd.
int read_code_object(const void* data, std::map<std::string, Entry>* out) {
  const char* base = static_cast<const char*>(data);
  Elf64_Ehdr h;
  memcpy(&h, data, sizeof h);
  if (h.e_shentsize != sizeof(Elf64_Shdr)) return kInvalidImage;
  for (int i = 0; i < h.e_shnum; ++i) {
    Elf64_Shdr s, names;
    memcpy(&s, base + h.e_shoff + static_cast<size_t>(i) * sizeof s, sizeof s);
    if (s.sh_type != SHT_DYNSYM || s.sh_link >= h.e_shnum) continue;
    memcpy(&names, base + h.e_shoff + s.sh_link * sizeof names, sizeof names);
    for (uint64_t n = 0; n < s.sh_size / sizeof(Elf64_Sym); ++n) {
      Elf64_Sym symbol;
      memcpy(&symbol, base + s.sh_offset + n * sizeof symbol, sizeof symbol);
      if (symbol.st_name >= names.sh_size) return kInvalidImage;
      const std::string name = base + names.sh_offset + symbol.st_name;
      if (name.size() > 3 && name.compare(name.size() - 3, 3, ".kd") == 0) (*out)[name.substr(0, name.size() - 3)] = Entry{};
    }
  }
  return out->empty() ? kInvalidImage : kSuccess;
}
