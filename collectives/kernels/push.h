// All-reduce and reduce-scatter by stores alone: every rank stores its part of each
// slice into the scratch of the one who sums that slice, chunk by chunk, and an
// all-reduce stores the sums into the outputs of all. Loads from a link wait for it, and
// links that carry loads and stores at once carry less of both.
//
// Chunks go through the stages of links.h, with the counters of those, but lie with
// the receiver: slots of one lane are divided among all lanes and ranks. Nobody reads
// a stage, or brings anything into one, for the launch before: all ranks have met in this one.
#ifndef MSCCLPP_COLLECTIVES_PUSH_H_
#define MSCCLPP_COLLECTIVES_PUSH_H_

#include "zerocopy.h"

namespace mscclpp {
namespace collectives {

// Inbox says where what ranks bring each other lies. A chunk has a.chunk bytes at most.
struct Inbox {
  const Args& a;
  const Stage& stage;
  uint32_t lane;

  MSCCLPP_DEVICE char* slot(uint32_t to, uint32_t from, uint64_t i) const {
    const Common& c = a.common;
    const uint64_t number = (uint64_t(lane) * c.ranks + from) * c.stage_slots + stage.number(from, i) % c.stage_slots;
    return reinterpret_cast<char*>(c.scratch[to]) + c.stages + number * a.chunk;
  }
};

// Where the slices of ranks begin, and the part of one that is chunk k of a lane.
template <class T>
struct Cutting {
  const Args& a;
  uint64_t total;  // elements of all
  uint64_t each;   // of a slice
  uint32_t lane;

