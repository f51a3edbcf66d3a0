// Reductions over any number of inputs in a fixed order: out = in[0] op in[1] op …,
// from left to right, so that results are the same on every rank and in every run.
//
// 16- and 8-bit floats are accumulated in float and rounded once. Integers wrap.
// min and max ignore a NaN unless both are (as fmin and fmax do), and keep the
// earlier of two equal values. docs/numerics.md has the rules for users.
#ifndef MSCCLPP_REDUCE_H_
#define MSCCLPP_REDUCE_H_

#include "memory.h"
#include "packet.h"
#include "types.h"

namespace mscclpp {

// The operation on the inputs, and its parameters.
struct Reduction {
  ReduceOp op;
  double scale;      // kPreMulSum: every input is multiplied by it first; of integers, an integer that their type holds
  uint32_t divisor;  // kAvg: the sum is divided by it; 0: by the number of inputs
  uint32_t partial;  // kPreMulSum: that many first inputs are sums already and not multiplied
};

MSCCLPP_DEVICE Reduction reduction(ReduceOp op, double scale = 1, uint32_t divisor = 0, uint32_t partial = 0) {
  return Reduction{op, scale, divisor, partial};
}

namespace detail {

// Stands for the operation in a template where it is known at run time only.
constexpr ReduceOp kAnyOp = kReduceOps;

// Op, or the operation of the call.
template <ReduceOp Op>
MSCCLPP_DEVICE constexpr bool is(ReduceOp what, ReduceOp actual) {
  return Op == kAnyOp ? actual == what : Op == what;
}

template <ReduceOp Op, class A>
MSCCLPP_DEVICE A combine(A a, A b, ReduceOp actual) {
  if (is<Op>(kProd, actual)) return static_cast<A>(a * b);
  if (is<Op>(kMin, actual)) return (b < a || a != a) ? b : a;
  if (is<Op>(kMax, actual)) return (a < b || a != a) ? b : a;
  return static_cast<A>(a + b);  // kSum, kAvg, kPreMulSum
}

// Unsigned arithmetic wraps; signed would be undefined.
template <class T> struct Wrapping { using Type = T; };
template <> struct Wrapping<int8_t> { using Type = uint8_t; };
template <> struct Wrapping<int32_t> { using Type = uint32_t; };
template <> struct Wrapping<int64_t> { using Type = uint64_t; };

template <ReduceOp Op, class A>
MSCCLPP_DEVICE A apply(A a, A b, ReduceOp actual = Op) {
  if (is<Op>(kMin, actual) || is<Op>(kMax, actual)) return combine<Op, A>(a, b, actual);
  using U = typename Wrapping<A>::Type;
  return static_cast<A>(combine<Op, U>(static_cast<U>(a), static_cast<U>(b), actual));
}

template <class A>
MSCCLPP_DEVICE A multiply(A a, A by) {
  using U = typename Wrapping<A>::Type;
  return static_cast<A>(static_cast<U>(a) * static_cast<U>(by));
}

// The type of divisors. Eight bits are too few, as there may be more inputs than their largest number.
template <class A> struct DivisorOf { using Type = A; };
template <> struct DivisorOf<int8_t> { using Type = int32_t; };
template <> struct DivisorOf<uint8_t> { using Type = uint32_t; };
template <class A> using Divisor = typename DivisorOf<A>::Type;

template <class A> MSCCLPP_DEVICE A divide(A a, Divisor<A> by) { return static_cast<A>(a / by); }

// The scalars of a reduction, in the type it is accumulated in. The host refuses a scale that this type does not hold.
template <class A>
struct Scalars {
  ReduceOp op;
  A scale;
  Divisor<A> divisor;
  uint32_t partial;
  MSCCLPP_DEVICE Scalars(const Reduction& r, uint32_t inputs)
      : op(r.op),
        scale(static_cast<A>(r.op == kPreMulSum ? r.scale : 1)),
        divisor(static_cast<Divisor<A>>(r.divisor != 0 ? r.divisor : inputs)),
        partial(r.partial) {}
};

// average divides N sums, if that is the operation. On NVIDIA GPUs division takes several times
// as long for zeros, infinities and NaN, and compilers divide in any case if they may, to drop
// the quotient afterwards: the asm keeps them from that. AMD GPUs have no such operands.
template <ReduceOp Op, uint32_t N, class A>
MSCCLPP_DEVICE void average(A* sums, const Scalars<A>& s) {
#if MSCCLPP_TARGET_CUDA
  if (!is<Op>(kAvg, s.op)) return;
  asm volatile("");
#endif
  MSCCLPP_UNROLL
  for (uint32_t k = 0; k < N; ++k) sums[k] = is<Op>(kAvg, s.op) ? divide(sums[k], s.divisor) : sums[k];
}

#if !MSCCLPP_TARGET_CPU
// The same in double, where no operand is slow: quotients of two floats are far enough from the
// middle between two floats, or exact, for one correction to round as a division does.
template <ReduceOp Op, uint32_t N>
MSCCLPP_DEVICE void average(float* sums, const Scalars<float>& s) {
  if (!is<Op>(kAvg, s.op)) return;
  double by = static_cast<double>(s.divisor);
#if MSCCLPP_TARGET_CUDA
  asm volatile("" : "+d"(by));
#endif
  const double reciprocal = 1.0 / by;
  MSCCLPP_UNROLL
  for (uint32_t k = 0; k < N; ++k) {
    const double sum = static_cast<double>(sums[k]), quotient = sum * reciprocal, rest = __builtin_fma(-quotient, by, sum);
    const bool inexact = rest < 0 || rest > 0;  // neither zero nor NaN, as that of an infinity
    sums[k] = static_cast<float>(inexact ? __builtin_fma(rest, reciprocal, quotient) : quotient);
  }
}
#endif

// Inputs may be an array of pointers or a function of the index.
template <class F>
MSCCLPP_DEVICE auto input_at(const F& f, uint32_t i, int) -> decltype(static_cast<const char*>(f(i))) {
  return static_cast<const char*>(f(i));
}
template <class F>
MSCCLPP_DEVICE auto input_at(const F& f, uint32_t i, long) -> decltype(static_cast<const char*>(f[i])) {
  return static_cast<const char*>(f[i]);
}

}  // namespace detail
}  // namespace mscclpp

