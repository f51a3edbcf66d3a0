// All-reduce by packets, for small messages.
#ifndef MSCCLPP_COLLECTIVES_ALLREDUCE_PACKETS_H_
#define MSCCLPP_COLLECTIVES_ALLREDUCE_PACKETS_H_

#include "reduce_units.h"

namespace mscclpp {
namespace collectives {

// allreduce_allpair_packets: every rank sends everything to every other rank, and
// reduces all of it. One exchange.
template <class T, class Packet>
MSCCLPP_DEVICE void allreduce_allpair_packets(const Args& a) {
  const Common& c = a.common;
  if (!agree(c)) return;
  const uint64_t total = a.count * sizeof(T), piece = Epochs::slot_bytes(c) / 2 / 64 * 64;
  Epochs epochs(c, ceil_div(total, piece));
  for (uint64_t base = 0; base < total; base += piece) {
    const uint64_t bytes = smaller(piece, total - base);
    const char* in = static_cast<const char*>(a.input) + base;
    char* out = static_cast<char*>(a.output) + base;
    if (!epochs.next()) return;
    const uint32_t flag = epochs.flag();
    for (uint32_t i = 1; i < c.ranks; ++i) {
      send_packets<Packet>(epochs.slot((c.rank + MSCCLPP_TURN(i, c.ranks)) % c.ranks, c.rank), in, bytes, flag);
    }
    const bool ok = reduce_units<T, Packet>(a, out, in, bytes, flag, [&](uint32_t r) MSCCLPP_LAMBDA { return epochs.slot(c.rank, r); },
                                              [](uint64_t, uint64_t) {});
    if (!block_sync_and(ok)) return;
  }
}

// allreduce_twophase_packets: every rank sends each rank its slice, reduces its own,
// and sends the result to all. Two exchanges of 1/ranks of the data. A slot holds
// contributions in its first half and results in its second.
template <class T, class Packet>
MSCCLPP_DEVICE void allreduce_twophase_packets(const Args& a) {
  const Common& c = a.common;
  if (!agree(c)) return;
  const uint64_t half = Epochs::slot_bytes(c) / 2 / 64 * 64;
  const uint64_t piece = half / 2 / 64 * 64 * c.ranks / sizeof(T);
  Epochs epochs(c, ceil_div(a.count, piece));
  for (uint64_t base = 0; base < a.count; base += piece) {
    const uint64_t count = smaller(piece, a.count - base);
    const char* in = static_cast<const char*>(a.input) + base * sizeof(T);
    char* out = static_cast<char*>(a.output) + base * sizeof(T);
    if (!epochs.next()) return;
    const uint32_t flag = epochs.flag();
    const Slice mine = slice_of(count, c.rank, c.ranks, sizeof(T));
    for (uint32_t i = 1; i < c.ranks; ++i) {
      const uint32_t peer = (c.rank + MSCCLPP_TURN(i, c.ranks)) % c.ranks;
      const Slice theirs = slice_of(count, peer, c.ranks, sizeof(T));
      char* slot = epochs.slot(peer, c.rank);
      if (theirs.count > 0) {
        send_packets<Packet>(slot, in + theirs.first * sizeof(T), theirs.count * sizeof(T), flag);
      } else {
        send_packets<Packet>(slot, in, 1, flag);  // an epoch is not silent
      }
    }
    bool ok = true;
    for (uint32_t r = 0; r < c.ranks && ok && mine.count == 0; ++r) {
      char* nothing = reinterpret_cast<char*>(c.state->pad);
      if (r != c.rank) ok = receive_packets<Packet>(c, nothing, epochs.slot(c.rank, r), 1, flag, r);
    }
    char* own = out + mine.first * sizeof(T);
    ok = ok && reduce_units<T, Packet>(
                   a, own, in + mine.first * sizeof(T), mine.count * sizeof(T), flag,
                   [&](uint32_t r) MSCCLPP_LAMBDA { return epochs.slot(c.rank, r); },
                   [&](uint64_t at, uint64_t n) MSCCLPP_LAMBDA {
                     for (uint32_t i = 1; i < c.ranks; ++i) {
                       copyToPackets<Packet>(epochs.slot((c.rank + MSCCLPP_TURN(i, c.ranks)) % c.ranks, c.rank) + half + 2 * at, own + at, n, 0, 1, flag);
                     }
                   });
    // In place, results may lie where another thread of this grid has yet to read data
    // that it sends.
    if (!block_sync_and(ok)) return;
    if (grid_dim() > 1 && !blocks_sync(c.state, c.control)) return;
    for (uint32_t i = 1; i < c.ranks && ok; ++i) {
      const uint32_t peer = (c.rank + MSCCLPP_TURN(i, c.ranks)) % c.ranks;
      const Slice theirs = slice_of(count, peer, c.ranks, sizeof(T));
      ok = receive_packets<Packet>(c, out + theirs.first * sizeof(T), epochs.slot(c.rank, peer) + half, theirs.count * sizeof(T), flag, peer);
    }
    if (!block_sync_and(ok)) return;
  }
}

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_ALLREDUCE_PACKETS_H_