  MSCCLPP_DEVICE uint64_t chunk() const { return a.chunk / sizeof(T); }
  MSCCLPP_DEVICE uint64_t size() const { return Steps{smaller(each, total), chunk(), lane, a.common.lanes}.size(); }
  MSCCLPP_DEVICE Slice of(uint32_t rank, uint64_t k) const {
    const uint64_t begin = smaller(total, each * rank), count = smaller(total - begin, each);
    const uint64_t at = smaller(count, (k * a.common.lanes + lane) * chunk());
    return {begin + at, smaller(count - at, chunk())};
  }
};

#if MSCCLPP_OVERLAPS || MSCCLPP_TARGET_CHECK
// Bytes of a tile of a block of 512 threads are as many for two, four and eight ranks.
constexpr uint32_t kPushFlight = 8;

template <uint32_t N, class In, class Out>
MSCCLPP_DEVICE void bring_words(uint64_t words, uint32_t rank, In in, Out out) {
  const char* from[N];
  char* to[N];
  MSCCLPP_UNROLL
  for (uint32_t k = 1; k < N; ++k) {
    const uint32_t peer = (rank + k) & (N - 1);
    from[k] = in(peer);
    to[k] = out(peer);
  }
  tiles<kPushFlight / N>(words, 0, 1, [&](uint64_t w, auto rows) MSCCLPP_LAMBDA {
    constexpr uint32_t U = decltype(rows)::kRanks;
    Vec16 v[N][U];
    MSCCLPP_UNROLL
    for (uint32_t k = 1; k < N; ++k) {
      MSCCLPP_UNROLL
      for (uint32_t u = 0; u < U; ++u) v[k][u] = load16(from[k] + 16 * (w + u * block_dim()));
    }
    MSCCLPP_UNROLL
    for (uint32_t k = 1; k < N; ++k) {
      MSCCLPP_UNROLL
      for (uint32_t u = 0; u < U; ++u) store16(to[k] + 16 * (w + u * block_dim()), v[k][u]);
    }
  });
}
#endif

// Whether chunks of all ranks are as many whole words, for which there is faster code.
template <class T>
MSCCLPP_DEVICE uint64_t words_of_all(const Args& a, const Cutting<T>& cut, uint64_t k) {
  const uint64_t bytes = cut.of(0, k).count * sizeof(T);
  uint64_t low = bytes | reinterpret_cast<uint64_t>(a.input) | cut.each * sizeof(T) | a.chunk;
  if (cut.of(a.common.ranks - 1, k).count * sizeof(T) != bytes) low |= 1;
  return (low & 15) == 0 ? bytes / 16 : 0;
}

template <class T>
MSCCLPP_DEVICE void bring(const Args& a, const Cutting<T>& cut, const Inbox& inbox, uint64_t k) {
  const Common& c = a.common;
  const char* input = static_cast<const char*>(a.input);
  const auto in = [&](uint32_t r) MSCCLPP_LAMBDA { return input + cut.of(r, k).first * sizeof(T); };
  const auto out = [&](uint32_t r) MSCCLPP_LAMBDA { return inbox.slot(r, c.rank, k); };
#if MSCCLPP_OVERLAPS || MSCCLPP_TARGET_CHECK
  if (const uint64_t words = words_of_all(a, cut, k)) {
    if (c.ranks == 4) return bring_words<4>(words, c.rank, in, out);
    if (c.ranks == 2) return bring_words<2>(words, c.rank, in, out);
    if (c.ranks == 8) return bring_words<8>(words, c.rank, in, out);
  }
#endif
  MSCCLPP_ROLLED
  for (uint32_t i = 1; i < c.ranks; ++i) {
    const uint32_t peer = (c.rank + i) % c.ranks;
    copy(out(peer), in(peer), cut.of(peer, k).count * sizeof(T), thread_id(), block_dim());
  }
}

// sum_brought sums chunk k of this rank's slice; out(r) is where it belongs at rank r.
template <class T, class Out>
MSCCLPP_DEVICE void sum_brought(const Args& a, const Cutting<T>& cut, const Inbox& inbox, uint64_t k, bool all, Out out) {
  const Common& c = a.common;
  const Slice own = cut.of(c.rank, k);
  const uint64_t bytes = own.count * sizeof(T);
  const char* input = static_cast<const char*>(a.input) + own.first * sizeof(T);
  const auto in = [&](uint32_t r) MSCCLPP_LAMBDA -> const char* { return r == c.rank ? input : inbox.slot(c.rank, r, k); };
#if MSCCLPP_OVERLAPS || MSCCLPP_TARGET_CHECK
  if constexpr (Frequent<T>::kYes) {
    if (a.op == kSum && together(a, bytes | a.chunk, in, out)) {
      const uint64_t words = bytes / 16;
      if (c.ranks == 4) return sum_words<T, 4, kPushFlight>(words, 0, 1, c.rank, all, in, out);
      if (c.ranks == 2) return sum_words<T, 2, kPushFlight>(words, 0, 1, c.rank, all, in, out);
      if (c.ranks == 8) return sum_words<T, 8, kPushFlight>(words, 0, 1, c.rank, all, in, out);
    }
  }
#endif
  reduce_step<T>(out(c.rank), in, c.ranks, own.count, reduction_of(a));
  if (!all) return;
  block_sync();
  MSCCLPP_ROLLED
  for (uint32_t i = 1; i < c.ranks; ++i) copy(out((c.rank + i) % c.ranks), out(c.rank), bytes, thread_id(), block_dim());
}

// While a chunk is on its way the one before is summed.
template <class T, class Out>
MSCCLPP_DEVICE void push_and_sum(const Args& a, const Cutting<T>& cut, bool all, Out out) {
  Stage stage(a.common, cut.lane);
  const Inbox inbox{a, stage, cut.lane};
  const uint64_t n = cut.size();
  MSCCLPP_ROLLED
  for (uint64_t k = 0; k <= n; ++k) {
    if (k < n) {
      if (!stage.room(k)) return;
      bring(a, cut, inbox, k);
      stage.publish(k);
    }
    if (k == 0) continue;
    if (!stage.wait_all(k - 1)) return;
    sum_brought(a, cut, inbox, k - 1, all, [&](uint32_t r) MSCCLPP_LAMBDA { return out(r, k - 1); });
    stage.release_all(k - 1);
  }
  stage.close(n);
}

template <class T>
MSCCLPP_DEVICE void allreduce_push(const Args& a) {
  const Common& c = a.common;
  const uint64_t each = slice_of(a.count, 0, c.ranks, sizeof(T)).count;
  between(a, [&](uint32_t lane) MSCCLPP_LAMBDA {
    const Cutting<T> cut{a, a.count, each, lane};
    push_and_sum(a, cut, true, [&](uint32_t r, uint64_t k) MSCCLPP_LAMBDA { return output_of(a, lane, r) + cut.of(c.rank, k).first * sizeof(T); });
  });
}

template <class T>
MSCCLPP_DEVICE void reducescatter_push(const Args& a) {
  const Common& c = a.common;
  between(a, [&](uint32_t lane) MSCCLPP_LAMBDA {
    const Cutting<T> cut{a, a.count * c.ranks, a.count, lane};
    push_and_sum(a, cut, false, [&](uint32_t, uint64_t k) MSCCLPP_LAMBDA {
      return static_cast<char*>(a.output) + (cut.of(c.rank, k).first - c.rank * a.count) * sizeof(T);
    });
  });
}

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_PUSH_H_
