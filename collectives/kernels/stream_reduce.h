// All-reduce, reduce and reduce-scatter of stream.h.
#ifndef MSCCLPP_COLLECTIVES_STREAM_REDUCE_H_
#define MSCCLPP_COLLECTIVES_STREAM_REDUCE_H_

#include "ll_reduce.h"
#include "stream.h"

namespace mscclpp {
namespace collectives {

// Rows that a thread sums together. Code for any operation is long, and speed matters less there.
template <ReduceOp Op>
constexpr uint32_t summed_at_once() { return Op == mscclpp::detail::kAnyOp ? 1 : kRowsAtOnce; }

// stream_sum sums rows from r on of a share: own, and the data that the peers send in part 0.
template <class C, class T, ReduceOp Op, uint32_t kAtOnce, class Scalars>
MSCCLPP_DEVICE bool stream_sum(const Stream<C>& s, typename C::Data (&own)[kAtOnce], uint32_t r, uint32_t units, const Scalars& scalars) {
  using Data = typename C::Data;
  Sum<T, Op, Data> sum[kAtOnce];
  MSCCLPP_ROLLED
  for (uint32_t rank = 0; rank < s.a.ranks; ++rank) {
    Data d[kAtOnce];
    if (rank != s.a.rank && !s.receive(d, rank, 0, r, units)) return false;
    MSCCLPP_UNROLL
    for (uint32_t i = 0; i < kAtOnce; ++i) sum[i].add(rank, rank == s.a.rank ? own[i] : d[i], scalars);
  }
  MSCCLPP_UNROLL
  for (uint32_t i = 0; i < kAtOnce; ++i) own[i] = sum[i].result(scalars);
  return true;
}

// Every rank sends each rank its share, sums its own, and sends the result to all, or to the
// root. The root sums nothing itself, so its link carries the results and nothing else, and
// no link carries more than the message.
//
// Results for all need the links in both directions, as the shares do, so all shares go first. Results
// for the root alone need links that are idle otherwise, so rows are summed while the next are in flight.
template <class C, class T, ReduceOp Op, bool kAll>
MSCCLPP_DEVICE void stream_reduce(const LLArgs& a) {
  constexpr uint32_t kAtOnce = summed_at_once<Op>() < 2 || kAll ? summed_at_once<Op>() : 2;
  using Data = typename C::Data;
  const char* in = static_cast<const char*>(a.input);
  char* out = static_cast<char*>(a.output);
  const uint32_t root = a.signature.root;
  const bool wants = kAll || a.rank == root;
  const Shares<C> shares(a, a.count * sizeof(T), kAll ? kMaxRanks : without_root(a));
  const bool whole = C::aligned(in), whole_out = C::aligned(out);
  const auto scalars = scalars_of<T>(a);
  Stream<C> s(a, shares.most, 2);
  if (!s.begin()) return;
  const uint32_t own = shares.units(a.rank);
  const auto send = [&](uint32_t p, uint32_t r) MSCCLPP_LAMBDA {
    Data d[kAtOnce];
    s.load(d, r, shares.units(p), in + shares.at(p), shares.bytes(p), whole);
    s.send(d, p, 0, r, shares.units(p));
    return true;
  };
  const auto sum = [&](uint32_t r) MSCCLPP_LAMBDA {
    Data d[kAtOnce];
    s.load(d, r, own, in + shares.at(a.rank), shares.bytes(a.rank), whole);
    if (!stream_sum<C, T, Op>(s, d, r, own, scalars)) return false;
    s.peers([&](uint32_t p) MSCCLPP_LAMBDA { return s.send(d, p, 1, r, kAll || p == root ? own : 0), true; });
    if (wants) s.save(d, r, own, out + shares.at(a.rank), shares.bytes(a.rank), whole_out);
    return true;
  };
  MSCCLPP_ROLLED
  for (uint32_t k = 0; k < s.pieces(); ++k) {
    if (!s.open(k)) return;
    if (kAll) {
      s.peers([&](uint32_t p) MSCCLPP_LAMBDA { return s.template rows<kAtOnce>([&](uint32_t r) MSCCLPP_LAMBDA { return send(p, r); }); });
      if (!s.template rows<kAtOnce>(sum)) return;
    } else {
      const auto send_all = [&](uint32_t r) MSCCLPP_LAMBDA { s.peers([&](uint32_t p) MSCCLPP_LAMBDA { return send(p, r); }); };
      if (!s.template rows_behind<kAtOnce>(send_all, sum)) return;
    }
    s.sent(k);
    if (!s.template collect<kAtOnce>(1, out, whole_out, [&](uint32_t p) MSCCLPP_LAMBDA { return shares.of(p, wants); })) return;
  }
}

template <class C, class T, ReduceOp Op>
MSCCLPP_DEVICE void stream_reducescatter(const LLArgs& a) {
  constexpr uint32_t kAtOnce = summed_at_once<Op>();
  using Data = typename C::Data;
  const char* in = static_cast<const char*>(a.input);
  char* out = static_cast<char*>(a.output);
  const uint64_t bytes = a.count * sizeof(T);
  const bool whole = C::aligned(in) && C::aligned(in + bytes), whole_out = C::aligned(out);
  const uint32_t units = C::units(bytes);
  const auto scalars = scalars_of<T>(a);
  Stream<C> s(a, units, 1);
  if (!s.begin()) return;
  MSCCLPP_ROLLED
  for (uint32_t k = 0; k < s.pieces(); ++k) {
    if (!s.open(k)) return;
    s.peers([&](uint32_t p) MSCCLPP_LAMBDA {
      return s.template rows<kAtOnce>([&](uint32_t r) MSCCLPP_LAMBDA {
        Data d[kAtOnce];
        s.load(d, r, units, in + p * bytes, bytes, whole);
        s.send(d, p, 0, r, units);
        return true;
      });
    });
    s.sent(k);
    const bool ok = s.template rows<kAtOnce>([&](uint32_t r) MSCCLPP_LAMBDA {
      Data d[kAtOnce];
      s.load(d, r, units, in + a.rank * bytes, bytes, whole);
      if (!stream_sum<C, T, Op>(s, d, r, units, scalars)) return false;
      s.save(d, r, units, out, bytes, whole_out);
      return true;
    });
    if (!ok) return;
  }
}

// Sums of the types that machine learning uses have code of their own.
#define MSCCLPP_STREAM(function, ...)                                               \
  if (args.op == kSum && Frequent<Element>::kYes) {                                 \
    function<LineCarrier, Element, kSum, ##__VA_ARGS__>(args);                      \
  } else {                                                                          \
    function<LineCarrier, Element, mscclpp::detail::kAnyOp, ##__VA_ARGS__>(args);   \
  }

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_STREAM_REDUCE_H_
