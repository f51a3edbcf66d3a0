// Data of any size through scratch by plain stores: what a link carries is payload alone,
// and stores wait for nothing. Loads from peers reach 334 GB/s where stores reach 365
// (H200, NVLink), and lines lose a sixteenth to their flags.
//
// A belt is the slots from every rank to every other, in the memory of the receiver,
// which a block fills and empties chunk by chunk. All of its data of a step is on its way
// before it tells of any, once, so that it waits for arrival once a step; and what it works
// on arrived some steps before.
//
// The slots are the memory of pipes, cut for the lanes of this launch, and the counters are
// those of pipes. So belts are for launches between two barriers of all ranks: nobody
// uses pipes then.
#ifndef MSCCLPP_COLLECTIVES_BELT_H_
#define MSCCLPP_COLLECTIVES_BELT_H_

#include "zerocopy.h"

namespace mscclpp {
namespace collectives {

// Belt is what one block, whose lane it is, does with the belts to and from all peers.
// Chunks between two ranks are numbered from 0 in the launch.
class Belt {
 public:
  MSCCLPP_DEVICE Belt(const Args& a, uint32_t lane) : c_(a.common), chunk_(a.chunk), lane_(lane), state_(&c_.state->lanes[lane]) {}

  // Where chunk k to, or from, a peer lies.
  MSCCLPP_DEVICE char* to(uint32_t peer, uint64_t k) const { return slot(peer, c_.rank, state_->sent[peer] + k); }
  MSCCLPP_DEVICE char* from(uint32_t peer, uint64_t k) const { return slot(c_.rank, peer, state_->received[peer] + k); }

  // room waits until chunk k may be put to every peer for which wanted holds, and ready until chunk k
  // of each of those has arrived; for whole blocks. False: leave. What is stored after room
  // depends on what was read there, so that NVIDIA needs no more than plain order.
  template <class Wanted>
  MSCCLPP_DEVICE bool room(uint64_t k, Wanted wanted) const {
    return peers(wanted, [&](uint32_t p) MSCCLPP_LAMBDA {
      const uint64_t position = state_->sent[p] + k;
      const uint64_t* tail = &mailbox(c_, c_.rank, p, lane_)->pipe_tail;
#if MSCCLPP_TARGET_CUDA
      if (load_relaxed(tail) + c_.pipe_slots > position) return true;
#endif
      return position < c_.pipe_slots || at_least(c_, tail, position + 1 - c_.pipe_slots, kWordPipeTail, p);
    });
  }
  template <class Wanted>
  MSCCLPP_DEVICE bool ready(uint64_t k, Wanted wanted) const {
    return peers(wanted, [&](uint32_t p) MSCCLPP_LAMBDA {
      return at_least(c_, &mailbox(c_, c_.rank, p, lane_)->pipe_head, state_->received[p] + k + 1, kWordPipeHead, p);
    });
  }

  // tell says how many chunks of this launch each peer p has got, put(p), and how many of its own
  // this rank is done with, taken(p); for whole blocks. On NVIDIA plain order is enough for
  // the latter, as where line pipes give back: what was loaded has been stored or summed by now.
  template <class Put, class Taken>
  MSCCLPP_DEVICE void tell(Put put, Taken taken) const {
    block_sync();
    for (uint32_t i = thread_id() + 1; i < c_.ranks; i += block_dim()) {
      const uint32_t p = (c_.rank + i) % c_.ranks;
      const uint64_t n = put(p), m = taken(p);
      Mailbox* box = mailbox(c_, p, c_.rank, lane_);
#if MSCCLPP_TARGET_CUDA
      if (m > 0) store_relaxed(&box->pipe_tail, state_->received[p] + m);
#else
      if (m > 0) store_release(&box->pipe_tail, state_->received[p] + m);
#endif
      if (n > 0) store_release(&box->pipe_head, state_->sent[p] + n);
    }
  }

  // close ends a launch in which this rank has put, and taken, so many chunks to and from each peer.
  template <class Put, class Taken>
  MSCCLPP_DEVICE void close(Put put, Taken taken) const {
    block_sync();
    for (uint32_t p = thread_id(); p < c_.ranks; p += block_dim()) {
      if (p == c_.rank) continue;
      state_->sent[p] += put(p);
      state_->received[p] += taken(p);
    }
  }

 private:
  template <class Wanted, class Wait>
  MSCCLPP_DEVICE bool peers(Wanted wanted, Wait wait) const {
    bool ok = true;
    for (uint32_t i = thread_id() + 1; i < c_.ranks && ok; i += block_dim()) {
      const uint32_t p = (c_.rank + i) % c_.ranks;
      ok = !wanted(p) || wait(p);
    }
    return block_sync_and(ok);
  }
  MSCCLPP_DEVICE char* slot(uint32_t in, uint32_t of, uint64_t position) const {
    const uint64_t number = (uint64_t(lane_) * c_.ranks + of) * c_.pipe_slots + position % c_.pipe_slots;
    return reinterpret_cast<char*>(c_.scratch[in]) + c_.pipes + number * chunk_;
  }

