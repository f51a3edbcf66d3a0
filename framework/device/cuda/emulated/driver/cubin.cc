// Machine code: what the driver reads of an object before it runs it. The code itself is
// not looked at: an image for the CPU stands for it.
#include <elf.h>
#include <string.h>

#include <algorithm>

#include "image.h"
#include "state.h"

namespace {

constexpr int kMachine = 190;         // EM_CUDA
constexpr unsigned kEntryPoint = 0x10;  // of a symbol's st_other

// The object as it was given, without its length.
struct Object {
  const char* base;
  const Elf64_Ehdr* head;

  const Elf64_Shdr* section(int i) const { return reinterpret_cast<const Elf64_Shdr*>(base + head->e_shoff) + i; }
  const char* name(const Elf64_Shdr* s) const { return base + section(head->e_shstrndx)->sh_offset + s->sh_name; }

  const Elf64_Shdr* find(const std::string& wanted) const {
    for (int i = 1; i < head->e_shnum; ++i) {
      if (wanted == name(section(i))) return section(i);
    }
    return nullptr;
  }
};

// Up to Hopper the chip is in the last byte of the flags, from Blackwell on in the one before.
void chip_of(const Elf64_Ehdr* h, int* chip, bool* exact) {
  const bool later = h->e_ident[EI_ABIVERSION] > 7;
  *chip = static_cast<int>(later ? h->e_flags >> 8 & 0xff : h->e_flags & 0xff);
  *exact = (h->e_flags & (later ? 0x8u : 0x800u)) != 0;
}

// Attributes of a kernel: pairs of form and kind, then a value of two bytes, or its size and
// the value.
void read_info(const Object& o, const Elf64_Shdr* info, Entry* e) {
  const char* at = o.base + info->sh_offset;
  const char* end = at + info->sh_size;
  while (end - at >= 4) {
    uint16_t half;
    memcpy(&half, at + 2, sizeof half);
    const unsigned form = static_cast<unsigned char>(at[0]), kind = static_cast<unsigned char>(at[1]);
    at += 4;
    if (kind == 0x19) e->parameters = half;
    if (form != 4) continue;
    if (half > end - at) break;
    if (kind == 0x05 && half == 12) {
      uint32_t size[3];
      memcpy(size, at, sizeof size);
      e->max_threads = static_cast<int>(size[0] * size[1] * size[2]);
    }
    at += half;
  }
}

}  // namespace

bool is_cubin(const void* data) {
  const auto* h = static_cast<const Elf64_Ehdr*>(data);
  return h->e_ident[EI_CLASS] == ELFCLASS64 && h->e_machine == kMachine;
}

int read_cubin(const void* data, std::map<std::string, Entry>* out, std::string* why) {
  const Object o = {static_cast<const char*>(data), static_cast<const Elf64_Ehdr*>(data)};
  int chip;
  bool exact;
  chip_of(o.head, &chip, &exact);
  if (exact ? chip != kCapability : chip / 10 != kCapability / 10 || chip > kCapability) {
    *why = "emulated: machine code for sm_" + std::to_string(chip) + (exact ? "a" : "") + " does not run on this device";
    return kNoBinaryForGpu;
  }
  const Elf64_Shdr* table = o.find(".symtab");
  if (o.head->e_shentsize != sizeof(Elf64_Shdr) || table == nullptr || table->sh_entsize != sizeof(Elf64_Sym)) return kInvalidImage;
  const char* names = o.base + o.section(static_cast<int>(table->sh_link))->sh_offset;
  for (uint64_t i = 0; i < table->sh_size / sizeof(Elf64_Sym); ++i) {
    Elf64_Sym s;  // objects are not aligned
    memcpy(&s, o.base + table->sh_offset + i * sizeof s, sizeof s);
    if (ELF64_ST_TYPE(s.st_info) != STT_FUNC || (s.st_other & kEntryPoint) == 0) continue;
    const std::string name = names + s.st_name;
    const Elf64_Shdr* info = o.find(".nv.info." + name);
    if (info == nullptr || o.find(".text." + name) == nullptr) return kInvalidImage;
    read_info(o, info, &(*out)[name]);
  }
  return out->empty() ? kInvalidImage : kSuccess;
}
