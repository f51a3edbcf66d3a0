// Reductions for many threads: 16 bytes of every input a thread and step, several
// inputs in flight.
#ifndef MSCCLPP_REDUCE_SIMT_H_
#define MSCCLPP_REDUCE_SIMT_H_

#include "memory.h"
#include "types.h"

namespace mscclpp {
namespace detail {

template <class T>
struct Lanes {
  static constexpr uint32_t kCount = 16 / sizeof(T);
  T lane[kCount];
};

template <class T>
MSCCLPP_DEVICE Lanes<T> load_lanes(const char* p) {
  return __builtin_bit_cast(Lanes<T>, load16(p));
}
template <class T>
MSCCLPP_DEVICE void store_lanes(char* p, const Lanes<T>& v) {
  store16(p, __builtin_bit_cast(Vec16, v));
}

// An element at any address.
template <class T>
MSCCLPP_DEVICE T load_element(const char* p) {
  if ((reinterpret_cast<uintptr_t>(p) & (sizeof(T) - 1)) == 0) return *reinterpret_cast<const T*>(p);
  struct Bytes { uint8_t b[sizeof(T)]; } bytes;
  MSCCLPP_UNROLL
  for (uint32_t i = 0; i < sizeof(T); ++i) bytes.b[i] = static_cast<uint8_t>(p[i]);
  return __builtin_bit_cast(T, bytes);
}
template <class T>
MSCCLPP_DEVICE void store_element(char* p, T v) {
  if ((reinterpret_cast<uintptr_t>(p) & (sizeof(T) - 1)) == 0) {
    *reinterpret_cast<T*>(p) = v;
    return;
  }
  struct Bytes { uint8_t b[sizeof(T)]; };
  const Bytes bytes = __builtin_bit_cast(Bytes, v);
  MSCCLPP_UNROLL
  for (uint32_t i = 0; i < sizeof(T); ++i) p[i] = static_cast<char>(bytes.b[i]);
}

// Two elements of 16 bits in a word, which NVIDIA GPUs compare at once. A
// comparison gives a mask: all bits of each half for which it holds.
template <class T>
struct Pairs {
  static constexpr bool kCompared = false;
  MSCCLPP_DEVICE static uint32_t less(uint32_t, uint32_t) { return 0; }
  MSCCLPP_DEVICE static uint32_t nan(uint32_t) { return 0; }
};
#if MSCCLPP_TARGET_CUDA
template <>
struct Pairs<f16> {
  static constexpr bool kCompared = true;
  MSCCLPP_DEVICE static uint32_t less(uint32_t a, uint32_t b) {
    uint32_t mask;
    asm("set.lt.u32.f16x2 %0, %1, %2;" : "=r"(mask) : "r"(a), "r"(b));
    return mask;
  }
  MSCCLPP_DEVICE static uint32_t nan(uint32_t a) {
    uint32_t mask;
    asm("set.nan.u32.f16x2 %0, %1, %1;" : "=r"(mask) : "r"(a));
    return mask;
  }
};
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
template <>
struct Pairs<bf16> {
  static constexpr bool kCompared = true;
  MSCCLPP_DEVICE static uint32_t less(uint32_t a, uint32_t b) {
    uint32_t mask;
    asm("set.lt.u32.bf16x2 %0, %1, %2;" : "=r"(mask) : "r"(a), "r"(b));
    return mask;
  }
  MSCCLPP_DEVICE static uint32_t nan(uint32_t a) {
    uint32_t mask;
    asm("set.nan.u32.bf16x2 %0, %1, %1;" : "=r"(mask) : "r"(a));
    return mask;
  }
};
#endif
#endif

// Stands for kMin and kMax in a template, where a type's pairs are compared.
constexpr ReduceOp kMinOrMax = static_cast<ReduceOp>(kReduceOps + 1);

// larger is apply<kMax> for pairs.
template <class T>
MSCCLPP_DEVICE uint32_t larger_pair(uint32_t a, uint32_t b) {
  const uint32_t second = Pairs<T>::less(a, b) | Pairs<T>::nan(a);
  return (b & second) | (a & ~second);
}

// Elements that one 16-byte word of each input gives, reduced.
template <class T, ReduceOp Op>
struct LaneSum {
  using A = Accumulator<T>;
  static constexpr uint32_t N = Lanes<T>::kCount;
  static constexpr uint32_t kBatch = N > 8 ? 1 : N > 4 ? 2 : 4;  // inputs in flight, as registers allow
  A acc[N];

