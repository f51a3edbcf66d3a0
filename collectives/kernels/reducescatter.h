// Reduce-scatter: every rank has count elements for each rank, and gets the reduction
// of those that are for it. In place: the output is the rank's own part of the input.
#ifndef MSCCLPP_COLLECTIVES_REDUCESCATTER_H_
#define MSCCLPP_COLLECTIVES_REDUCESCATTER_H_

#include "reduce_units.h"

namespace mscclpp {
namespace collectives {

template <class T, class Packet>
MSCCLPP_DEVICE void reducescatter_packets(const Args& a) {
  const Common& c = a.common;
  if (!agree(c)) return;
  const uint64_t total = a.count * sizeof(T), piece = Epochs::slot_bytes(c) / 2 / 64 * 64;
  Epochs epochs(c, ceil_div(total, piece));
  const char* in = static_cast<const char*>(a.input);
  char* out = static_cast<char*>(a.output);
  for (uint64_t base = 0; base < total; base += piece) {
    const uint64_t bytes = smaller(piece, total - base);
    if (!epochs.next()) return;
    const uint32_t flag = epochs.flag();
    for (uint32_t i = 1; i < c.ranks; ++i) {
      const uint32_t peer = (c.rank + MSCCLPP_TURN(i, c.ranks)) % c.ranks;
      send_packets<Packet>(epochs.slot(peer, c.rank), in + peer * total + base, bytes, flag);
    }
    const bool ok = reduce_units<T, Packet>(a, out + base, in + c.rank * total + base, bytes, flag,
                                              [&](uint32_t r) MSCCLPP_LAMBDA { return epochs.slot(c.rank, r); }, [](uint64_t, uint64_t) {});
    if (!block_sync_and(ok)) return;
  }
}

// reducescatter_chunk: a staged chunk holds a piece for each rank.
template <class T>
MSCCLPP_DEVICE void reducescatter_chunk(const Args& a) {
  const Common& c = a.common;
  if (!agree(c)) return;
  const uint64_t total = a.count * sizeof(T);
  const char* in = static_cast<const char*>(a.input);
  char* out = static_cast<char*>(a.output);
  const uint32_t tid = thread_id(), threads = block_dim();
  for (uint32_t lane = block_id(); lane < c.lanes; lane += grid_dim()) {
    Stage stage(c, lane);
    const Steps steps{total, piece_of(a.chunk, c.ranks), lane, c.lanes};
    const uint64_t n = steps.size();
    for (uint64_t k = 0; k <= n; ++k) {
      if (k < n) {
        char* slot = stage.slot(k);
        if (slot == nullptr) return;
        for (uint32_t r = 0; r < c.ranks; ++r) {
          if (r != c.rank) copy(slot + r * steps.each, in + r * total + steps.first(k), steps.count(k), tid, threads);
        }
        stage.publish(k);
      }
      if (k == 0) continue;
      const uint64_t at = steps.first(k - 1);
      if (!stage.wait_all(k - 1)) return;
      const auto inputs = [&](uint32_t r) MSCCLPP_LAMBDA { return r == c.rank ? in + c.rank * total + at : stage.data(r, k - 1) + c.rank * steps.each; };
      reduce_step<T>(out + at, inputs, c.ranks, steps.count(k - 1) / sizeof(T), reduction_of(a));
      stage.release_all(k - 1);
    }
    stage.close(n);
  }
}

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_REDUCESCATTER_H_