  const Common& c_;
  const uint64_t chunk_;
  const uint32_t lane_;
  LaneState* const state_;
};

// How many steps after a chunk was sent its receiver works on it.
constexpr uint64_t kBehind = 2;

// Workers are the ranks that sum for a root, and what of the message each of them has: all but the
// root, as its link has the sums to carry. So no link carries more than the message, however many
// ranks there are. Of two, the root is the worker.
struct Workers {
  const uint32_t ranks, root, workers;

  MSCCLPP_DEVICE explicit Workers(const Args& a) : ranks(a.common.ranks), root(a.root), workers(ranks < 3 ? 1 : ranks - 1) {}

  MSCCLPP_DEVICE bool has(uint32_t rank) const { return number(rank) < workers; }

  // share is what a worker sums, and most the size of the largest share.
  MSCCLPP_DEVICE Slice share(uint32_t rank, uint64_t count, uint32_t element) const { return slice_of(count, number(rank), workers, element); }
  MSCCLPP_DEVICE uint64_t most(uint64_t count, uint32_t element) const { return slice_of(count, 0, workers, element).count; }

 private:
  MSCCLPP_DEVICE uint32_t number(uint32_t rank) const {
    return ranks < 3 ? uint32_t(rank != root) : (rank + 2 * ranks - root - 1) % ranks;
  }
};

// reduce_shares: everybody brings each worker its share of the message, and the workers bring
// the root the sums.
template <class T>
MSCCLPP_DEVICE void reduce_shares(const Args& a) {
  const Common& c = a.common;
  const Workers workers(a);
  const uint64_t each = a.chunk / sizeof(T);
  const bool root = c.rank == a.root, mine = workers.has(c.rank), brings = mine && !root, gets = root && !mine;
  const uint64_t behind = gets ? 2 * kBehind : kBehind;  // sums come later than what they are made of
  between(a, [&](uint32_t lane) MSCCLPP_LAMBDA {
    const char* const in = static_cast<const char*>(a.input);
    char* const out = static_cast<char*>(a.output);
    const auto part = [&](uint32_t worker, uint64_t k) MSCCLPP_LAMBDA {
      const Slice all = workers.share(worker, a.count, sizeof(T));
      const uint64_t at = smaller(all.count, (k * c.lanes + lane) * each);
      return Slice{all.first + at, smaller(all.count - at, each)};
    };
    const uint64_t n = Steps{workers.most(a.count, sizeof(T)), each, lane, c.lanes}.size();
    const Belt belt(a, lane);
    MSCCLPP_ROLLED
    for (uint64_t k = 0; k < n + behind; ++k) {
      const uint64_t j = k - behind;
      const bool puts = k < n, takes = k >= behind && (mine || gets);
      if (!puts && !takes) continue;
      const auto sends = [&](uint32_t p) MSCCLPP_LAMBDA { return puts && workers.has(p); };
      const auto sums = [&](uint32_t p) MSCCLPP_LAMBDA { return takes && brings && p == a.root; };
      const auto comes = [&](uint32_t p) MSCCLPP_LAMBDA { return takes && (mine || workers.has(p)); };
      if (puts) {
        if (!belt.room(k, sends)) return;
        MSCCLPP_ROLLED
        for (uint32_t i = 1; i < c.ranks; ++i) {
          const uint32_t p = (c.rank + i) % c.ranks;
          if (!workers.has(p)) continue;
          const Slice s = part(p, k);
          copy(belt.to(p, k), in + s.first * sizeof(T), s.count * sizeof(T), thread_id(), block_dim());
        }
      }
      if (takes && !belt.ready(j, comes)) return;
      if (takes && brings && !belt.room(j, sums)) return;
      if (takes && mine) {
        const Slice s = part(c.rank, j);
        const uint64_t at = s.first * sizeof(T);
        char* const sum = brings ? belt.to(a.root, j) : out + at;
        const auto inputs = [&](uint32_t r) MSCCLPP_LAMBDA { return r == c.rank ? in + at : belt.from(r, j); };
        if (!sum_unrolled<T>(a, s.count, 0, 1, inputs, [&](uint32_t) MSCCLPP_LAMBDA { return sum; }, false)) {
          reduce_step<T>(sum, inputs, c.ranks, s.count, reduction_of(a));
        }
      } else if (takes) {
        MSCCLPP_ROLLED
        for (uint32_t i = 1; i < c.ranks; ++i) {
          const uint32_t p = (c.rank + i) % c.ranks;
          const Slice s = part(p, j);
          copy(out + s.first * sizeof(T), belt.from(p, j), s.count * sizeof(T), thread_id(), block_dim());
        }
      }
      belt.tell([&](uint32_t p) MSCCLPP_LAMBDA { return sends(p) ? k + 1 : sums(p) ? j + 1 : 0; },
                [&](uint32_t p) MSCCLPP_LAMBDA { return comes(p) ? j + 1 : 0; });
    }
    belt.close([&](uint32_t p) MSCCLPP_LAMBDA { return workers.has(p) || (brings && p == a.root) ? n : 0; },
               [&](uint32_t p) MSCCLPP_LAMBDA { return mine || (gets && workers.has(p)) ? n : 0; });
  });
}

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_BELT_H_