  MSCCLPP_DEVICE void first(const Lanes<T>& v, const Scalars<A>& s) {
    MSCCLPP_UNROLL
    for (uint32_t k = 0; k < N; ++k) {
      acc[k] = widen_element(v.lane[k]);
      if (is<Op>(kPreMulSum, s.op) && s.partial == 0) acc[k] = multiply(acc[k], s.scale);
    }
  }
  MSCCLPP_DEVICE void next(const Lanes<T>& v, const Scalars<A>& s, uint32_t input) {
    MSCCLPP_UNROLL
    for (uint32_t k = 0; k < N; ++k) {
      A x = widen_element(v.lane[k]);
      if (is<Op>(kPreMulSum, s.op) && input >= s.partial) x = multiply(x, s.scale);
      acc[k] = apply<Op, A>(acc[k], x, s.op);
    }
  }
  MSCCLPP_DEVICE Lanes<T> last(const Scalars<A>& s) {
    Lanes<T> out;
    average<Op, N>(acc, s);
    MSCCLPP_UNROLL
    for (uint32_t k = 0; k < N; ++k) out.lane[k] = narrow_element<T>(acc[k]);
    return out;
  }
};

// The smallest value is the largest with other signs.
template <class T>
struct LaneSum<T, kMinOrMax> {
  static constexpr uint32_t kBatch = 4;
  struct Words { uint32_t w[4]; };
  Words acc;

  MSCCLPP_DEVICE static uint32_t signs(ReduceOp op) { return op == kMin ? 0x80008000u : 0; }
  MSCCLPP_DEVICE void first(const Lanes<T>& v, const Scalars<Accumulator<T>>& s) {
    acc = __builtin_bit_cast(Words, v);
    MSCCLPP_UNROLL
    for (uint32_t k = 0; k < 4; ++k) acc.w[k] ^= signs(s.op);
  }
  MSCCLPP_DEVICE void next(const Lanes<T>& v, const Scalars<Accumulator<T>>& s, uint32_t) {
    const Words x = __builtin_bit_cast(Words, v);
    MSCCLPP_UNROLL
    for (uint32_t k = 0; k < 4; ++k) acc.w[k] = larger_pair<T>(acc.w[k], x.w[k] ^ signs(s.op));
  }
  MSCCLPP_DEVICE Lanes<T> last(const Scalars<Accumulator<T>>& s) {
    MSCCLPP_UNROLL
    for (uint32_t k = 0; k < 4; ++k) acc.w[k] ^= signs(s.op);
    return __builtin_bit_cast(Lanes<T>, acc);
  }
};

// The operation of elements that no word has, where words have kMinOrMax.
template <ReduceOp Op> constexpr ReduceOp kOfElements = Op == kMinOrMax ? kAnyOp : Op;

template <class T, ReduceOp Op, class Inputs>
MSCCLPP_DEVICE T reduce_element(const Inputs& inputs, uint32_t n, size_t at, const Scalars<Accumulator<T>>& s) {
  using A = Accumulator<T>;
  A acc = widen_element(load_element<T>(input_at(inputs, 0, 0) + at));
  if (is<Op>(kPreMulSum, s.op) && s.partial == 0) acc = multiply(acc, s.scale);
  for (uint32_t i = 1; i < n; ++i) {
    A x = widen_element(load_element<T>(input_at(inputs, i, 0) + at));
    if (is<Op>(kPreMulSum, s.op) && i >= s.partial) x = multiply(x, s.scale);
    acc = apply<Op, A>(acc, x, s.op);
  }
  average<Op, 1>(&acc, s);
  return narrow_element<T>(acc);
}

template <class T, ReduceOp Op, class Inputs>
MSCCLPP_DEVICE void reduce_op(void* out, const Inputs& inputs, uint32_t n, size_t count, const Reduction& r, uint32_t tid,
                              uint32_t nthreads) {
  using A = Accumulator<T>;
  if (n == 0) return;
  const Scalars<A> s(r, n);
  char* to = static_cast<char*>(out);
  uintptr_t low = reinterpret_cast<uintptr_t>(to);
  for (uint32_t i = 0; i < n; ++i) low |= reinterpret_cast<uintptr_t>(input_at(inputs, i, 0));
  size_t words = 0;
  if ((low & 15) == 0) {
    words = count / Lanes<T>::kCount;
    for (size_t w = tid; w < words; w += nthreads) {
      const size_t at = w * 16;
      LaneSum<T, Op> sum;
      sum.first(load_lanes<T>(input_at(inputs, 0, 0) + at), s);
      uint32_t i = 1;
      constexpr uint32_t kBatch = LaneSum<T, Op>::kBatch;
      for (; i + kBatch <= n; i += kBatch) {
        Lanes<T> v[kBatch];
        MSCCLPP_UNROLL
        for (uint32_t k = 0; k < kBatch; ++k) v[k] = load_lanes<T>(input_at(inputs, i + k, 0) + at);
        MSCCLPP_UNROLL
        for (uint32_t k = 0; k < kBatch; ++k) sum.next(v[k], s, i + k);
      }
      for (; i < n; ++i) sum.next(load_lanes<T>(input_at(inputs, i, 0) + at), s, i);
      store_lanes<T>(to + at, sum.last(s));
    }
  }
  for (size_t e = words * Lanes<T>::kCount + tid; e < count; e += nthreads) {
    store_element<T>(to + e * sizeof(T), reduce_element<T, kOfElements<Op>>(inputs, n, e * sizeof(T), s));
  }
}

}  // namespace detail
}  // namespace mscclpp
#endif  // MSCCLPP_REDUCE_SIMT_H_
