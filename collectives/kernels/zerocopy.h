// Collectives over registered memory: every rank reads its peers' buffers where
// they are. Behind the first barrier all buffers are ready, behind the second all were
// read. The first one carries the offsets of a rank's buffers in its registered memory,
// so ranks may use different offsets.
#ifndef MSCCLPP_COLLECTIVES_ZEROCOPY_H_
#define MSCCLPP_COLLECTIVES_ZEROCOPY_H_

#include "links.h"
#include "unrolled.h"

namespace mscclpp {
namespace collectives {

MSCCLPP_DEVICE const char* input_of(const Args& a, uint32_t lane, uint32_t rank) {
  if (rank == a.common.rank) return static_cast<const char*>(a.input);
  return reinterpret_cast<const char*>(a.inputs[rank]) + mailbox(a.common, a.common.rank, rank, lane)->input;
}
MSCCLPP_DEVICE char* output_of(const Args& a, uint32_t lane, uint32_t rank) {
  if (rank == a.common.rank) return static_cast<char*>(a.output);
  return reinterpret_cast<char*>(a.outputs[rank]) + mailbox(a.common, a.common.rank, rank, lane)->output;
}

// elsewhere returns a peer whose buffers are in other registered memory than this
// rank's, so that offsets mean nothing, or kMaxRanks.
MSCCLPP_DEVICE uint32_t elsewhere(const Args& a, uint32_t lane) {
  const Common& c = a.common;
  for (uint32_t r = 0; r < c.ranks; ++r) {
    if (r != c.rank && mailbox(c, c.rank, r, lane)->memory != a.memory) return r;
  }
  return kMaxRanks;
}

// between runs body(lane) between the two barriers, for each lane of this block.
// When ranks have passed different memories all of them see it, and none runs it.
// Launches of these kernels may overlap: the next one begins while this one waits at
// its end, so no more than one launch waits for another. kWrote: this launch itself has
// written data that peers will read, so the first barrier has to publish it.
template <bool kWrote = false, class Body>
MSCCLPP_DEVICE void between(const Args& a, Body body) {
  const Common& c = a.common;
  await_previous();
  if (!agree(c)) return;
  for (uint32_t lane = block_id(); lane < c.lanes; lane += grid_dim()) {
    Sync sync(c, lane);
    if (kWrote) {
      sync.enter_with(a.input_offset, a.output_offset, a.memory);
      if (!sync.wait()) return;
    } else if (!sync.meet(a.input_offset, a.output_offset, a.memory)) {
      return;
    }
    const uint32_t odd = elsewhere(a, lane);
    if (lane == 0 && thread_id() == 0) {
      c.state->elsewhere = odd < kMaxRanks ? odd + 1 : 0;
      if (odd < kMaxRanks && c.notes != c.state) store_relaxed(&c.notes->elsewhere, odd + 1);
    }
    if (odd == kMaxRanks) body(lane);
    if (lane + grid_dim() >= c.lanes) release_next();
    if (!sync.barrier()) return;
    sync.close();
  }
}

// Results are written while the tile is in the first cache.
constexpr uint64_t kTileBytes = 16384;

template <class T>
MSCCLPP_DEVICE void allreduce_zerocopy(const Args& a) {
  const Common& c = a.common;
  const Slice own = slice_of(a.count, c.rank, c.ranks, sizeof(T));
  between(a, [&](uint32_t lane) MSCCLPP_LAMBDA {
    const uint64_t begin = own.first * sizeof(T);
    if (sum_unrolled<T>(a, own.count, lane, c.lanes, [&](uint32_t r) MSCCLPP_LAMBDA { return input_of(a, lane, r) + begin; },
                        [&](uint32_t r) MSCCLPP_LAMBDA { return output_of(a, lane, r) + begin; })) return;
    const Steps steps{own.count, kTileBytes / sizeof(T), lane, c.lanes};
    for (uint64_t k = 0; k < steps.size(); ++k) {
      const uint64_t at = (own.first + steps.first(k)) * sizeof(T);
      const auto inputs = [&](uint32_t r) MSCCLPP_LAMBDA { return input_of(a, lane, r) + at; };
      char* out = static_cast<char*>(a.output) + at;
      reduce_step<T>(out, inputs, c.ranks, steps.count(k), reduction_of(a));
      block_sync();
      for (uint32_t i = 0; i + 1 < c.ranks; ++i) {
        copy(output_of(a, lane, peer_of(c, lane, i)) + at, out, steps.count(k) * sizeof(T), thread_id(), block_dim());
      }
    }
  });
}

template <class T>
MSCCLPP_DEVICE void reducescatter_zerocopy(const Args& a) {
  const Common& c = a.common;
  between(a, [&](uint32_t lane) MSCCLPP_LAMBDA {
    const uint64_t begin = c.rank * a.count * sizeof(T);
    if (sum_unrolled<T>(a, a.count, lane, c.lanes, [&](uint32_t r) MSCCLPP_LAMBDA { return input_of(a, lane, r) + begin; },
                        [&](uint32_t) MSCCLPP_LAMBDA { return static_cast<char*>(a.output); }, false)) return;
    const Steps steps{a.count, kTileBytes / sizeof(T), lane, c.lanes};
    for (uint64_t k = 0; k < steps.size(); ++k) {
      const uint64_t at = steps.first(k) * sizeof(T);
      const auto inputs = [&](uint32_t r) MSCCLPP_LAMBDA { return input_of(a, lane, r) + c.rank * a.count * sizeof(T) + at; };
      reduce_step<T>(static_cast<char*>(a.output) + at, inputs, c.ranks, steps.count(k), reduction_of(a));
    }
  });
}

template <class T>
MSCCLPP_DEVICE void reduce_zerocopy(const Args& a) {
  const Common& c = a.common;
  between(a, [&](uint32_t lane) MSCCLPP_LAMBDA {
    if (c.rank == a.root && sum_unrolled<T>(a, a.count, lane, c.lanes, [&](uint32_t r) MSCCLPP_LAMBDA { return input_of(a, lane, r); },
                                            [&](uint32_t) MSCCLPP_LAMBDA { return static_cast<char*>(a.output); }, false)) return;
    const Steps steps{c.rank == a.root ? a.count : 0, kTileBytes / sizeof(T), lane, c.lanes};
    for (uint64_t k = 0; k < steps.size(); ++k) {
      const uint64_t at = steps.first(k) * sizeof(T);
      const auto inputs = [&](uint32_t r) MSCCLPP_LAMBDA { return input_of(a, lane, r) + at; };
      reduce_step<T>(static_cast<char*>(a.output) + at, inputs, c.ranks, steps.count(k), reduction_of(a));
    }
  });
}

// A block of the root of a broadcast sends one rank so many bytes at a time. The other ranks wait for the
// first piece, whose time matters where there are few pieces. Smaller pieces need more signals.
constexpr uint64_t kRelayBytes = 65536;
constexpr uint64_t kFewRelays = 512 << 20;  // bytes of a message

// Relay counts pieces that the root has sent all others, in the words of pipes. It is for
// launches in which nothing else uses these words.
class Relay {
 public:
  MSCCLPP_DEVICE Relay(const Common& c, uint32_t lane, uint32_t root) : c_(c), lane_(lane), root_(root), state_(&c.state->lanes[lane]) {}

