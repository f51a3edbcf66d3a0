// More of the multicast instructions: words of 16 bytes of any type and operation that hardware reduces, packets, and
// words at the ends of buffers. sm_90 and later.
#ifndef MSCCLPP_MULTIMEM_WIDE_H_
#define MSCCLPP_MULTIMEM_WIDE_H_

#include "multimem.h"

namespace mscclpp {
namespace detail {

// WindowWord loads a word of a window, reduced over all copies. Types and operations without a definition are not in
// hardware: minimum and maximum of f32 and f64, products, and elements of one byte.
template <class T, ReduceOp Op> struct WindowWord;
template <> struct WindowWord<float, kSum> : MultimemSum<float> {};
template <> struct WindowWord<f16, kSum> : MultimemSum<f16> {};
template <> struct WindowWord<bf16, kSum> : MultimemSum<bf16> {};
template <> struct WindowWord<int32_t, kSum> : MultimemSum<int32_t> {};
template <> struct WindowWord<uint32_t, kSum> : MultimemSum<uint32_t> {};

// Integers have no instruction for several elements, nor have doubles.
template <class W, class U> MSCCLPP_DEVICE Vec16 of_words(const char* p) {
  struct { U v[4]; } all = {{W::one(p), W::one(p + 4), W::one(p + 8), W::one(p + 12)}};
  return __builtin_bit_cast(Vec16, all);
}
template <class W, class U> MSCCLPP_DEVICE Vec16 of_long_words(const char* p) {
  struct { U v[2]; } all = {{W::one(p), W::one(p + 8)}};
  return __builtin_bit_cast(Vec16, all);
}

#define MSCCLPP_WINDOW_SCALAR(T, U, Op, ptx, constraint, words)                                                    \
  template <> struct WindowWord<T, Op> {                                                                           \
    static MSCCLPP_DEVICE U one(const char* p) {                                                                   \
      U v;                                                                                                         \
      asm volatile("multimem.ld_reduce.relaxed.sys.global." ptx " %0, [%1];" : constraint(v) : "l"(p) : "memory"); \
      return v;                                                                                                    \
    }                                                                                                              \
    static MSCCLPP_DEVICE Vec16 load(const void* p) { return words<WindowWord, U>(static_cast<const char*>(p)); }  \
  };
MSCCLPP_WINDOW_SCALAR(double, double, kSum, "add.f64", "=d", of_long_words)
MSCCLPP_WINDOW_SCALAR(int64_t, uint64_t, kSum, "add.u64", "=l", of_long_words)
MSCCLPP_WINDOW_SCALAR(uint64_t, uint64_t, kSum, "add.u64", "=l", of_long_words)
MSCCLPP_WINDOW_SCALAR(int32_t, uint32_t, kMin, "min.s32", "=r", of_words)
MSCCLPP_WINDOW_SCALAR(int32_t, uint32_t, kMax, "max.s32", "=r", of_words)
MSCCLPP_WINDOW_SCALAR(uint32_t, uint32_t, kMin, "min.u32", "=r", of_words)
MSCCLPP_WINDOW_SCALAR(uint32_t, uint32_t, kMax, "max.u32", "=r", of_words)
MSCCLPP_WINDOW_SCALAR(int64_t, uint64_t, kMin, "min.s64", "=l", of_long_words)
MSCCLPP_WINDOW_SCALAR(int64_t, uint64_t, kMax, "max.s64", "=l", of_long_words)
MSCCLPP_WINDOW_SCALAR(uint64_t, uint64_t, kMin, "min.u64", "=l", of_long_words)
MSCCLPP_WINDOW_SCALAR(uint64_t, uint64_t, kMax, "max.u64", "=l", of_long_words)

#define MSCCLPP_WINDOW_HALVES(T, Op, ptx)                                                                              \
  template <> struct WindowWord<T, Op> {                                                                               \
    static MSCCLPP_DEVICE Vec16 load(const void* p) {                                                                  \
      Vec16 v;                                                                                                         \
      asm volatile("multimem.ld_reduce.relaxed.sys.global." ptx " {%0,%1,%2,%3}, [%4];"                                \
                   : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");                                  \
      return v;                                                                                                        \
    }                                                                                                                  \
  };
MSCCLPP_WINDOW_HALVES(f16, kMin, "min.v4.f16x2")
MSCCLPP_WINDOW_HALVES(f16, kMax, "max.v4.f16x2")
MSCCLPP_WINDOW_HALVES(bf16, kMin, "min.v4.bf16x2")
MSCCLPP_WINDOW_HALVES(bf16, kMax, "max.v4.bf16x2")

// A packet of 8 bytes to all copies: one access, so data and flag arrive together. One of 16 need not.
MSCCLPP_DEVICE void multimem_packet(char* p, uint32_t payload, uint32_t flag) {
  asm volatile("multimem.st.relaxed.sys.global.v2.f32 [%0], {%1,%2};"
               : : "l"(p), "f"(as_float(payload)), "f"(as_float(flag)) : "memory");
}

}  // namespace detail
}  // namespace mscclpp
#endif  // MSCCLPP_MULTIMEM_WIDE_H_
