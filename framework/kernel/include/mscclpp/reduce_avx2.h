// Reductions of 16- and 8-bit floats on CPUs with AVX2: compilers do not find the
// conversions. Eight elements at a time; what is left over goes through a padded
// group, so the result of an element never depends on where it lies. Bit by bit the
// same as the conversions of types.h.
#ifndef MSCCLPP_REDUCE_AVX2_H_
#define MSCCLPP_REDUCE_AVX2_H_

#include <immintrin.h>
#include <string.h>

#include "reduce.h"

namespace mscclpp {
namespace detail {

typedef uint32_t u32x8 __attribute__((vector_size(32)));

inline u32x8 splat(uint32_t v) { return u32x8{v, v, v, v, v, v, v, v}; }
inline u32x8 pick8(u32x8 mask, u32x8 yes, u32x8 no) { return (mask & yes) | (~mask & no); }
// Masks of unsigned comparisons of numbers below 2^31, which AVX2 compares as signed.
inline u32x8 above(u32x8 a, uint32_t b) {
  return (u32x8)_mm256_cmpgt_epi32((__m256i)a, _mm256_set1_epi32(static_cast<int>(b)));
}
inline u32x8 below(u32x8 a, uint32_t b) {
  return (u32x8)_mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(b)), (__m256i)a);
}
inline u32x8 equal(u32x8 a, uint32_t b) {
  return (u32x8)_mm256_cmpeq_epi32((__m256i)a, _mm256_set1_epi32(static_cast<int>(b)));
}
inline __m256 floats(u32x8 v) { return _mm256_castsi256_ps((__m256i)v); }
inline u32x8 bits(__m256 v) { return (u32x8)_mm256_castps_si256(v); }

inline u32x8 load_u16(const void* p) {
  return (u32x8)_mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}
inline u32x8 load_u8(const void* p) {
  return (u32x8)_mm256_cvtepu8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p)));
}
inline __m128i narrow_u16(u32x8 v) {
  return _mm_packus_epi32(_mm256_castsi256_si128((__m256i)v), _mm256_extracti128_si256((__m256i)v, 1));
}
inline void store_u16(void* p, u32x8 v) { _mm_storeu_si128(static_cast<__m128i*>(p), narrow_u16(v)); }
inline void store_u8(void* p, u32x8 v) {
  const __m128i h = narrow_u16(v);
  _mm_storel_epi64(static_cast<__m128i*>(p), _mm_packus_epi16(h, h));
}

// The twins of widen and narrow.
template <int E, int M, int B>
inline u32x8 widen8(u32x8 v) {
  const u32x8 magnitude = v & splat((1u << (E + M)) - 1);
  const u32x8 sign = (v >> (E + M)) << 31;
  const u32x8 normal = (magnitude << (23 - M)) + splat(static_cast<uint32_t>(127 - B) << 23);
  const __m256 unit = _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(static_cast<uint32_t>(128 - B - M) << 23)));
  const u32x8 small = bits(_mm256_mul_ps(_mm256_cvtepi32_ps((__m256i)magnitude), unit));
  return sign | pick8(below(magnitude, 1u << M), small, normal);
}
template <int E, int M, int B>
inline u32x8 narrow8(u32x8 a) {
  constexpr int shift = 23 - M;
  constexpr uint32_t down = static_cast<uint32_t>(127 - B) << 23, magic = static_cast<uint32_t>(127 + 23 + 1 - B - M) << 23;
  const u32x8 normal = (a + splat((1u << (shift - 1)) - 1 - down) + ((a >> shift) & splat(1))) >> shift;
  const u32x8 small = bits(_mm256_add_ps(floats(a), floats(splat(magic)))) - splat(magic);
  return pick8(below(a, static_cast<uint32_t>(128 - B) << 23), small, normal);
}
template <int E, int M, int B>
inline u32x8 saturate8(__m256 v, uint32_t top, bool nan) {
  const u32x8 x = bits(v), a = x & splat(0x7fffffffu), sign = (x >> 24) & splat(0x80u);
  const u32x8 r = narrow8<E, M, B>(pick8(above(a, top), splat(top), a));
  return sign | (nan ? pick8(above(a, 0x7f800000u), splat(0x7fu), r) : r);
}

