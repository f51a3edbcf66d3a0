// Elements of a packet are rounded together, in pairs where the hardware does that: one by one they take several instructions each.
#ifndef MSCCLPP_INFERENCE_ROUNDED_H_
#define MSCCLPP_INFERENCE_ROUNDED_H_

#include <mscclpp/memory.h>
#include <mscclpp/types.h>

namespace mscclpp {
namespace inference {

// rounded makes 16 bytes of elements. Where one is no number it is a NaN, with no more of the bits that it had.
template <class T>
MSCCLPP_DEVICE Vec16 rounded(const float* f) {
  struct { T e[16 / sizeof(T)]; } p;
  MSCCLPP_UNROLL
  for (uint32_t k = 0; k < 16 / sizeof(T); ++k) p.e[k] = narrow_element<T>(f[k]);
  return __builtin_bit_cast(Vec16, p);
}
#if MSCCLPP_TARGET_CUDA
#define MSCCLPP_ROUNDED(T, name)                                                                     \
  template <>                                                                                        \
  MSCCLPP_DEVICE Vec16 rounded<T>(const float* f) {                                                  \
    Vec16 v;                                                                                         \
    asm("cvt.rn." name "x2.f32 %0, %1, %2;" : "=r"(v.x) : "f"(f[1]), "f"(f[0]));                     \
    asm("cvt.rn." name "x2.f32 %0, %1, %2;" : "=r"(v.y) : "f"(f[3]), "f"(f[2]));                     \
    asm("cvt.rn." name "x2.f32 %0, %1, %2;" : "=r"(v.z) : "f"(f[5]), "f"(f[4]));                     \
    asm("cvt.rn." name "x2.f32 %0, %1, %2;" : "=r"(v.w) : "f"(f[7]), "f"(f[6]));                     \
    return v;                                                                                        \
  }
MSCCLPP_ROUNDED(f16, "f16")
MSCCLPP_ROUNDED(bf16, "bf16")
#undef MSCCLPP_ROUNDED
#endif

// Four elements of e4m3.
MSCCLPP_DEVICE uint32_t rounded_e4m3(float a, float b, float c, float d) {
#if MSCCLPP_FP8_BY_HARDWARE
  uint16_t low, high;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(b), "f"(a));
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(d), "f"(c));
  return static_cast<uint32_t>(high) << 16 | low;
#else
  return static_cast<uint32_t>(from_float<e4m3>(d).bits) << 24 | static_cast<uint32_t>(from_float<e4m3>(c).bits) << 16 |
         static_cast<uint32_t>(from_float<e4m3>(b).bits) << 8 | from_float<e4m3>(a).bits;
#endif
}

}  // namespace inference
}  // namespace mscclpp
#endif  // MSCCLPP_INFERENCE_ROUNDED_H_
