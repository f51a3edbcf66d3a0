// Reductions for one thread of a CPU: plain loops that compilers vectorize, in
// pieces that stay in the first-level cache.
#ifndef MSCCLPP_REDUCE_CPU_H_
#define MSCCLPP_REDUCE_CPU_H_

#include <string.h>

#include "types.h"

namespace mscclpp {
namespace detail {

// Elements at any address, and of memory that other types may name.
template <class T>
struct Unaligned {
  typedef T Type __attribute__((aligned(1), may_alias));
};

// Elements of one piece. Its accumulators take at most 8 KiB.
constexpr size_t kPiece = 1024;
constexpr uint32_t kMaxPointers = 128;  // inputs whose addresses are computed once

// How elements of T become accumulators and back, one at a time.
template <class T>
struct Codec {
  using A = Accumulator<T>;
  typedef typename Unaligned<T>::Type U;
  static A load(const U* p) { return widen_element(static_cast<T>(*p)); }
  static void store(U* p, A v) { *p = narrow_element<T>(v); }
};
template <class T, class Bits>
struct BitsCodec {
  typedef typename Unaligned<Bits>::Type U;
  static float load(const U* p) { return to_float(T{static_cast<Bits>(*p)}); }
  static void store(U* p, float v) { *p = from_float<T>(v).bits; }
};
template <> struct Codec<f16> : BitsCodec<f16, uint16_t> {};
template <> struct Codec<bf16> : BitsCodec<bf16, uint16_t> {};
template <> struct Codec<e4m3> : BitsCodec<e4m3, uint8_t> {};
template <> struct Codec<e5m2> : BitsCodec<e5m2, uint8_t> {};
template <> struct Codec<e4m3b15> : BitsCodec<e4m3b15, uint8_t> {};

// The four loops. a may be b or out: element i depends on element i alone.
template <class T, ReduceOp Op>
struct Loops {
  using A = Accumulator<T>;
  using C = Codec<T>;
  typedef typename C::U U;

  __attribute__((noinline)) static void pair(U* out, const U* a, const U* b, size_t n) {
    MSCCLPP_INDEPENDENT
    for (size_t i = 0; i < n; ++i) C::store(out + i, apply<Op, A>(C::load(a + i), C::load(b + i)));
  }
  __attribute__((noinline)) static void first(A* __restrict acc, const U* __restrict a, size_t n, A scale, bool scaled) {
    if (Op == kPreMulSum && scaled) {
      MSCCLPP_INDEPENDENT
      for (size_t i = 0; i < n; ++i) acc[i] = multiply(C::load(a + i), scale);
      return;
    }
    MSCCLPP_INDEPENDENT
    for (size_t i = 0; i < n; ++i) acc[i] = C::load(a + i);
  }
  __attribute__((noinline)) static void next(A* __restrict acc, const U* __restrict a, size_t n, A scale, bool scaled) {
    if (Op == kPreMulSum && scaled) {
      MSCCLPP_INDEPENDENT
      for (size_t i = 0; i < n; ++i) acc[i] = apply<Op, A>(acc[i], multiply(C::load(a + i), scale));
      return;
    }
    MSCCLPP_INDEPENDENT
    for (size_t i = 0; i < n; ++i) acc[i] = apply<Op, A>(acc[i], C::load(a + i));
  }
  __attribute__((noinline)) static void last(U* __restrict out, const A* __restrict acc, size_t n, Divisor<A> divisor) {
    if (Op == kAvg) {
      MSCCLPP_INDEPENDENT
      for (size_t i = 0; i < n; ++i) C::store(out + i, divide(acc[i], divisor));
      return;
    }
    MSCCLPP_INDEPENDENT
    for (size_t i = 0; i < n; ++i) C::store(out + i, acc[i]);
  }
};

#if defined(__AVX2__) && defined(__F16C__)
}  // namespace detail
}  // namespace mscclpp
#include "reduce_avx2.h"
namespace mscclpp {
namespace detail {
#endif

template <class T, ReduceOp Op>
__attribute__((noinline)) void reduce_pieces(void* out, const char* const* inputs, uint32_t n, size_t count, const Reduction& r) {
  using L = Loops<T, Op>;
  using A = typename L::A;
  typedef typename L::U U;
  const Scalars<A> s(r, n);
  U* to = static_cast<U*>(out);
  if (n == 2 && Op != kAvg && Op != kPreMulSum) {
    L::pair(to, reinterpret_cast<const U*>(inputs[0]), reinterpret_cast<const U*>(inputs[1]), count);
    return;
  }
  alignas(64) A acc[kPiece];
  for (size_t done = 0; done < count; done += kPiece) {
    const size_t m = count - done < kPiece ? count - done : kPiece;
    L::first(acc, reinterpret_cast<const U*>(inputs[0]) + done, m, s.scale, s.partial == 0);
    for (uint32_t i = 1; i < n; ++i) L::next(acc, reinterpret_cast<const U*>(inputs[i]) + done, m, s.scale, i >= s.partial);
    L::last(to + done, acc, m, s.divisor);
  }
}

// Threads, if there are several, take consecutive pieces.
template <class T, ReduceOp Op, class Inputs>
inline void reduce_op(void* out, const Inputs& inputs, uint32_t n, size_t count, const Reduction& r, uint32_t tid, uint32_t nthreads) {
  if (n == 0) return;
  size_t begin = 0;
  if (nthreads > 1) {
    const size_t piece = (count / nthreads + 63) & ~static_cast<size_t>(63);
    begin = piece * tid < count ? piece * tid : count;
    count = tid + 1 == nthreads || count - begin < piece ? count - begin : piece;
  }
  if (count == 0) return;
  char* to = static_cast<char*>(out) + begin * sizeof(T);
  const char* p[kMaxPointers];
  uint32_t ready = n < kMaxPointers ? n : kMaxPointers;
  for (uint32_t i = 0; i < ready; ++i) p[i] = input_at(inputs, i, 0) + begin * sizeof(T);
  Reduction part = r;
  if (part.divisor == 0) part.divisor = n;
  if (n <= kMaxPointers) {
    reduce_pieces<T, Op>(to, p, n, count, part);
    return;
  }
  // More inputs than pointers: element by element, still in order.
  using A = Accumulator<T>;
  using C = Codec<T>;
  typedef typename C::U U;
  const Scalars<A> s(part, n);
  for (size_t e = 0; e < count; ++e) {
    A acc = A();
    for (uint32_t i = 0; i < n; ++i) {
      A x = C::load(reinterpret_cast<const U*>(input_at(inputs, i, 0) + begin * sizeof(T)) + e);
      if (Op == kPreMulSum && i >= s.partial) x = multiply(x, s.scale);
      acc = i == 0 ? x : apply<Op, A>(acc, x);
    }
    C::store(reinterpret_cast<U*>(to) + e, Op == kAvg ? divide(acc, s.divisor) : acc);
  }
}

}  // namespace detail
}  // namespace mscclpp
#endif  // MSCCLPP_REDUCE_CPU_H_
