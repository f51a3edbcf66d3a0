// The machine that is emulated, as its environment describes it: what the driver and
// the management library have to say alike.
#ifndef EMULATED_MACHINE_H_
#define EMULATED_MACHINE_H_

#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <string>
#include <vector>

#include "api.h"

constexpr int kFirstBus = 0xe0;  // of the first GPU; the others follow

inline std::vector<std::string> split(const char* list) {
  std::vector<std::string> out;
  std::string item;
  for (const char* p = list;; ++p) {
    if (*p != 0 && *p != ',') {
      if (*p != ' ') item += *p;
      continue;
    }
    if (!item.empty()) out.push_back(item);
    item.clear();
    if (*p == 0) return out;
  }
}

inline uint64_t number(const char* name, uint64_t otherwise) {
  const char* text = getenv(name);
  if (text == nullptr || *text == 0) return otherwise;
  char* end;
  const uint64_t n = strtoull(text, &end, 10);
  return *end == 0 ? n : 0;
}

inline Uuid uuid_of(int physical) {
  Uuid u = {{'E', 'M', 'U', 'L', 'A', 'T', 'E', 'D', ' ', 'G', 'P', 'U', ' ', 0, 0, 0}};
  u.bytes[15] = static_cast<unsigned char>(physical);
  return u;
}

inline std::string uuid_text(int physical) {
  const Uuid u = uuid_of(physical);
  std::string out = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char hex[4];
    snprintf(hex, sizeof hex, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", u.bytes[i]);
    out += hex;
  }
  return out;
}

inline int machine_gpus() { return static_cast<int>(std::min<uint64_t>(number("CUDA_EMULATED_GPUS", 4), 31)); }

// Bytes of a GPU.
inline uint64_t machine_memory() { return number("CUDA_EMULATED_MEMORY", 4ull << 30); }

// Abilities that are switched off.
inline std::vector<std::string> machine_lacks() { return split(getenv("CUDA_EMULATED_WITHOUT") ?: ""); }

#endif  // EMULATED_MACHINE_H_
