// All-reduce, reduce-scatter and reduce of ll.h.
#ifndef MSCCLPP_COLLECTIVES_LL_REDUCE_H_
#define MSCCLPP_COLLECTIVES_LL_REDUCE_H_

#include "ll.h"

namespace mscclpp {
namespace collectives {

// The carrier of words for elements of type T.
template <class T>
using Words = WordCarrier<(sizeof(T) > 4 ? 2 : 1)>;

// Sum takes the units of all ranks in order.
template <class T, ReduceOp Op, class Data>
struct Sum {
  using A = Accumulator<T>;
  static constexpr uint32_t kElements = sizeof(Data) / sizeof(T);
  struct Elements { T e[kElements]; };
  A acc[kElements];

  MSCCLPP_DEVICE void add(uint32_t rank, const Data& d, const mscclpp::detail::Scalars<A>& s) {
    const Elements v = __builtin_bit_cast(Elements, d);
    MSCCLPP_UNROLL
    for (uint32_t k = 0; k < kElements; ++k) {
      A x = widen_element(v.e[k]);
      if (mscclpp::detail::is<Op>(kPreMulSum, s.op)) x = mscclpp::detail::multiply(x, s.scale);
      acc[k] = rank == 0 ? x : mscclpp::detail::apply<Op, A>(acc[k], x, s.op);
    }
  }
  // begin takes the sum of others, which add goes on with as rank 1.
  MSCCLPP_DEVICE void begin(const Data& d) {
    const Elements v = __builtin_bit_cast(Elements, d);
    MSCCLPP_UNROLL
    for (uint32_t k = 0; k < kElements; ++k) acc[k] = widen_element(v.e[k]);
  }
  MSCCLPP_DEVICE Data result(const mscclpp::detail::Scalars<A>& s) {
    mscclpp::detail::average<Op, kElements>(acc, s);
    Elements v;
    MSCCLPP_UNROLL
    for (uint32_t k = 0; k < kElements; ++k) v.e[k] = narrow_element<T>(acc[k]);
    return __builtin_bit_cast(Data, v);
  }
};

template <class T>
MSCCLPP_DEVICE mscclpp::detail::Scalars<Accumulator<T>> scalars_of(const LLArgs& a) {
  return mscclpp::detail::Scalars<Accumulator<T>>(reduction(ReduceOp(a.op), a.scale), a.ranks);
}

// Every rank sends everything to every other rank, and reduces all of it.
template <class C, class T, ReduceOp Op, uint32_t N>
MSCCLPP_DEVICE void ll_allreduce(const LLArgs& a, uint64_t epoch) {
  using Data = typename C::Data;
  const char* in = static_cast<const char*>(a.input);
  char* out = static_cast<char*>(a.output);
  const uint64_t bytes = a.count * sizeof(T);
  const bool whole = C::aligned(in), whole_out = C::aligned(out);
  const uint32_t units = C::units(bytes), first = global_thread(), step = global_threads();
  LLLaunch<C, N> ll(a, epoch);
  const Data mine = ll.first(first < units, in, first, bytes, whole);
  if (units == 0 || !ll.ready()) return;
  MSCCLPP_ROLLED
  for (uint32_t u = first; u < units; u += step) ll.send_all(u, u == first ? mine : C::load(in, u, bytes, whole));
  ll.sent();
  const auto s = scalars_of<T>(a);
  MSCCLPP_ROLLED
  for (uint32_t u = first; u < C::rounded(units); u += step) {
    const bool active = u < units;
    const Data own = u == first || !active ? mine : C::load(in, u, bytes, whole);
    Sum<T, Op, Data> sum;
    if (!ll.each(u, own, [&](uint32_t) MSCCLPP_LAMBDA { return active; },
                   [&](uint32_t r, const Data& d) MSCCLPP_LAMBDA { sum.add(r, d, s); })) return;
    ll.met();
    if (active) C::save(out, u, bytes, whole_out, sum.result(s));
  }
}

// Every rank sends each rank its slice, reduces its own and sends the result to all. A slot holds
// contributions, and behind them results.
template <class C, class T, ReduceOp Op, uint32_t N>
MSCCLPP_DEVICE void ll_allreduce_twoshot(const LLArgs& a, uint64_t epoch) {
  using Data = typename C::Data;
  const char* in = static_cast<const char*>(a.input);
  char* out = static_cast<char*>(a.output);
  const uint64_t bytes = a.count * sizeof(T);
  const bool whole = C::aligned(in), whole_out = C::aligned(out);
  const uint32_t units = C::units(bytes), first = global_thread(), step = global_threads();
  LLLaunch<C, N> ll(a, epoch);
  const uint32_t n = ll.ranks(), groups = units / C::kGroup, per = (groups + n - 1) / n * C::kGroup;  // units of a slice
  const bool some = first < per && a.rank * per + first < units;
  const Data mine = ll.first(some, in, a.rank * per + first, bytes, whole);
  if (units == 0) return;
  if (!ll.scatter_first(first, [&](uint32_t p) MSCCLPP_LAMBDA { return first < per && p * per + first < units; },
                          [&](uint32_t p) MSCCLPP_LAMBDA { return C::load(in, p * per + first, bytes, whole); })) return;
  MSCCLPP_ROLLED
  for (uint32_t u = first + step; u < per; u += step) {
    ll.peers([&](uint32_t p) MSCCLPP_LAMBDA {
      const uint32_t there = p * per + u;
      if (there < units) ll.send(p, u, C::load(in, there, bytes, whole));
    });
  }
  const auto s = scalars_of<T>(a);
  MSCCLPP_ROLLED
  for (uint32_t u = first; u < C::rounded(per); u += step) {
    const uint32_t here = a.rank * per + u;
    const bool active = u < per && here < units;
    const Data own = u == first || !active ? mine : C::load(in, here, bytes, whole);
    Sum<T, Op, Data> sum;
    if (!ll.each(u, own, [&](uint32_t) MSCCLPP_LAMBDA { return active; },
                   [&](uint32_t r, const Data& d) MSCCLPP_LAMBDA { sum.add(r, d, s); })) return;
    ll.met();
    if (!active) continue;
    const Data result = sum.result(s);
    ll.send_all(per + u, result);
    C::save(out, here, bytes, whole_out, result);
  }
  ll.sent();
  MSCCLPP_ROLLED
  for (uint32_t u = first; u < C::rounded(per); u += step) {
    const auto active = [&](uint32_t r) MSCCLPP_LAMBDA { return u < per && r * per + u < units; };
    if (!ll.each(per + u, mine, active, [&](uint32_t r, const Data& d) MSCCLPP_LAMBDA {
          if (r != a.rank && active(r)) C::save(out, r * per + u, bytes, whole_out, d);
        })) return;
  }
}

template <class C, class T, ReduceOp Op, uint32_t N>
MSCCLPP_DEVICE void ll_reducescatter(const LLArgs& a, uint64_t epoch) {
  using Data = typename C::Data;
  const char* in = static_cast<const char*>(a.input);
  char* out = static_cast<char*>(a.output);
  const uint64_t bytes = a.count * sizeof(T);
  const bool whole = C::aligned(in) && C::aligned(in + bytes), whole_out = C::aligned(out);
  const uint32_t units = C::units(bytes), first = global_thread(), step = global_threads();
  LLLaunch<C, N> ll(a, epoch);
  const Data mine = ll.first(first < units, in + a.rank * bytes, first, bytes, whole);
  if (units == 0) return;
  if (!ll.scatter_first(first, [&](uint32_t) MSCCLPP_LAMBDA { return first < units; },
                          [&](uint32_t p) MSCCLPP_LAMBDA { return C::load(in + p * bytes, first, bytes, whole); })) return;
  MSCCLPP_ROLLED
  for (uint32_t u = first + step; u < units; u += step) {
    ll.peers([&](uint32_t p) MSCCLPP_LAMBDA { ll.send(p, u, C::load(in + p * bytes, u, bytes, whole)); });
  }
  ll.sent();
  const auto s = scalars_of<T>(a);
  MSCCLPP_ROLLED
  for (uint32_t u = first; u < C::rounded(units); u += step) {
    const bool active = u < units;
    const Data own = u == first || !active ? mine : C::load(in + a.rank * bytes, u, bytes, whole);
    Sum<T, Op, Data> sum;
    if (!ll.each(u, own, [&](uint32_t) MSCCLPP_LAMBDA { return active; },
                   [&](uint32_t r, const Data& d) MSCCLPP_LAMBDA { sum.add(r, d, s); })) return;
    ll.met();
    if (active) C::save(out, u, bytes, whole_out, sum.result(s));
  }
}

// All others send to the root. Among each other they only send flags, which packets.h requires.
template <class C, class T, ReduceOp Op, uint32_t N>
MSCCLPP_DEVICE void ll_reduce(const LLArgs& a, uint64_t epoch) {
  using Data = typename C::Data;
  const char* in = static_cast<const char*>(a.input);
  char* out = static_cast<char*>(a.output);
  const uint64_t bytes = a.count * sizeof(T);
  const bool whole = C::aligned(in), whole_out = C::aligned(out);
  const uint32_t units = C::units(bytes), step = global_threads(), root = a.signature.root;
  LLLaunch<C, N> ll(a, epoch);
  ll.await();
  if (units == 0 || !ll.ready()) return;
  if (a.rank != root) {
    MSCCLPP_ROLLED
    for (uint32_t u = global_thread(); u < units; u += step) ll.send(root, u, C::load(in, u, bytes, whole));
  }
  ll.send_flags([&](uint32_t p) MSCCLPP_LAMBDA { return p != root; });
  ll.sent();
  if (a.rank == root) {
    const auto s = scalars_of<T>(a);
    MSCCLPP_ROLLED
    for (uint32_t u = global_thread(); u < C::rounded(units); u += step) {
      const bool active = u < units;
      const Data own = active ? C::load(in, u, bytes, whole) : Data{};
      Sum<T, Op, Data> sum;
      if (!ll.each(u, own, [&](uint32_t) MSCCLPP_LAMBDA { return active; },
                     [&](uint32_t r, const Data& d) MSCCLPP_LAMBDA { sum.add(r, d, s); })) return;
      ll.met();
      if (active) C::save(out, u, bytes, whole_out, sum.result(s));
    }
  } else {
    ll.wait_flags();
  }
}

// The same in two steps, as in all-reduce: every rank sends each worker its part, and the workers send the
// root the sums. The workers are all but the root, whose link has the sums to carry. Of two ranks, the
// root is the worker. The first group of units is always sent, even if it is empty, because every rank
// has to receive something from every other one.
template <class C, class T, ReduceOp Op, uint32_t N>
MSCCLPP_DEVICE void ll_reduce_twoshot(const LLArgs& a, uint64_t epoch) {
  using Data = typename C::Data;
  const char* in = static_cast<const char*>(a.input);
  char* out = static_cast<char*>(a.output);
  const uint64_t bytes = a.count * sizeof(T);
  const bool whole = C::aligned(in), whole_out = C::aligned(out);
  const uint32_t units = C::units(bytes), first = global_thread(), step = global_threads(), root = a.signature.root;
  LLLaunch<C, N> ll(a, epoch);
  const uint32_t n = ll.ranks(), workers = n < 3 ? 1 : n - 1, groups = units / C::kGroup;
  const uint32_t per = (groups + workers - 1) / workers * C::kGroup;
  ll.await();
  if (units == 0 || !ll.ready()) return;
  // The number of a rank among the workers: the root's is beyond them, or of two the first.
  const auto number = [&](uint32_t p) MSCCLPP_LAMBDA { return n < 3 ? uint32_t(p != root) : p > root ? p - root - 1 : p + n - root - 1; };
  const auto has = [&](uint32_t p, uint32_t u) MSCCLPP_LAMBDA { return u < per && number(p) < workers && number(p) * per + u < units; };
  const auto travels = [&](uint32_t p, uint32_t u) MSCCLPP_LAMBDA { return has(p, u) || u < C::kGroup; };
  MSCCLPP_ROLLED
  for (uint32_t u = first; u < per; u += step) {
    ll.peers([&](uint32_t p) MSCCLPP_LAMBDA {
      if (travels(p, u)) ll.send(p, u, has(p, u) ? C::load(in, number(p) * per + u, bytes, whole) : Data{});
    });
  }
  const auto s = scalars_of<T>(a);
  const uint32_t here = number(a.rank) * per;
  MSCCLPP_ROLLED
  for (uint32_t u = first; u < C::rounded(per); u += step) {
    const bool active = has(a.rank, u), waits = u < per && travels(a.rank, u);
    const Data own = active ? C::load(in, here + u, bytes, whole) : Data{};
    Sum<T, Op, Data> sum;
    if (!ll.each(u, own, [&](uint32_t) MSCCLPP_LAMBDA { return waits; },
                   [&](uint32_t r, const Data& d) MSCCLPP_LAMBDA { sum.add(r, d, s); })) return;
    ll.met();
    if (!active) continue;
    if (a.rank == root) {
      C::save(out, here + u, bytes, whole_out, sum.result(s));
    } else {
      ll.send(root, per + u, sum.result(s));
    }
  }
  ll.sent();
  if (a.rank != root || n < 3) return;
  MSCCLPP_ROLLED
  for (uint32_t u = first; u < C::rounded(per); u += step) {
    if (!ll.each(per + u, Data{}, [&](uint32_t r) MSCCLPP_LAMBDA { return has(r, u); }, [&](uint32_t r, const Data& d) MSCCLPP_LAMBDA {
          if (has(r, u)) C::save(out, number(r) * per + u, bytes, whole_out, d);
        })) return;
  }
}

// Sums of the types that machine learning uses are compiled for each number of ranks, everything else
// once.
template <class T> struct Frequent { static constexpr bool kYes = false; };
template <> struct Frequent<float> { static constexpr bool kYes = true; };
template <> struct Frequent<f16> { static constexpr bool kYes = true; };
template <> struct Frequent<bf16> { static constexpr bool kYes = true; };
#if MSCCLPP_TARGET_CHECK
template <> struct Frequent<int8_t> { static constexpr bool kYes = true; };  // for tests
#endif

#define MSCCLPP_LL(function, Carrier, frequent, a)                                                                       \
  uint64_t epoch = 0;                                                                                                      \
  if (!begin<Carrier>(a, epochs_of(a), epoch)) return;                                                                     \
  if (a.op == kSum && Frequent<Element>::kYes && frequent) {                                                               \
    with_ranks<Frequent<Element>::kYes && frequent>(                                                                       \
        a.ranks, [&](auto n) MSCCLPP_LAMBDA { function<Carrier, Element, kSum, decltype(n)::kRanks>(a, epoch); });         \
  } else {                                                                                                                 \
    function<Carrier, Element, mscclpp::detail::kAnyOp, 0>(a, epoch);                                                      \
  }

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_LL_REDUCE_H_
