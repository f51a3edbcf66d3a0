/* A number that stands for bytes: FNV-1a. */
#pragma once

#include <stddef.h>
#include <stdint.h>

static inline uint64_t hash_bytes(const void* bytes, size_t n) {
  const unsigned char* p = bytes;
  uint64_t h = 14695981039346656037u;
  for (; n; n--) h = (h ^ *p++) * 1099511628211u;
  return h;
}