#if MSCCLPP_TARGET_CPU
#include "reduce_cpu.h"
#else
#include "reduce_simt.h"
#endif

namespace mscclpp {

// Reduces count elements of n inputs into out, which may be one of the inputs.
// inputs is an array of pointers or a function from the input's number to its
// address, in the order of reduction. On GPUs pass a function, or an array in
// global or parameter memory: an array of the thread's own would be local memory.
// Any alignment.
template <class T, class Inputs>
MSCCLPP_DEVICE void reduce_n(void* out, const Inputs& inputs, uint32_t n, size_t count, const Reduction& r, uint32_t tid,
                             uint32_t nthreads) {
#if MSCCLPP_TARGET_CHECK
  check::point();
#endif
#if !MSCCLPP_TARGET_CPU
  // Copies of the loop: sums, which have to be fast, min and max of types whose pairs are compared, and all else.
  if (r.op == kSum) {
    detail::reduce_op<T, kSum>(out, inputs, n, count, r, tid, nthreads);
  } else if (detail::Pairs<T>::kCompared && (r.op == kMin || r.op == kMax)) {
    detail::reduce_op<T, detail::Pairs<T>::kCompared ? detail::kMinOrMax : detail::kAnyOp>(out, inputs, n, count, r, tid, nthreads);
  } else {
    detail::reduce_op<T, detail::kAnyOp>(out, inputs, n, count, r, tid, nthreads);
  }
#else
  switch (r.op) {
    case kSum: detail::reduce_op<T, kSum>(out, inputs, n, count, r, tid, nthreads); break;
    case kProd: detail::reduce_op<T, kProd>(out, inputs, n, count, r, tid, nthreads); break;
    case kMin: detail::reduce_op<T, kMin>(out, inputs, n, count, r, tid, nthreads); break;
    case kMax: detail::reduce_op<T, kMax>(out, inputs, n, count, r, tid, nthreads); break;
    case kAvg: detail::reduce_op<T, kAvg>(out, inputs, n, count, r, tid, nthreads); break;
    default: detail::reduce_op<T, kPreMulSum>(out, inputs, n, count, r, tid, nthreads); break;
  }
  MSCCLPP_DID(kRecordReduce, count * sizeof(T))
#endif
}

// scale: for kPreMulSum the factor; for kAvg the divisor, 0 for n.
template <class T, class Inputs>
MSCCLPP_DEVICE void reduce_n(void* out, const Inputs& inputs, uint32_t n, size_t count, ReduceOp op, double scale, uint32_t tid,
                             uint32_t nthreads) {
  reduce_n<T>(out, inputs, n, count, reduction(op, scale, op == kAvg ? static_cast<uint32_t>(scale) : 0), tid, nthreads);
}

}  // namespace mscclpp
#endif  // MSCCLPP_REDUCE_H_