  // signal says that all have piece k; only the root calls it.
  MSCCLPP_DEVICE void signal(uint64_t k) {
    block_sync();
    for (uint32_t i = thread_id() + 1; i < c_.ranks; i += block_dim()) {
      const uint32_t peer = (c_.rank + i) % c_.ranks;
      store_release(&mailbox(c_, peer, c_.rank, lane_)->pipe_head, state_->sent[peer] + k + 1);
    }
  }
  MSCCLPP_DEVICE bool wait(uint64_t k) {
    return block_sync_and(thread_id() != 0 ||
                          at_least(c_, &mailbox(c_, c_.rank, root_, lane_)->pipe_head, state_->received[root_] + k + 1, kWordPipeHead, root_));
  }
  // close ends a launch with n pieces.
  MSCCLPP_DEVICE void close(uint64_t n) {
    block_sync();
    if (c_.rank == root_) {
      for (uint32_t p = thread_id(); p < c_.ranks; p += block_dim()) {
        if (p != c_.rank) state_->sent[p] += n;
      }
    } else if (thread_id() == 0) {
      state_->received[root_] += n;
      store_release(&mailbox(c_, root_, c_.rank, lane_)->pipe_tail, state_->received[root_]);
    }
  }

 private:
  const Common& c_;
  const uint32_t lane_;
  const uint32_t root_;
  LaneState* const state_;
};

// The part of a copy that belongs to a lane.
MSCCLPP_DEVICE void copy_lane(const Common& c, uint32_t lane, char* to, const char* from, uint64_t bytes) {
  const uint64_t each = round_up(ceil_div(bytes, c.lanes), 64), first = smaller(bytes, each * lane);
  if (to != from) copy(to + first, from + first, smaller(each, bytes - first), thread_id(), block_dim());
}

// peers_and_own calls body for each peer, in the order of the lane, and then for this rank.
template <class Body>
MSCCLPP_DEVICE void peers_and_own(const Common& c, uint32_t lane, Body body) {
  for (uint32_t i = 0; i < c.ranks; ++i) body(i + 1 < c.ranks ? peer_of(c, lane, i) : c.rank);
}

MSCCLPP_DEVICE void allgather_zerocopy(const Args& a) {
  const uint64_t total = a.count * a.element;
  between(a, [&](uint32_t lane) MSCCLPP_LAMBDA {
    peers_and_own(a.common, lane, [&](uint32_t peer) MSCCLPP_LAMBDA {
      copy_lane(a.common, lane, static_cast<char*>(a.output) + peer * total, input_of(a, lane, peer), total);
    });
  });
}

// Not in place: a rank would overwrite data that a peer has yet to read.
MSCCLPP_DEVICE void alltoall_zerocopy(const Args& a) {
  const uint64_t total = a.count * a.element;
  between(a, [&](uint32_t lane) MSCCLPP_LAMBDA {
    peers_and_own(a.common, lane, [&](uint32_t peer) MSCCLPP_LAMBDA {
      copy_lane(a.common, lane, static_cast<char*>(a.output) + peer * total, input_of(a, lane, peer) + a.common.rank * total, total);
    });
  });
}

// Peers' outputs, not their inputs, are what has to be registered: stores to a link
// wait for nothing, so this is faster than reading.
MSCCLPP_DEVICE void allgather_push(const Args& a) {
  const Common& c = a.common;
  const uint64_t total = a.count * a.element;
  between(a, [&](uint32_t lane) MSCCLPP_LAMBDA {
    const char* in = static_cast<const char*>(a.input);
    if (spread_unrolled(a, total, lane, in, [&](uint32_t r) MSCCLPP_LAMBDA { return output_of(a, lane, r) + c.rank * total; })) return;
    peers_and_own(c, lane, [&](uint32_t peer) MSCCLPP_LAMBDA { copy_lane(c, lane, output_of(a, lane, peer) + c.rank * total, in, total); });
  });
}

// Not in place: a peer would overwrite data that this rank has yet to send. The own share is
// copied piece by piece between those of the peers, while the link is busy with them.
MSCCLPP_DEVICE void alltoall_push(const Args& a) {
  const Common& c = a.common;
  const uint64_t total = a.count * a.element;
  between(a, [&](uint32_t lane) MSCCLPP_LAMBDA {
    const Steps steps{total, even_step(total, c.lanes, kTurnBytes), lane, c.lanes};
    MSCCLPP_ROLLED
    for (uint64_t k = 0; k < steps.size(); ++k) {
      const uint64_t at = steps.first(k);
      peers_and_own(c, lane, [&](uint32_t peer) MSCCLPP_LAMBDA {
        copy(output_of(a, lane, peer) + c.rank * total + at, static_cast<const char*>(a.input) + peer * total + at, steps.count(k),
             thread_id(), block_dim());
      });
    }
  });
}

// Every rank but the root has a share. The root sends it this share, and the rank passes
// it on to the others while the next piece arrives. So the root's link carries
// everything once, however many ranks there are.
MSCCLPP_DEVICE void broadcast_push(const Args& a) {
  const Common& c = a.common;
  const uint64_t bytes = a.count * a.element;
  between(a, [&](uint32_t lane) MSCCLPP_LAMBDA {
    const char* in = static_cast<const char*>(a.input);
    const uint32_t others = c.ranks - 1;
    if (c.ranks == 2) {  // nobody sends anything on
      if (c.rank != a.root || spread_unrolled(a, bytes, lane, in, [&](uint32_t r) MSCCLPP_LAMBDA { return output_of(a, lane, r); })) return;
      copy_lane(c, lane, output_of(a, lane, 1 - c.rank), in, bytes);
    }
    if (c.rank == a.root) copy_lane(c, lane, static_cast<char*>(a.output), in, bytes);
    if (others < 2) return;
    const Steps steps{bytes, (bytes > kFewRelays ? kRelayBytes : kRelayBytes / 2) * others, lane, c.lanes};
    Relay relay(c, lane, a.root);
    MSCCLPP_ROLLED
    for (uint64_t k = 0; k < steps.size(); ++k) {
      const uint64_t at = steps.first(k), each = round_up(ceil_div(steps.count(k), others), 64);
      // The share that the i-th rank behind the root passes on, from one of its buffers to another rank's.
      const auto send = [&](uint32_t i, const char* from, uint32_t to) MSCCLPP_LAMBDA {
        const uint64_t first = smaller(steps.count(k), each * (i - 1)), n = smaller(steps.count(k) - first, each);
        copy(output_of(a, lane, to) + at + first, from + at + first, n, thread_id(), block_dim());
      };
      if (c.rank == a.root) {
        for (uint32_t i = 0; i < others; ++i) send(distance_of(c, lane, i), in, peer_of(c, lane, i));
        relay.signal(k);
        continue;
      }
      if (!relay.wait(k)) return;
      for (uint32_t j = 0; j < others; ++j) {
        const uint32_t next = peer_of(c, lane, j);
        if (next != a.root) send((c.rank + c.ranks - a.root) % c.ranks, static_cast<char*>(a.output), next);
      }
    }
    relay.close(steps.size());
  });
}

// The root copies its data into its output first, because all ranks can address
// outputs only.
MSCCLPP_DEVICE void broadcast_zerocopy(const Args& a) {
  const Common& c = a.common;
  const uint64_t bytes = a.count * a.element;
  await_previous();
  if (c.rank == a.root && a.output != a.input) {
    copy(a.output, a.input, bytes, global_thread(), global_threads());
    if (!blocks_sync(c.state, c.control)) return;
  }
  between<true>(a, [&](uint32_t lane) MSCCLPP_LAMBDA {
    if (c.rank != a.root) copy_lane(c, lane, static_cast<char*>(a.output), output_of(a, lane, a.root), bytes);
  });
}

// barrier moves nothing.
MSCCLPP_DEVICE void barrier(const Args& a) {
  const Common& c = a.common;
  release_next();
  await_previous();
  if (!agree(c) || block_id() != 0) return;
  Sync sync(c, 0);
  if (!sync.barrier()) return;
  sync.close();
}

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_ZEROCOPY_H_
