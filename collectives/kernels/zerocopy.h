// Collectives over registered memory: every rank reads its peers' buffers where
// they are. A barrier before says that all buffers are ready, one behind that all
// were read. Where a rank's buffers lie in its registered memory travels with the
// first, so ranks may use different offsets.
#ifndef MSCCLPP_COLLECTIVES_ZEROCOPY_H_
#define MSCCLPP_COLLECTIVES_ZEROCOPY_H_

#include "links.h"

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
template <class Body>
MSCCLPP_DEVICE void between(const Args& a, Body body) {
  const Common& c = a.common;
  if (!agree(c)) return;
  for (uint32_t lane = block_id(); lane < c.lanes; lane += grid_dim()) {
    Sync sync(c, lane);
    sync.enter_with(a.input_offset, a.output_offset, a.memory);
    if (!sync.wait()) return;
    const uint32_t odd = elsewhere(a, lane);
    if (lane == 0 && thread_id() == 0) c.state->elsewhere = odd < kMaxRanks ? odd + 1 : 0;
    if (odd == kMaxRanks) body(lane);
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
    const Steps steps{own.count, kTileBytes / sizeof(T), lane, c.lanes};
    for (uint64_t k = 0; k < steps.size(); ++k) {
      const uint64_t at = (own.first + steps.first(k)) * sizeof(T);
      const auto inputs = [&](uint32_t r) MSCCLPP_LAMBDA { return input_of(a, lane, r) + at; };
      char* out = static_cast<char*>(a.output) + at;
      reduce_step<T>(out, inputs, c.ranks, steps.count(k), reduction_of(a));
      block_sync();
      for (uint32_t i = 1; i < c.ranks; ++i) {
        copy(output_of(a, lane, (c.rank + i) % c.ranks) + at, out, steps.count(k) * sizeof(T), thread_id(), block_dim());
      }
    }
  });
}

template <class T>
MSCCLPP_DEVICE void reducescatter_zerocopy(const Args& a) {
  const Common& c = a.common;
  between(a, [&](uint32_t lane) MSCCLPP_LAMBDA {
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
    const Steps steps{c.rank == a.root ? a.count : 0, kTileBytes / sizeof(T), lane, c.lanes};
    for (uint64_t k = 0; k < steps.size(); ++k) {
      const uint64_t at = steps.first(k) * sizeof(T);
      const auto inputs = [&](uint32_t r) MSCCLPP_LAMBDA { return input_of(a, lane, r) + at; };
      reduce_step<T>(static_cast<char*>(a.output) + at, inputs, c.ranks, steps.count(k), reduction_of(a));
    }
  });
}

// The part of a copy that belongs to a lane.
MSCCLPP_DEVICE void copy_lane(const Common& c, uint32_t lane, char* to, const char* from, uint64_t bytes) {
  const uint64_t each = round_up(ceil_div(bytes, c.lanes), 64), first = smaller(bytes, each * lane);
  if (to != from) copy(to + first, from + first, smaller(each, bytes - first), thread_id(), block_dim());
}

MSCCLPP_DEVICE void allgather_zerocopy(const Args& a) {
  const uint64_t total = a.count * a.element;
  between(a, [&](uint32_t lane) MSCCLPP_LAMBDA {
    for (uint32_t i = 0; i < a.common.ranks; ++i) {
      const uint32_t peer = (a.common.rank + i) % a.common.ranks;
      copy_lane(a.common, lane, static_cast<char*>(a.output) + peer * total, input_of(a, lane, peer), total);
    }
  });
}

// Not in place: a rank would overwrite what a peer has yet to read.
MSCCLPP_DEVICE void alltoall_zerocopy(const Args& a) {
  const uint64_t total = a.count * a.element;
  between(a, [&](uint32_t lane) MSCCLPP_LAMBDA {
    for (uint32_t i = 0; i < a.common.ranks; ++i) {
      const uint32_t peer = (a.common.rank + i) % a.common.ranks;
      copy_lane(a.common, lane, static_cast<char*>(a.output) + peer * total, input_of(a, lane, peer) + a.common.rank * total, total);
    }
  });
}

// The root brings its data into its output first: that is the buffer which all
// ranks have.
MSCCLPP_DEVICE void broadcast_zerocopy(const Args& a) {
  const Common& c = a.common;
  const uint64_t bytes = a.count * a.element;
  if (c.rank == a.root && a.output != a.input) {
    copy(a.output, a.input, bytes, global_thread(), global_threads());
    if (!grid_sync(&c.state->grid, c.control)) return;
  }
  between(a, [&](uint32_t lane) MSCCLPP_LAMBDA {
    if (c.rank != a.root) copy_lane(c, lane, static_cast<char*>(a.output), output_of(a, lane, a.root), bytes);
  });
}

// barrier moves nothing.
MSCCLPP_DEVICE void barrier(const Args& a) {
  const Common& c = a.common;
  if (!agree(c) || block_id() != 0) return;
  Sync sync(c, 0);
  if (!sync.barrier()) return;
  sync.close();
}

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_ZEROCOPY_H_
