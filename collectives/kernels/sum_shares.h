// All-reduce and reduce-scatter of any size by stores alone, for links that carry loads at a lower rate than
// stores. xGMI loads at two fifths of it.
#ifndef MSCCLPP_COLLECTIVES_SUM_SHARES_H_
#define MSCCLPP_COLLECTIVES_SUM_SHARES_H_

#include "pipeline.h"

namespace mscclpp {
namespace collectives {

// sum_shares has every rank send each peer its share of the input, and sum its own share. With kAll it sends all
// peers these sums as well: chunk k to a peer is part k of the peer's share, and, in its upper half, part k - kBehind
// of the sender's sums.
// Output may be input: a part of the output is written after the same part of the input was sent, or summed.
template <class T, bool kAll>
MSCCLPP_DEVICE void sum_shares(const Args& a) {
  const Common& c = a.common;
  const uint64_t half = kAll ? a.chunk / 2 / 64 * 64 : a.chunk;
  const uint64_t most = kAll ? slice_of(a.count, 0, c.ranks, sizeof(T)).count : a.count;  // of the shares of all ranks
  const uint64_t each = even_step(most * sizeof(T), c.lanes, half) / sizeof(T);
  between(a, [&](uint32_t lane) MSCCLPP_LAMBDA {
    const char* const in = static_cast<const char*>(a.input);
    const uint64_t n = Steps{most, each, lane, c.lanes}.size(), chunks = kAll && n > 0 ? n + kBehind : n;
    // Part k of a rank's share, in bytes.
    const auto part = [&](uint32_t rank, uint64_t k) MSCCLPP_LAMBDA {
      const Slice all = kAll ? slice_of(a.count, rank, c.ranks, sizeof(T)) : Slice{rank * a.count, a.count};
      const uint64_t at = smaller(all.count, (k * c.lanes + lane) * each);
      return Slice{(all.first + at) * sizeof(T), smaller(all.count - at, each) * sizeof(T)};
    };
    // Where the sums of a part go.
    const auto out = [&](const Slice& s) MSCCLPP_LAMBDA {
      return static_cast<char*>(a.output) + s.first - (kAll ? 0 : c.rank * a.count * sizeof(T));
    };
    const auto all = [](uint64_t number) MSCCLPP_LAMBDA { return [number](uint32_t) MSCCLPP_LAMBDA { return number; }; };
    const Pipeline pipeline(a, lane);
    MSCCLPP_ROLLED
    for (uint64_t k = 0; k < chunks + kBehind; ++k) {
      const uint64_t j = k - kBehind, puts = until(k, 0, chunks), takes = until(k, kBehind, chunks);
      if (!pipeline.begin(all(puts), all(takes))) return;
      pipeline.signal(all(until(k - 1, 0, chunks)));
      const bool sums = until(k, kBehind, n) > 0;
      if (sums) {
        const Slice own = part(c.rank, j);
        const auto inputs = [&](uint32_t r) MSCCLPP_LAMBDA { return r == c.rank ? in + own.first : pipeline.from(r, j); };
        reduce_step<T>(out(own), inputs, c.ranks, own.count / sizeof(T), reduction_of(a));
        if (kAll) block_sync();
      }
      MSCCLPP_ROLLED
      for (uint32_t i = 0; i + 1 < c.ranks; ++i) {
        const uint32_t p = peer_of(c, lane, i);
        if (k < n) {
          const Slice s = part(p, k);
          copy(pipeline.to(p, k), in + s.first, s.count, thread_id(), block_dim());
        }
        if (kAll && sums) {
          const Slice own = part(c.rank, j);
          copy(pipeline.to(p, k) + half, out(own), own.count, thread_id(), block_dim());
        }
        if (kAll && takes > kBehind) {
          const Slice s = part(p, j - kBehind);
          copy(out(s), pipeline.from(p, j) + half, s.count, thread_id(), block_dim());
        }
      }
      pipeline.end(all(takes));
    }
    pipeline.close(all(chunks), all(chunks));
  });
}

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_SUM_SHARES_H_
