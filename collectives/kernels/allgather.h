// All-gather: every rank contributes count elements, and gets those of all in rank
// order. In place: the input is the rank's own part of the output.
#ifndef MSCCLPP_COLLECTIVES_ALLGATHER_H_
#define MSCCLPP_COLLECTIVES_ALLGATHER_H_

#include "packets.h"

namespace mscclpp {
namespace collectives {

template <class Packet>
MSCCLPP_DEVICE void allgather_packets(const Args& a) {
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
    for (uint32_t i = 1; i < c.ranks; ++i) send_packets<Packet>(epochs.slot((c.rank + MSCCLPP_TURN(i, c.ranks)) % c.ranks, c.rank), in + base, bytes, flag);
    if (out + c.rank * total != in) copy(out + c.rank * total + base, in + base, bytes, global_thread(), global_threads());
    bool ok = true;
    for (uint32_t i = 1; i < c.ranks && ok; ++i) {
      const uint32_t peer = (c.rank + MSCCLPP_TURN(i, c.ranks)) % c.ranks;
      ok = receive_packets<Packet>(c, out + peer * total + base, epochs.slot(c.rank, peer), bytes, flag, peer);
    }
    if (!block_sync_and(ok)) return;
  }
}

MSCCLPP_DEVICE void allgather_chunk(const Args& a) {
  const Common& c = a.common;
  if (!agree(c)) return;
  const uint64_t total = a.count * a.element;
  const char* in = static_cast<const char*>(a.input);
  char* out = static_cast<char*>(a.output);
  const uint32_t tid = thread_id(), threads = block_dim();
  for (uint32_t lane = block_id(); lane < c.lanes; lane += grid_dim()) {
    Stage stage(c, lane);
    const Steps steps{total, a.chunk, lane, c.lanes};
    const uint64_t n = steps.size();
    for (uint64_t k = 0; k <= n; ++k) {
      if (k < n) {
        char* slot = stage.slot(k);
        if (slot == nullptr) return;
        copy(slot, in + steps.first(k), steps.count(k), tid, threads);
        stage.publish(k);
        // While the input is in the cache.
        if (out + c.rank * total != in) copy(out + c.rank * total + steps.first(k), in + steps.first(k), steps.count(k), tid, threads);
      }
      if (k == 0) continue;
      for (uint32_t i = 1; i < c.ranks; ++i) {
        const uint32_t peer = (c.rank + MSCCLPP_TURN(i, c.ranks)) % c.ranks;
        if (!stage.wait(peer, k - 1)) return;
        copy(out + peer * total + steps.first(k - 1), stage.data(peer, k - 1), steps.count(k - 1), tid, threads);
        stage.release(peer, k - 1);
      }
    }
    stage.close(n);
  }
}

// allgather_ring: parts travel from neighbor to neighbor. It is here for
// comparison; where all ranks reach all others it is never the fastest.
MSCCLPP_DEVICE void allgather_ring(const Args& a) {
  const Common& c = a.common;
  if (!agree(c)) return;
  const uint64_t total = a.count * a.element;
  const char* in = static_cast<const char*>(a.input);
  char* out = static_cast<char*>(a.output);
  const uint32_t tid = thread_id(), threads = block_dim();
  const uint32_t next = (c.rank + 1) % c.ranks, previous = (c.rank + c.ranks - 1) % c.ranks;
  for (uint32_t lane = block_id(); lane < c.lanes; lane += grid_dim()) {
    const Steps steps{total, Pipe::payload(c), lane, c.lanes};
    for (uint64_t k = 0; k < steps.size(); ++k) {
      const uint64_t at = steps.first(k), bytes = steps.count(k);
      if (out + c.rank * total != in) copy(out + c.rank * total + at, in + at, bytes, tid, threads);
      const char* from = in + at;
      for (uint32_t hop = 1; hop < c.ranks; ++hop) {
        if (!Pipe::wait_room(c, lane, next)) return;
        copy(Pipe::data(Pipe::to(c, lane, next)), from, bytes, tid, threads);
        Pipe::put(c, lane, next);
        const uint32_t owner = (c.rank + c.ranks - hop) % c.ranks;
        if (!Pipe::wait_ready(c, lane, previous)) return;
        char* to = out + owner * total + at;
        copy(to, Pipe::data(Pipe::from(c, lane, previous)), bytes, tid, threads);
        Pipe::take(c, lane, previous);
        from = to;
      }
    }
  }
}

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_ALLGATHER_H_
