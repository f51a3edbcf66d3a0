#define _GNU_SOURCE
#include "launch.h"

#include <dlfcn.h>
#include <stdio.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

// dlopen and dlerror in one call: the message belongs to the thread, and Go may
// move to another one between two calls.
void* mscclpp_host_open(const char* path, char* why, size_t bytes) {
  void* module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (module == NULL && bytes > 0) {
    const char* text = dlerror();
    snprintf(why, bytes, "%s", text != NULL ? text : "unknown");
  }
  return module;
}

void* mscclpp_host_symbol(void* module, const char* symbol) { return dlsym(module, symbol); }

int mscclpp_host_close(void* module) { return dlclose(module); }

#if defined(__x86_64__)

// The state that the operating system saves on a context switch; without it the registers
// cannot be used, whatever the processor has.
static uint64_t saved_state(void) {
  uint32_t lo, hi;
  __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
  return (uint64_t)hi << 32 | lo;
}

static int all(uint32_t have, uint32_t want) { return (have & want) == want; }

int mscclpp_host_level(void) {
  uint32_t a, b, c1, d, b7 = 0, c7, c81 = 0;
  if (!__get_cpuid(1, &a, &b, &c1, &d)) return 1;
  if (__get_cpuid_count(7, 0, &a, &b7, &c7, &d) == 0) b7 = 0;
  if (__get_cpuid(0x80000001, &a, &b, &c81, &d) == 0) c81 = 0;

  const uint32_t lahf = 1u << 0, lzcnt = 1u << 5;
  if (!all(c1, bit_SSE3 | bit_SSSE3 | bit_SSE4_1 | bit_SSE4_2 | bit_POPCNT | bit_CMPXCHG16B) || !all(c81, lahf)) return 1;
  if (!all(c1, bit_AVX | bit_F16C | bit_FMA | bit_MOVBE | bit_OSXSAVE) || !all(c81, lzcnt) ||
      !all(b7, bit_AVX2 | bit_BMI | bit_BMI2)) {
    return 2;
  }
  const uint64_t state = saved_state();
  if ((state & 0x6) != 0x6) return 2;  // SSE and AVX
  if (!all(b7, bit_AVX512F | bit_AVX512BW | bit_AVX512CD | bit_AVX512DQ | bit_AVX512VL) || (state & 0xe6) != 0xe6) return 3;
  return 4;
}

#else

int mscclpp_host_level(void) { return 0; }

#endif
