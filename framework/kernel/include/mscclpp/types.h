// Element types. 16- and 8-bit floats are bit patterns with conversions to and from
// float; arithmetic on them happens in float. Narrowing rounds to nearest even;
// f16 and bf16 overflow to infinity; the three fp8 types saturate at their largest
// finite value, infinities included.
#ifndef MSCCLPP_TYPES_H_
#define MSCCLPP_TYPES_H_

#include "layout.h"
#include "target.h"

#if MSCCLPP_TARGET_CUDA && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define MSCCLPP_FP8_BY_HARDWARE 1
#endif

namespace mscclpp {

struct f16 { uint16_t bits; };
struct bf16 { uint16_t bits; };
struct e4m3 { uint8_t bits; };     // OCP: no infinities, NaN 0x7f, largest 448
struct e5m2 { uint8_t bits; };     // OCP: infinities, NaNs, largest 57344
struct e4m3b15 { uint8_t bits; };  // software: neither, largest 1.875; NaN becomes the largest

template <DataType D> struct TypeOf;
template <> struct TypeOf<kFloat32> { using Type = float; };
template <> struct TypeOf<kFloat16> { using Type = f16; };
template <> struct TypeOf<kBFloat16> { using Type = bf16; };
template <> struct TypeOf<kFloat64> { using Type = double; };
template <> struct TypeOf<kInt8> { using Type = int8_t; };
template <> struct TypeOf<kUint8> { using Type = uint8_t; };
template <> struct TypeOf<kInt32> { using Type = int32_t; };
template <> struct TypeOf<kUint32> { using Type = uint32_t; };
template <> struct TypeOf<kInt64> { using Type = int64_t; };
template <> struct TypeOf<kUint64> { using Type = uint64_t; };
template <> struct TypeOf<kFloat8E4M3> { using Type = e4m3; };
template <> struct TypeOf<kFloat8E5M2> { using Type = e5m2; };
template <> struct TypeOf<kFloat8E4M3B15> { using Type = e4m3b15; };

#ifdef MSCCLPP_TYPE
// The type an image is built for: cmd/mscclpp-kernels defines MSCCLPP_TYPE as a
// number of DataType.
using Element = TypeOf<static_cast<DataType>(MSCCLPP_TYPE)>::Type;
#endif

// The type in which a type is accumulated.
template <class T> struct AccumulatorOf { using Type = T; };
template <> struct AccumulatorOf<f16> { using Type = float; };
template <> struct AccumulatorOf<bf16> { using Type = float; };
template <> struct AccumulatorOf<e4m3> { using Type = float; };
template <> struct AccumulatorOf<e5m2> { using Type = float; };
template <> struct AccumulatorOf<e4m3b15> { using Type = float; };
template <class T> using Accumulator = typename AccumulatorOf<T>::Type;

namespace detail {

// On CUDA __builtin_bit_cast is as free as elsewhere; gcc has it from 11 on.
MSCCLPP_DEVICE float as_float(uint32_t b) { return __builtin_bit_cast(float, b); }
MSCCLPP_DEVICE uint32_t as_bits(float f) { return __builtin_bit_cast(uint32_t, f); }

// Decodes a format of E exponent bits, M mantissa bits and bias B without special
// values. Written without branches: it has to vectorize.
template <int E, int M, int B>
MSCCLPP_DEVICE uint32_t widen(uint32_t bits) {
  const uint32_t magnitude = bits & ((1u << (E + M)) - 1);
  const uint32_t sign = (bits >> (E + M)) << 31;
  const uint32_t normal = (magnitude << (23 - M)) + (static_cast<uint32_t>(127 - B) << 23);
  // 2^(1 - B - M) times the mantissa.
  const float small = static_cast<float>(static_cast<int32_t>(magnitude)) * as_float(static_cast<uint32_t>(128 - B - M) << 23);
  return sign | (magnitude < (1u << M) ? as_bits(small) : normal);
}

// Rounds |f| to nearest even in the same family of formats; the result may exceed
// the format's range, the caller clamps it. a holds the bits of |f|.
template <int E, int M, int B>
MSCCLPP_DEVICE uint32_t narrow(uint32_t a) {
  constexpr int shift = 23 - M;
  const uint32_t normal = (a + ((1u << (shift - 1)) - 1) + ((a >> shift) & 1) - (static_cast<uint32_t>(127 - B) << 23)) >> shift;
  // Adding a power of two whose last place is the smallest subnormal rounds in hardware.
  constexpr uint32_t magic = static_cast<uint32_t>(127 + 23 + 1 - B - M) << 23;
  const uint32_t small = as_bits(as_float(a) + as_float(magic)) - magic;
  return a < (static_cast<uint32_t>(128 - B) << 23) ? small : normal;
}

MSCCLPP_DEVICE uint32_t widen_f16(uint32_t b) {
  const uint32_t special = (b & 0x8000u) << 16 | 0x7f800000u | (b & 0x3ffu) << 13;
  return (b & 0x7c00u) == 0x7c00u ? special : widen<5, 10, 15>(b);
}
MSCCLPP_DEVICE uint32_t narrow_f16(uint32_t x) {
  const uint32_t a = x & 0x7fffffffu, sign = x >> 16 & 0x8000u;
  const uint32_t rounded = narrow<5, 10, 15>(a);
  const uint32_t finite = rounded < 0x7c00u ? rounded : 0x7c00u;
  const uint32_t big = a > 0x7f800000u ? 0x7e00u | (a >> 13 & 0x1ffu) : 0x7c00u;
  return sign | (a >= 0x7f800000u ? big : finite);
}
MSCCLPP_DEVICE uint32_t narrow_bf16(uint32_t x) {
  const uint32_t rounded = (x + 0x7fffu + (x >> 16 & 1u)) >> 16;
  return (x & 0x7fffffffu) > 0x7f800000u ? (x >> 16 | 0x40u) : rounded;
}

}  // namespace detail

MSCCLPP_DEVICE float to_float(bf16 v) { return detail::as_float(static_cast<uint32_t>(v.bits) << 16); }
#if !MSCCLPP_FP8_BY_HARDWARE
MSCCLPP_DEVICE float to_float(e4m3 v) {
  const uint32_t b = v.bits;
  return detail::as_float((b & 0x7fu) == 0x7fu ? (b & 0x80u) << 24 | 0x7fc00000u : detail::widen<4, 3, 7>(b));
}
MSCCLPP_DEVICE float to_float(e5m2 v) {
  // The upper byte of an f16.
  return detail::as_float(detail::widen_f16(static_cast<uint32_t>(v.bits) << 8));
}
#endif
MSCCLPP_DEVICE float to_float(e4m3b15 v) { return detail::as_float(detail::widen<4, 3, 15>(v.bits)); }

template <class T> MSCCLPP_DEVICE T from_float(float f);
template <> MSCCLPP_DEVICE bf16 from_float<bf16>(float f) {
  return bf16{static_cast<uint16_t>(detail::narrow_bf16(detail::as_bits(f)))};
}
#if !MSCCLPP_FP8_BY_HARDWARE
template <> MSCCLPP_DEVICE e4m3 from_float<e4m3>(float f) {
  const uint32_t x = detail::as_bits(f), a = x & 0x7fffffffu, sign = x >> 24 & 0x80u;
  const uint32_t top = a < 0x43e00000u ? a : 0x43e00000u;  // 448
  const uint32_t r = a > 0x7f800000u ? 0x7fu : detail::narrow<4, 3, 7>(top);
  return e4m3{static_cast<uint8_t>(sign | r)};
}
template <> MSCCLPP_DEVICE e5m2 from_float<e5m2>(float f) {
  const uint32_t x = detail::as_bits(f), a = x & 0x7fffffffu, sign = x >> 24 & 0x80u;
  const uint32_t top = a < 0x47600000u ? a : 0x47600000u;  // 57344
  const uint32_t r = a > 0x7f800000u ? 0x7fu : detail::narrow<5, 2, 15>(top);
  return e5m2{static_cast<uint8_t>(sign | r)};
}
#endif
template <> MSCCLPP_DEVICE e4m3b15 from_float<e4m3b15>(float f) {
  const uint32_t x = detail::as_bits(f), a = x & 0x7fffffffu, sign = x >> 24 & 0x80u;
  const uint32_t top = a < 0x3ff00000u ? a : 0x3ff00000u;  // 1.875
  return e4m3b15{static_cast<uint8_t>(sign | detail::narrow<4, 3, 15>(top))};
}

#if MSCCLPP_TARGET_CUDA
MSCCLPP_DEVICE float to_float(f16 v) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(v.bits));
  return f;
}
template <> MSCCLPP_DEVICE f16 from_float<f16>(float f) {
  f16 v;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(v.bits) : "f"(f));
  return v;
}
#if MSCCLPP_FP8_BY_HARDWARE
#define MSCCLPP_CVT_FP8(T, name)                                                             \
  MSCCLPP_DEVICE float to_float(T v) {                                                       \
    uint32_t pair;                                                                           \
    asm("cvt.rn.f16x2." name "x2 %0, %1;" : "=r"(pair) : "h"(static_cast<uint16_t>(v.bits))); \
    return to_float(f16{static_cast<uint16_t>(pair)});                                       \
  }                                                                                          \
  template <> MSCCLPP_DEVICE T from_float<T>(float f) {                                      \
    uint16_t pair;                                                                           \
    asm("cvt.rn.satfinite." name "x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(f));     \
    return T{static_cast<uint8_t>(pair)};                                                    \
  }
MSCCLPP_CVT_FP8(e4m3, "e4m3")
MSCCLPP_CVT_FP8(e5m2, "e5m2")
#endif
#elif MSCCLPP_TARGET_HIP
MSCCLPP_DEVICE float to_float(f16 v) { return static_cast<float>(__builtin_bit_cast(_Float16, v.bits)); }
template <> MSCCLPP_DEVICE f16 from_float<f16>(float f) {
  return f16{__builtin_bit_cast(uint16_t, static_cast<_Float16>(f))};
}
#else
inline float to_float(f16 v) { return detail::as_float(detail::widen_f16(v.bits)); }
template <> inline f16 from_float<f16>(float f) {
  return f16{static_cast<uint16_t>(detail::narrow_f16(detail::as_bits(f)))};
}
#endif

// Types that are accumulated as they are.
template <class T> MSCCLPP_DEVICE T widen_element(T v) { return v; }
MSCCLPP_DEVICE float widen_element(f16 v) { return to_float(v); }
MSCCLPP_DEVICE float widen_element(bf16 v) { return to_float(v); }
MSCCLPP_DEVICE float widen_element(e4m3 v) { return to_float(v); }
MSCCLPP_DEVICE float widen_element(e5m2 v) { return to_float(v); }
MSCCLPP_DEVICE float widen_element(e4m3b15 v) { return to_float(v); }

template <class T> struct Narrow {
  static MSCCLPP_DEVICE T element(T v) { return v; }
};
template <> struct Narrow<f16> { static MSCCLPP_DEVICE f16 element(float v) { return from_float<f16>(v); } };
template <> struct Narrow<bf16> { static MSCCLPP_DEVICE bf16 element(float v) { return from_float<bf16>(v); } };
template <> struct Narrow<e4m3> { static MSCCLPP_DEVICE e4m3 element(float v) { return from_float<e4m3>(v); } };
template <> struct Narrow<e5m2> { static MSCCLPP_DEVICE e5m2 element(float v) { return from_float<e5m2>(v); } };
template <> struct Narrow<e4m3b15> { static MSCCLPP_DEVICE e4m3b15 element(float v) { return from_float<e4m3b15>(v); } };
template <class T> MSCCLPP_DEVICE T narrow_element(Accumulator<T> v) { return Narrow<T>::element(v); }

}  // namespace mscclpp
#endif  // MSCCLPP_TYPES_H_
