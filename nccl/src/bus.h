/* bus_number reads the place of a device, such as 0000:4f:00.0, as one number. */
#pragma once

#include <ctype.h>
#include <stdint.h>

static inline uint64_t bus_number(const char* text) {
  uint64_t n = 0;
  for (; *text; text++)
    if (isxdigit((unsigned char)*text)) n = n << 4 | (uint64_t)(isdigit((unsigned char)*text) ? *text - '0' : tolower((unsigned char)*text) - 'a' + 10);
  return n;
}
