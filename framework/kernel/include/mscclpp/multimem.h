// Multicast instructions of NVSwitch, sm_90 and later. All are relaxed and of
// system scope. Sums of 16-bit floats are accumulated in float.
#ifndef MSCCLPP_MULTIMEM_H_
#define MSCCLPP_MULTIMEM_H_

#include "memory.h"
#include "reduce.h"

namespace mscclpp {
namespace detail {

MSCCLPP_DEVICE void multimem_add(uint64_t* p, uint64_t v, bool release) {
  if (release) {
    asm volatile("multimem.red.release.sys.global.add.u64 [%0], %1;" : : "l"(p), "l"(v) : "memory");
  } else {
    asm volatile("multimem.red.relaxed.sys.global.add.u64 [%0], %1;" : : "l"(p), "l"(v) : "memory");
  }
}

// The window and the rank's own copy are two names of the same bytes, which the hardware may reach by different ways. An
// access by one name that follows an access by the other needs this fence on the way from one to the other.
MSCCLPP_DEVICE void alias_fence() { asm volatile("fence.proxy.alias;" : : : "memory"); }

MSCCLPP_DEVICE void multimem_store(float* p, float v) {
  asm volatile("multimem.st.relaxed.sys.global.f32 [%0], %1;" : : "l"(p), "f"(v) : "memory");
}
MSCCLPP_DEVICE void multimem_store(uint32_t* p, uint32_t v) {
  asm volatile("multimem.st.relaxed.sys.global.u32 [%0], %1;" : : "l"(p), "r"(v) : "memory");
}
MSCCLPP_DEVICE void multimem_store(int32_t* p, int32_t v) { multimem_store(reinterpret_cast<uint32_t*>(p), static_cast<uint32_t>(v)); }
MSCCLPP_DEVICE void multimem_store(uint64_t* p, uint64_t v) {
  asm volatile("multimem.st.relaxed.sys.global.u64 [%0], %1;" : : "l"(p), "l"(v) : "memory");
}
MSCCLPP_DEVICE void multimem_store16(void* p, Vec16 v) {
  asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1,%2,%3,%4};"
               : : "l"(p), "f"(as_float(v.x)), "f"(as_float(v.y)), "f"(as_float(v.z)), "f"(as_float(v.w)) : "memory");
}

// Which types hardware can sum, and how.
template <class T> struct MultimemSum;  // no definition: not by hardware
template <> struct MultimemSum<float> {
  static MSCCLPP_DEVICE Vec16 load(const void* p) {
    float a, b, c, d;
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(a), "=f"(b), "=f"(c), "=f"(d) : "l"(p) : "memory");
    return Vec16{as_bits(a), as_bits(b), as_bits(c), as_bits(d)};
  }
  static MSCCLPP_DEVICE float one(const float* p) {
    float v;
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.f32 %0, [%1];" : "=f"(v) : "l"(p) : "memory");
    return v;
  }
};
template <> struct MultimemSum<uint32_t> {
  static MSCCLPP_DEVICE uint32_t one(const uint32_t* p) {
    uint32_t v;
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
  }
  static MSCCLPP_DEVICE Vec16 load(const void* p) {
    const uint32_t* w = static_cast<const uint32_t*>(p);
    return Vec16{one(w), one(w + 1), one(w + 2), one(w + 3)};
  }
};
template <> struct MultimemSum<int32_t> {
  static MSCCLPP_DEVICE int32_t one(const int32_t* p) {
    return static_cast<int32_t>(MultimemSum<uint32_t>::one(reinterpret_cast<const uint32_t*>(p)));
  }
  static MSCCLPP_DEVICE Vec16 load(const void* p) { return MultimemSum<uint32_t>::load(p); }
};
// 16-bit elements come in pairs; one alone has no instruction of its own.
#define MSCCLPP_MULTIMEM_HALF(T, ptx)                                                                          \
  template <> struct MultimemSum<T> {                                                                          \
    static MSCCLPP_DEVICE Vec16 load(const void* p) {                                                          \
      Vec16 v;                                                                                                 \
      asm volatile("multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4." ptx " {%0,%1,%2,%3}, [%4];"        \
                   : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");                          \
      return v;                                                                                                \
    }                                                                                                          \
    static MSCCLPP_DEVICE T one(const T* p) {                                                                  \
      const uintptr_t a = reinterpret_cast<uintptr_t>(p);                                                      \
      uint32_t v;                                                                                              \
      asm volatile("multimem.ld_reduce.relaxed.sys.global.add.acc::f32." ptx " %0, [%1];"                      \
                   : "=r"(v) : "l"(a & ~static_cast<uintptr_t>(3)) : "memory");                                \
      return T{static_cast<uint16_t>((a & 2) != 0 ? v >> 16 : v)};                                             \
    }                                                                                                          \
  };
MSCCLPP_MULTIMEM_HALF(f16, "f16x2")
MSCCLPP_MULTIMEM_HALF(bf16, "bf16x2")

template <class T> MSCCLPP_DEVICE T multimem_sum(const T* p) { return MultimemSum<T>::one(p); }

// The operation behind the sum: division, or the factor, which may as well come last.
template <class T>
MSCCLPP_DEVICE Vec16 multimem_finish(Vec16 v, const Reduction& r, uint32_t ranks) {
  if (r.op != kAvg && r.op != kPreMulSum) return v;
  using A = Accumulator<T>;
  const Scalars<A> s(r, ranks);
  constexpr uint32_t kLanes = 16 / sizeof(T);
  struct Lanes16 { T lane[kLanes]; } l = __builtin_bit_cast(Lanes16, v);
  A a[kLanes];
  MSCCLPP_UNROLL
  for (uint32_t k = 0; k < kLanes; ++k) a[k] = multiply(widen_element(l.lane[k]), s.scale);
  average<kAnyOp, kLanes>(a, s);
  MSCCLPP_UNROLL
  for (uint32_t k = 0; k < kLanes; ++k) l.lane[k] = narrow_element<T>(a[k]);
  return __builtin_bit_cast(Vec16, l);
}

// window and out are aligned to 16, and count covers whole words, because the caller
// lays out its window so.
template <class T>
MSCCLPP_DEVICE void multimem_reduce(void* out, const char* window, size_t count, const Reduction& r, uint32_t ranks, uint32_t tid,
                                    uint32_t nthreads) {
  const size_t words = count * sizeof(T) / 16;
  for (size_t w = tid; w < words; w += nthreads) {
    store16(static_cast<char*>(out) + 16 * w, multimem_finish<T>(MultimemSum<T>::load(window + 16 * w), r, ranks));
  }
}

MSCCLPP_DEVICE void multimem_copy(char* window, const void* src, size_t bytes, uint32_t tid, uint32_t nthreads) {
  const char* from = static_cast<const char*>(src);
  const size_t words = bytes / 16;
  for (size_t w = tid; w < words; w += nthreads) multimem_store16(window + 16 * w, load16(from + 16 * w));
  const size_t rest = words * 4;
  for (size_t i = rest + tid; i < bytes / 4; i += nthreads) {
    multimem_store(reinterpret_cast<uint32_t*>(window) + i, reinterpret_cast<const uint32_t*>(from)[i]);
  }
}

}  // namespace detail
}  // namespace mscclpp
#endif  // MSCCLPP_MULTIMEM_H_
