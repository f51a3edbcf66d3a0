// Reduce along a chain, which ends with the root.
#ifndef MSCCLPP_COLLECTIVES_CHAIN_REDUCE_H_
#define MSCCLPP_COLLECTIVES_CHAIN_REDUCE_H_

#include "chain.h"
#include "stream_reduce.h"
#include "unrolled.h"

namespace mscclpp {
namespace collectives {

MSCCLPP_DEVICE Chain chain_to(uint32_t rank, uint32_t ranks, uint32_t root) { return Chain(rank, ranks, root + 1 == ranks ? 0 : root + 1); }

// Only the last rank divides an average.
MSCCLPP_DEVICE ReduceOp op_within(uint32_t op, const Chain& chain) { return op == kAvg && !chain.last ? kSum : ReduceOp(op); }

template <class C, class T, ReduceOp Op>
MSCCLPP_DEVICE void chain_reduce(const LLArgs& a) {
  constexpr uint32_t kAtOnce = summed_at_once<Op>();
  using Data = typename C::Data;
  const Chain chain = chain_to(a.rank, a.ranks, a.signature.root);
  const mscclpp::detail::Scalars<Accumulator<T>> scalars(reduction(op_within(a.op, chain), a.scale), a.ranks);
  chain_lines<C, kAtOnce>(a, a.count * sizeof(T), chain, true, chain.last, [&](Data (&d)[kAtOnce], const Data (&from)[kAtOnce]) MSCCLPP_LAMBDA {
    MSCCLPP_UNROLL
    for (uint32_t i = 0; i < kAtOnce; ++i) {
      Sum<T, Op, Data> sum;
      sum.begin(from[i]);
      sum.add(1, d[i], scalars);
      d[i] = sum.result(scalars);
    }
  });
}

// sum_pairs adds two inputs at even addresses.
template <class T>
MSCCLPP_DEVICE bool sum_pairs(const Args& a, char* to, const char* first, const char* second, uint64_t bytes) {
#if MSCCLPP_OVERLAPS || MSCCLPP_TARGET_CHECK
  if constexpr (Frequent<T>::kYes) {
    const uint64_t low = reinterpret_cast<uint64_t>(to) | reinterpret_cast<uint64_t>(first) | reinterpret_cast<uint64_t>(second) | bytes;
    if (a.op != kSum || (low & 15) != 0) return false;
    const mscclpp::detail::Scalars<Accumulator<T>> s(reduction(kSum), 2);
    tiles<2>(bytes / 16, 0, 1, [&](uint64_t w, auto each) MSCCLPP_LAMBDA {
      constexpr uint32_t U = decltype(each)::kRanks;
      Vec16 v[U][2];
      MSCCLPP_UNROLL
      for (uint32_t u = 0; u < U; ++u) {
        v[u][0] = load16(first + 16 * (w + u * block_dim()));
        v[u][1] = load16(second + 16 * (w + u * block_dim()));
      }
      MSCCLPP_UNROLL
      for (uint32_t u = 0; u < U; ++u) {
        Sum<T, kSum, Vec16> sum;
        sum.begin(v[u][0]);
        sum.add(1, v[u][1], s);
        store16(to + 16 * (w + u * block_dim()), sum.result(s));
      }
    });
    return true;
  }
#endif
  (void)a, (void)to, (void)first, (void)second, (void)bytes;
  return false;
}

template <class T>
MSCCLPP_DEVICE void reduce_chain(const Args& a) {
  const Common& c = a.common;
  const Chain chain = chain_to(c.rank, c.ranks, a.root);
  Reduction r = reduction_of(a);
  r.op = op_within(a.op, chain);
  r.divisor = c.ranks;
  r.partial = chain.first ? 0 : 1;
  chain_chunks(a, chain, [&](char* to, const char* from, uint64_t at, uint64_t bytes) MSCCLPP_LAMBDA {
    const char* const own = static_cast<const char*>(a.input) + at;
    if (chain.last) to = static_cast<char*>(a.output) + at;
    if (chain.first && r.op != kPreMulSum) return copy(to, own, bytes, thread_id(), block_dim());
    if (!chain.first && sum_pairs<T>(a, to, from, own, bytes)) return;
    reduce_step<T>(to, [&](uint32_t i) MSCCLPP_LAMBDA { return i == 0 && !chain.first ? from : own; }, chain.first ? 1 : 2, bytes / sizeof(T), r);
  });
}

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_CHAIN_REDUCE_H_
