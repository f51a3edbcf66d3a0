// All-to-all: rank r sends the count elements at r * count to rank r, and gets as
// many from it at the same place. Packets and chunks work in place.
#ifndef MSCCLPP_COLLECTIVES_ALLTOALL_H_
#define MSCCLPP_COLLECTIVES_ALLTOALL_H_

#include "packets.h"

namespace mscclpp {
namespace collectives {

template <class Packet>
MSCCLPP_DEVICE void alltoall_packets(const Args& a) {
  const Common& c = a.common;
  if (!agree(c)) return;
  const uint64_t total = a.count * a.element, piece = Epochs::slot_bytes(c) / 2 / 64 * 64;
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
    if (out != in) copy(out + c.rank * total + base, in + c.rank * total + base, bytes, global_thread(), global_threads());
    bool ok = true;
    for (uint32_t i = 1; i < c.ranks && ok; ++i) {
      const uint32_t peer = (c.rank + MSCCLPP_TURN(i, c.ranks)) % c.ranks;
      ok = receive_packets<Packet>(c, out + peer * total + base, epochs.slot(c.rank, peer), bytes, flag, peer);
    }
    if (!block_sync_and(ok)) return;
  }
}

// alltoall_chunk: a staged chunk holds a piece for each rank.
MSCCLPP_DEVICE void alltoall_chunk(const Args& a) {
  const Common& c = a.common;
  if (!agree(c)) return;
  const uint64_t total = a.count * a.element;
  const char* in = static_cast<const char*>(a.input);
  char* out = static_cast<char*>(a.output);
  const uint32_t tid = thread_id(), threads = block_dim();
  for (uint32_t lane = block_id(); lane < c.lanes; lane += grid_dim()) {
    Stage stage(c, lane);
    const Steps steps{total, piece_of(a.chunk, c.ranks), lane, c.lanes};
    const uint64_t n = steps.size();
    for (uint64_t k = 0; k <= n; ++k) {
      if (k < n) {
        const uint64_t at = steps.first(k), bytes = steps.count(k);
        char* slot = stage.slot(k);
        if (slot == nullptr) return;
        for (uint32_t r = 0; r < c.ranks; ++r) {
          if (r != c.rank) copy(slot + r * steps.each, in + r * total + at, bytes, tid, threads);
        }
        stage.publish(k);
        if (out != in) copy(out + c.rank * total + at, in + c.rank * total + at, bytes, tid, threads);
      }
      if (k == 0) continue;
      for (uint32_t i = 1; i < c.ranks; ++i) {
        const uint32_t peer = (c.rank + MSCCLPP_TURN(i, c.ranks)) % c.ranks;
        if (!stage.wait(peer, k - 1)) return;
        copy(out + peer * total + steps.first(k - 1), stage.data(peer, k - 1) + c.rank * steps.each, steps.count(k - 1), tid, threads);
        stage.release(peer, k - 1);
      }
    }
    stage.close(n);
  }
}

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_ALLTOALL_H_
