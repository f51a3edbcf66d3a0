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
    store_element<T>(to + e * sizeof(T), reduce_element<T, Op>(inputs, n, e * sizeof(T), s));
  }
}

}  // namespace detail
}  // namespace mscclpp
#endif  // MSCCLPP_REDUCE_SIMT_H_
