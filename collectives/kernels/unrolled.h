// Sums and copies between registered buffers for the most frequent cases: many loads
// of 16 bytes in flight in each thread, and numbers of ranks that the compiler knows.
#ifndef MSCCLPP_COLLECTIVES_UNROLLED_H_
#define MSCCLPP_COLLECTIVES_UNROLLED_H_

#include "links.h"
#include "ll_reduce.h"

namespace mscclpp {
namespace collectives {

// The part of some 16-byte words that a lane does: tiles of kEach words a thread.
template <uint32_t kEach, class Body>
MSCCLPP_DEVICE void tiles(uint64_t words, uint32_t lane, uint32_t lanes, Body body) {
  const uint64_t tile = uint64_t(block_dim()) * kEach;
  uint64_t base = lane * tile;
  MSCCLPP_ROLLED
  for (; base + tile <= words; base += lanes * tile) body(base + thread_id(), Ranks<kEach>());
  MSCCLPP_ROLLED
  for (uint64_t w = base + thread_id(); w < words && w < base + tile; w += block_dim()) body(w, Ranks<1>());
}

#if MSCCLPP_OVERLAPS || MSCCLPP_TARGET_CHECK
// Loads in flight of one thread.
constexpr uint32_t kFlight = 8;

// Ranks begin with their own part and go on with that of the next one, so that they do not
// all load from one rank at once. All runs sum a slice in the same order, but this order
// differs from slice to slice. Sums are stored in the order of the lane.
template <class T, uint32_t N, class In, class Out>
MSCCLPP_DEVICE void sum_words(uint64_t words, uint32_t lane, uint32_t lanes, uint32_t rank, bool all, In in, Out out) {
  const char* from[N];
  char* to[N];
  MSCCLPP_UNROLL
  for (uint32_t k = 0; k < N; ++k) {
    from[k] = in((rank + k) & (N - 1));
    to[k] = out((rank + (k == 0 ? 0 : 1 + (lane + k - 1) % (N - 1))) & (N - 1));
  }
  const mscclpp::detail::Scalars<Accumulator<T>> s(reduction(kSum), N);
  tiles<kFlight / N>(words, lane, lanes, [&](uint64_t w, auto each) MSCCLPP_LAMBDA {
    constexpr uint32_t U = decltype(each)::kRanks;
    Vec16 v[U][N];
    MSCCLPP_UNROLL
    for (uint32_t u = 0; u < U; ++u) {
      MSCCLPP_UNROLL
      for (uint32_t k = 0; k < N; ++k) v[u][k] = load16(from[k] + 16 * (w + u * block_dim()));
    }
    MSCCLPP_UNROLL
    for (uint32_t u = 0; u < U; ++u) {
      Sum<T, kSum, Vec16> sum;
      MSCCLPP_UNROLL
      for (uint32_t k = 0; k < N; ++k) sum.add(k, v[u][k], s);
      const Vec16 result = sum.result(s);
      store16(to[0] + 16 * (w + u * block_dim()), result);
      if (!all) continue;
      MSCCLPP_UNROLL
      for (uint32_t k = 1; k < N; ++k) store16(to[k] + 16 * (w + u * block_dim()), result);
    }
  });
}

template <uint32_t N, class Out>
MSCCLPP_DEVICE void spread_words(uint64_t words, uint32_t lane, uint32_t lanes, uint32_t rank, const char* in, Out out) {
  char* to[N];
  MSCCLPP_UNROLL
  for (uint32_t k = 0; k < N; ++k) to[k] = out((rank + (k == N - 1 ? 0 : 1 + (lane + k) % (N - 1))) & (N - 1));  // this rank last
  const bool in_place = to[N - 1] == in;
  tiles<4>(words, lane, lanes, [&](uint64_t w, auto each) MSCCLPP_LAMBDA {
    constexpr uint32_t U = decltype(each)::kRanks;
    Vec16 v[U];
    MSCCLPP_UNROLL
    for (uint32_t u = 0; u < U; ++u) v[u] = load16(in + 16 * (w + u * block_dim()));
    MSCCLPP_UNROLL
    for (uint32_t k = 0; k < N; ++k) {
      if (k == N - 1 && in_place) continue;
      MSCCLPP_UNROLL
      for (uint32_t u = 0; u < U; ++u) store16(to[k] + 16 * (w + u * block_dim()), v[u]);
    }
  });
}

template <class In, class Out>
MSCCLPP_DEVICE bool together(const Args& a, uint64_t bytes, In in, Out out) {
  uint64_t low = bytes;
  for (uint32_t r = 0; r < a.common.ranks; ++r) low |= reinterpret_cast<uint64_t>(in(r)) | reinterpret_cast<uint64_t>(out(r));
  return (low & 15) == 0;
}
#endif

// sum_unrolled sums one lane's part of count elements of all inputs into the outputs
// of all, or without all into this rank's. kRanks: how many there are, where the kernel
// is for no other number. False: the case is none of these, and nothing was done.
template <class T, uint32_t kRanks = 0, class In, class Out>
MSCCLPP_DEVICE bool sum_unrolled(const Args& a, uint64_t count, uint32_t lane, uint32_t lanes, In in, Out out, bool all = true) {
#if MSCCLPP_OVERLAPS || MSCCLPP_TARGET_CHECK
  if constexpr (Frequent<T>::kYes) {
    const Common& c = a.common;
    if (a.op == kSum && together(a, count * sizeof(T), in, out)) {
      const uint64_t words = count * sizeof(T) / 16;
      if constexpr (kRanks != 0) {
        return sum_words<T, kRanks>(words, lane, lanes, c.rank, all, in, out), true;
      } else {
        if (c.ranks == 4) return sum_words<T, 4>(words, lane, lanes, c.rank, all, in, out), true;
        if (c.ranks == 2) return sum_words<T, 2>(words, lane, lanes, c.rank, all, in, out), true;
        if (c.ranks == 8) return sum_words<T, 8>(words, lane, lanes, c.rank, all, in, out), true;
      }
    }
  }
#endif
  (void)a, (void)count, (void)lane, (void)lanes, (void)in, (void)out, (void)all;
  return false;
}

// spread_unrolled copies the lane's part of some bytes to all ranks.
template <class Out>
MSCCLPP_DEVICE bool spread_unrolled(const Args& a, uint64_t bytes, uint32_t lane, const char* in, Out out) {
#if MSCCLPP_OVERLAPS || MSCCLPP_TARGET_CHECK
  const Common& c = a.common;
  if (together(a, bytes, [in](uint32_t) MSCCLPP_LAMBDA { return in; }, out)) {
    if (c.ranks == 4) return spread_words<4>(bytes / 16, lane, c.lanes, c.rank, in, out), true;
    if (c.ranks == 2) return spread_words<2>(bytes / 16, lane, c.lanes, c.rank, in, out), true;
    if (c.ranks == 8) return spread_words<8>(bytes / 16, lane, c.lanes, c.rank, in, out), true;
  }
#endif
  (void)a, (void)bytes, (void)lane, (void)in, (void)out;
  return false;
}

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_UNROLLED_H_