template <class T> struct Wide;
template <> struct Wide<f16> {
  typedef uint16_t Bits;
  static __m256 load(const void* p) { return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p))); }
  static void store(void* p, __m256 v) {
    _mm_storeu_si128(static_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
};
template <> struct Wide<bf16> {
  typedef uint16_t Bits;
  static __m256 load(const void* p) { return floats(load_u16(p) << 16); }
  static void store(void* p, __m256 v) {
    const u32x8 x = bits(v), even = (x >> 16) & splat(1);
    const u32x8 rounded = (x + splat(0x7fffu) + even) >> 16;
    store_u16(p, pick8(above(x & splat(0x7fffffffu), 0x7f800000u), (x >> 16) | splat(0x40u), rounded));
  }
};
template <> struct Wide<e4m3> {
  typedef uint8_t Bits;
  static __m256 load(const void* p) {
    const u32x8 b = load_u8(p);
    const u32x8 nan = ((b & splat(0x80u)) << 24) | splat(0x7fc00000u);
    return floats(pick8(equal(b & splat(0x7fu), 0x7fu), nan, widen8<4, 3, 7>(b)));
  }
  static void store(void* p, __m256 v) { store_u8(p, saturate8<4, 3, 7>(v, 0x43e00000u, true)); }
};
template <> struct Wide<e5m2> {
  typedef uint8_t Bits;
  static __m256 load(const void* p) {
    // The upper byte of an f16.
    const __m128i b = _mm_loadl_epi64(static_cast<const __m128i*>(p));
    return _mm256_cvtph_ps(_mm_unpacklo_epi8(_mm_setzero_si128(), b));
  }
  static void store(void* p, __m256 v) { store_u8(p, saturate8<5, 2, 15>(v, 0x47600000u, true)); }
};
template <> struct Wide<e4m3b15> {
  typedef uint8_t Bits;
  static __m256 load(const void* p) { return floats(widen8<4, 3, 15>(load_u8(p))); }
  static void store(void* p, __m256 v) { store_u8(p, saturate8<4, 3, 15>(v, 0x3ff00000u, false)); }
};

template <ReduceOp Op>
inline __m256 apply8(__m256 a, __m256 b) {
  if (Op == kProd) return _mm256_mul_ps(a, b);
  if (Op == kMin || Op == kMax) {
    const __m256 better = Op == kMin ? _mm256_cmp_ps(b, a, _CMP_LT_OQ) : _mm256_cmp_ps(a, b, _CMP_LT_OQ);
    return _mm256_blendv_ps(a, b, _mm256_or_ps(better, _mm256_cmp_ps(a, a, _CMP_UNORD_Q)));
  }
  return _mm256_add_ps(a, b);
}

// The loops of reduce_cpu.h. Accumulators have room up to the next multiple of eight.
template <class T, ReduceOp Op>
struct WideLoops {
  typedef float A;
  typedef Wide<T> W;
  typedef typename W::Bits Bits;
  typedef typename Unaligned<Bits>::Type U;

  static void pair(U* out, const U* a, const U* b, size_t n) {
    size_t i = 0;
    for (; i + 8 <= n; i += 8) W::store(out + i, apply8<Op>(W::load(a + i), W::load(b + i)));
    if (i == n) return;
    Bits x[8] = {}, y[8] = {};
    memcpy(x, a + i, sizeof(Bits) * (n - i));
    memcpy(y, b + i, sizeof(Bits) * (n - i));
    W::store(x, apply8<Op>(W::load(x), W::load(y)));
    memcpy(out + i, x, sizeof(Bits) * (n - i));
  }
  template <class F>
  static void each(const U* a, size_t n, F f) {
    size_t i = 0;
    for (; i + 8 <= n; i += 8) f(i, W::load(a + i));
    if (i == n) return;
    Bits x[8] = {};
    memcpy(x, a + i, sizeof(Bits) * (n - i));
    f(i, W::load(x));
  }
  static void first(float* acc, const U* a, size_t n, float scale, bool scaled) {
    const __m256 s = _mm256_set1_ps(scaled ? scale : 1.0f);
    each(a, n, [acc, s](size_t i, __m256 v) { _mm256_storeu_ps(acc + i, Op == kPreMulSum ? _mm256_mul_ps(v, s) : v); });
  }
  static void next(float* acc, const U* a, size_t n, float scale, bool scaled) {
    const __m256 s = _mm256_set1_ps(scaled ? scale : 1.0f);
    each(a, n, [acc, s](size_t i, __m256 v) {
      _mm256_storeu_ps(acc + i, apply8<Op>(_mm256_loadu_ps(acc + i), Op == kPreMulSum ? _mm256_mul_ps(v, s) : v));
    });
  }
  static void last(U* out, const float* acc, size_t n, float divisor) {
    const __m256 d = _mm256_set1_ps(divisor);
    const auto result = [acc, d](size_t i) {
      const __m256 v = _mm256_loadu_ps(acc + i);
      return Op == kAvg ? _mm256_div_ps(v, d) : v;
    };
    size_t i = 0;
    for (; i + 8 <= n; i += 8) W::store(out + i, result(i));
    if (i == n) return;
    Bits x[8];
    W::store(x, result(i));
    memcpy(out + i, x, sizeof(Bits) * (n - i));
  }
};

template <ReduceOp Op> struct Loops<f16, Op> : WideLoops<f16, Op> {};
template <ReduceOp Op> struct Loops<bf16, Op> : WideLoops<bf16, Op> {};
template <ReduceOp Op> struct Loops<e4m3, Op> : WideLoops<e4m3, Op> {};
template <ReduceOp Op> struct Loops<e5m2, Op> : WideLoops<e5m2, Op> {};
template <ReduceOp Op> struct Loops<e4m3b15, Op> : WideLoops<e4m3b15, Op> {};

}  // namespace detail
}  // namespace mscclpp
#endif  // MSCCLPP_REDUCE_AVX2_H_
