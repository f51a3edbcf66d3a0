#include "pair.h"

#include <string.h>

// A product and a sum are rounded one after the other, whatever the machine could do at
// once. Compilers of the GNU family do so in ISO mode.
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("no-trapping-math")  // else both sides of a choice cannot be computed at once
#endif

#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define TWICE __attribute__((target_clones("avx2", "default")))
#else
#define TWICE
#endif

// The destination may be a source: an element depends on no other one.
#if defined(__clang__)
#define EACH _Pragma("clang loop vectorize(assume_safety)") for (uint64_t i = 0; i < n; ++i)
#else
#define EACH _Pragma("GCC ivdep") for (uint64_t i = 0; i < n; ++i)
#endif

// A NaN gives way to a number, as it does in kernels.
#define LESS(x, y) ((y) < (x) || (x) != (x) ? (y) : (x))
#define MORE(x, y) ((x) < (y) || (x) != (x) ? (y) : (x))

// One loop for each operation: LOAD and STORE convert. C is what is computed with, and U
// what sums and products of it wrap in.
#define LOOPS(C, U, LOAD, STORE) \
  switch (op) { \
    case mscclpp_prod: \
      EACH { C x = LOAD(a[i]), y = LOAD(b[i]); to[i] = STORE((C)((U)x * (U)y)); } \
      break; \
    case mscclpp_max: \
      EACH { C x = LOAD(a[i]), y = LOAD(b[i]); to[i] = STORE(MORE(x, y)); } \
      break; \
    case mscclpp_min: \
      EACH { C x = LOAD(a[i]), y = LOAD(b[i]); to[i] = STORE(LESS(x, y)); } \
      break; \
    case mscclpp_scaled: \
      EACH { C x = LOAD(a[i]), y = LOAD(b[i]); to[i] = STORE((C)((U)x + (U)y * (U)scale)); } \
      break; \
    case mscclpp_scaled_first: \
      EACH { C x = LOAD(a[i]), y = LOAD(b[i]); to[i] = STORE((C)((U)x * (U)scale + (U)y * (U)scale)); } \
      break; \
    default: \
      if (by != 0) { \
        EACH { C x = LOAD(a[i]), y = LOAD(b[i]); to[i] = STORE((C)((C)((U)x + (U)y) / by)); } \
      } else { \
        EACH { C x = LOAD(a[i]), y = LOAD(b[i]); to[i] = STORE((C)((U)x + (U)y)); } \
      } \
  }

#define SAME(x) (x)

#define PAIR(name, type, wrap, divisor) \
  TWICE void mscclpp_pair_##name(type* to, const type* a, const type* b, uint64_t n, int op, type scale, divisor by) { \
    LOOPS(type, wrap, SAME, SAME) \
  }
PAIR(f32, float, float, float)
PAIR(f64, double, double, double)
PAIR(i8, int8_t, uint8_t, int32_t)
PAIR(u8, uint8_t, uint8_t, uint32_t)
PAIR(i32, int32_t, uint32_t, int32_t)
PAIR(u32, uint32_t, uint32_t, uint32_t)
PAIR(i64, int64_t, uint64_t, int64_t)
PAIR(u64, uint64_t, uint64_t, uint64_t)

static inline __attribute__((always_inline)) float of_bits(uint32_t b) {
  float f;
  memcpy(&f, &b, sizeof f);
  return f;
}

static inline __attribute__((always_inline)) uint32_t bits_of(float f) {
  uint32_t b;
  memcpy(&b, &f, sizeof b);
  return b;
}

// Without branches. A half is a float whose exponent is moved by 112: multiplied by a
// power of two it comes out right, small numbers without a leading one included.
static inline __attribute__((always_inline)) float from_half(uint16_t h) {
  const uint32_t abs = (uint32_t)(h & 0x7fff) << 13, sign = (uint32_t)(h & 0x8000) << 16;
  const float finite = of_bits(abs) * 0x1p112f;
  const uint32_t special = abs | 0x7f800000;  // infinite, or no number
  return of_bits((abs >= 0x0f800000 ? special : bits_of(finite)) | sign);
}

// Rounds to nearest, ties to even; what is too large becomes infinite.
static inline __attribute__((always_inline)) uint16_t to_half(float f) {
  const uint32_t bits = bits_of(f), abs = bits & 0x7fffffff, sign = bits >> 16 & 0x8000;
  // With a leading one: the exponent moves, and the addition rounds.
  const uint32_t shifted = abs - (112u << 23), normal = (shifted + 0xfff + (shifted >> 13 & 1)) >> 13;
  // Without: 0.5 has its last bit where a half's last bit is then, so adding rounds.
  const uint32_t small = bits_of(of_bits(abs) + 0.5f) - 0x3f000000;
  const uint32_t large = abs > 0x7f800000 ? 0x7e00 : 0x7c00;
  const uint32_t finite = abs < 0x38800000 ? small : normal;
  return (uint16_t)(sign | (abs >= 0x477ff000 ? large : finite));
}

static inline __attribute__((always_inline)) float from_bfloat(uint16_t h) { return of_bits((uint32_t)h << 16); }

static inline __attribute__((always_inline)) uint16_t to_bfloat(float f) {
  const uint32_t bits = bits_of(f), nan = bits >> 16 | 0x40, rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded);
}

TWICE void mscclpp_pair_f16(uint16_t* to, const uint16_t* a, const uint16_t* b, uint64_t n, int op, float scale, float by) {
  LOOPS(float, float, from_half, to_half)
}

TWICE void mscclpp_pair_bf16(uint16_t* to, const uint16_t* a, const uint16_t* b, uint64_t n, int op, float scale, float by) {
  LOOPS(float, float, from_bfloat, to_bfloat)
}

// Products of integers wrap, so those of signed ones are those of unsigned ones.
#define SCALE(name, type, factor, LOAD, STORE) \
  TWICE void mscclpp_scale_##name(type* to, const type* a, uint64_t n, factor scale) { \
    EACH to[i] = STORE(LOAD(a[i]) * scale); \
  }
SCALE(f32, float, float, SAME, SAME)
SCALE(f64, double, double, SAME, SAME)
SCALE(f16, uint16_t, float, from_half, to_half)
SCALE(bf16, uint16_t, float, from_bfloat, to_bfloat)
SCALE(u8, uint8_t, uint8_t, SAME, (uint8_t))
SCALE(u32, uint32_t, uint32_t, SAME, SAME)
SCALE(u64, uint64_t, uint64_t, SAME, SAME)

TWICE void mscclpp_widen_f16(float* to, const uint16_t* from, uint64_t n) {
  EACH to[i] = from_half(from[i]);
}

TWICE void mscclpp_widen_bf16(float* to, const uint16_t* from, uint64_t n) {
  EACH to[i] = from_bfloat(from[i]);
}

TWICE void mscclpp_narrow_f16(uint16_t* to, const float* from, uint64_t n) {
  EACH to[i] = to_half(from[i]);
}

TWICE void mscclpp_narrow_bf16(uint16_t* to, const float* from, uint64_t n) {
  EACH to[i] = to_bfloat(from[i]);
}
