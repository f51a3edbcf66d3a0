// Data of any size through staging slots in scratch, by plain stores. The link carries payload alone, and
// stores wait for nothing. Loads from peers reach 334 GB/s where stores reach 365 (H200, NVLink), and
// lines lose a sixteenth to their flags.
//
// A pipeline has slots from every rank to every other one, in the memory of the receiver. A block fills
// and empties them chunk by chunk, in steps. In one step it takes the chunks that arrived some steps
// before, while the next chunks are in flight. It signals these to the peers one step later, so that
// the fence of the signal overlaps with other work.
//
// The slots are the memory of pipes, divided anew for the lanes of this launch, and the counters are
// those of pipes. So pipelines are for launches between two barriers of all ranks, when no pipe is in
// use.
#ifndef MSCCLPP_COLLECTIVES_PIPELINE_H_
#define MSCCLPP_COLLECTIVES_PIPELINE_H_

#include "zerocopy.h"

namespace mscclpp {
namespace collectives {

constexpr uint32_t kPipelineSlots = 4;  // of one rank, in a lane, for another

// Pipeline is the side of one block, to which the lane belongs, for all peers. Chunks between two ranks
// are numbered from 0 in the launch. The function puts returns how many chunks to peer p have been put
// when this step is over, and takes how many from p have been taken.
class Pipeline {
 public:
  MSCCLPP_DEVICE Pipeline(const Args& a, uint32_t lane) : c_(a.common), chunk_(a.chunk), lane_(lane), state_(&c_.state->lanes[lane]) {}

  // Where chunk k to, or from, a peer lies.
  MSCCLPP_DEVICE char* to(uint32_t peer, uint64_t k) const { return slot(peer, c_.rank, state_->sent[peer] + k); }
  MSCCLPP_DEVICE char* from(uint32_t peer, uint64_t k) const { return slot(c_.rank, peer, state_->received[peer] + k); }

  // The same where the slots are in the memory of the sender, and the receiver loads from them.
  MSCCLPP_DEVICE char* kept(uint32_t peer, uint64_t k) const { return slot(c_.rank, peer, state_->sent[peer] + k); }
  MSCCLPP_DEVICE char* fetched(uint32_t peer, uint64_t k) const { return slot(peer, c_.rank, state_->received[peer] + k); }

  // begin waits until there is room for the chunks that this step puts, and until the chunks that it takes
  // have arrived; for whole blocks. False: leave. Stores behind it depend on the word that was read, so
  // on NVIDIA relaxed loads are enough for the room.
  template <class Puts, class Takes>
  MSCCLPP_DEVICE bool begin(Puts puts, Takes takes) const {
    return block_sync_and(peers([&](uint32_t p) MSCCLPP_LAMBDA {
      const uint64_t n = puts(p), m = takes(p);
      return (n == 0 || room(p, n)) && (m == 0 || arrived(p, m));
    }));
  }

  // The same in parts, to one thread: whether there is room for so many chunks to a peer, or they have come from one; waits for
  // that; the signal for so many that were put, and the credits for so many that were taken.
  MSCCLPP_DEVICE bool has_room(uint32_t p, uint64_t chunks) const {
    return load_relaxed(&mailbox(c_, c_.rank, p, lane_)->pipe_tail) + kPipelineSlots >= state_->sent[p] + chunks;
  }
  MSCCLPP_DEVICE bool has_come(uint32_t p, uint64_t chunks) const {
    return load_relaxed(&mailbox(c_, c_.rank, p, lane_)->pipe_head) >= state_->received[p] + chunks;
  }
  MSCCLPP_DEVICE bool room(uint32_t p, uint64_t chunks) const { return room_until(p, state_->sent[p] + chunks); }
  MSCCLPP_DEVICE bool arrived(uint32_t p, uint64_t chunks) const {
    return at_least(c_, &mailbox(c_, c_.rank, p, lane_)->pipe_head, state_->received[p] + chunks, kWordPipeHead, p);
  }
  MSCCLPP_DEVICE void put(uint32_t p, uint64_t chunks) const { store_release(&mailbox(c_, p, c_.rank, lane_)->pipe_head, state_->sent[p] + chunks); }
  MSCCLPP_DEVICE void took(uint32_t p, uint64_t chunks) const {
    return_credits(&mailbox(c_, p, c_.rank, lane_)->pipe_tail, state_->received[p] + chunks);
  }

  // signal signals the chunks that the step before has put. It stands between begin and end.
  template <class Puts>
  MSCCLPP_DEVICE void signal(Puts puts) const {
    peers([&](uint32_t p) MSCCLPP_LAMBDA {
      const uint64_t n = puts(p);
      if (n > 0) put(p, n);
      return true;
    });
  }

  // end returns credits for the chunks that were taken.
  template <class Takes>
  MSCCLPP_DEVICE void end(Takes takes) const {
    block_sync();
    peers([&](uint32_t p) MSCCLPP_LAMBDA {
      const uint64_t m = takes(p);
      if (m > 0) took(p, m);
      return true;
    });
  }

  // close ends a launch in which this rank has put, and taken, so many chunks to and from each peer.
  template <class Puts, class Takes>
  MSCCLPP_DEVICE void close(Puts puts, Takes takes) const {
    signal(puts);
    block_sync();
    for (uint32_t p = thread_id(); p < c_.ranks; p += block_dim()) {
      if (p == c_.rank) continue;
      state_->sent[p] += puts(p);
      state_->received[p] += takes(p);
    }
  }

 private:
  // peers calls f with each of them, in one thread each, until it returns false.
  template <class F>
  MSCCLPP_DEVICE bool peers(F f) const {
    bool ok = true;
    for (uint32_t i = thread_id() + 1; i < c_.ranks && ok; i += block_dim()) ok = f((c_.rank + i) % c_.ranks);
    return ok;
  }
  MSCCLPP_DEVICE bool room_until(uint32_t p, uint64_t chunks) const {
    const uint64_t* tail = &mailbox(c_, c_.rank, p, lane_)->pipe_tail;
#if MSCCLPP_TARGET_CUDA
    if (load_relaxed(tail) + kPipelineSlots >= chunks) return true;
#endif
    return chunks <= kPipelineSlots || at_least(c_, tail, chunks - kPipelineSlots, kWordPipeTail, p);
  }
  MSCCLPP_DEVICE char* slot(uint32_t in, uint32_t of, uint64_t position) const {
    const uint64_t number = pipe_of(c_.ranks, lane_, in, of) * kPipelineSlots + position % kPipelineSlots;
    return reinterpret_cast<char*>(c_.scratch[in]) + c_.pipes + number * chunk_;
  }

  const Common& c_;
  const uint64_t chunk_;
  const uint32_t lane_;
  LaneState* const state_;
};

// How many steps after a chunk was put its receiver works on it.
constexpr uint64_t kBehind = 2;

// until says how many chunks of n are done when step k is over, `late` steps after the first; 0 if
// that step does none.
MSCCLPP_DEVICE uint64_t until(uint64_t k, uint64_t late, uint64_t n) { return k >= late && k - late < n ? k - late + 1 : 0; }

// Workers are the ranks that have a share of the message of a root: all but the root, because its link
// carries the whole message already. So no link carries more than the message, however many ranks there
// are. Of two ranks, the root is the worker if there is something to sum.
struct Workers {
  const uint32_t ranks, root, workers;
  const bool other;  // than the root

  MSCCLPP_DEVICE Workers(const Args& a, bool sums)
      : ranks(a.common.ranks), root(a.root), workers(ranks < 3 ? 1 : ranks - 1), other(ranks > 2 || !sums) {}

  MSCCLPP_DEVICE bool has(uint32_t rank) const { return number(rank) < workers; }

  // share is what a worker has, and most the size of the largest share.
  MSCCLPP_DEVICE Slice share(uint32_t rank, uint64_t count, uint32_t element) const { return slice_of(count, number(rank), workers, element); }
  MSCCLPP_DEVICE uint64_t most(uint64_t count, uint32_t element) const { return slice_of(count, 0, workers, element).count; }

  // part is chunk k of it in a lane, of each elements.
  MSCCLPP_DEVICE Slice part(uint32_t rank, uint64_t k, uint64_t count, uint64_t each, uint32_t element, uint32_t lane, uint32_t lanes) const {
    const Slice all = share(rank, count, element);
    const uint64_t at = smaller(all.count, (k * lanes + lane) * each);
    return Slice{all.first + at, smaller(all.count - at, each)};
  }

 private:
  MSCCLPP_DEVICE uint32_t number(uint32_t rank) const { return (rank + 2 * ranks - root - other) % ranks; }
};

// exchange_shares brings every peer p what out(p) points to, and what comes from p to in(p): a.count
// elements each, of the rank itself too.
template <class Out, class In>
MSCCLPP_DEVICE void exchange_shares(const Args& a, Out out, In in) {
  const Common& c = a.common;
  const uint64_t share = a.count * a.element;
  between(a, [&](uint32_t lane) MSCCLPP_LAMBDA {
    const Steps steps{share, even_step(share, c.lanes, a.chunk), lane, c.lanes};
    const uint64_t n = steps.size();
    const bool aside = in(c.rank) != out(c.rank);
    const Pipeline pipeline(a, lane);
    MSCCLPP_ROLLED
    for (uint64_t k = 0; k < n + kBehind; ++k) {
      const uint64_t j = k - kBehind, puts = until(k, 0, n), takes = until(k, kBehind, n);
      const auto all = [](uint64_t chunks) MSCCLPP_LAMBDA { return [chunks](uint32_t) MSCCLPP_LAMBDA { return chunks; }; };
      if (!pipeline.begin(all(puts), all(takes))) return;
      pipeline.signal(all(until(k - 1, 0, n)));
      // The block copies a part in each direction by turns, so that links and memory are busy at the same time.
      MSCCLPP_ROLLED
      for (uint64_t at = 0; at < steps.each; at += kTurnBytes) {
        MSCCLPP_ROLLED
        for (uint32_t i = 2; i <= 2 * c.ranks; ++i) {
          const bool take = i % 2 != 0, own = i == 2 * c.ranks;
          if ((take ? takes : puts) == 0 || (own && !aside)) continue;
          const uint32_t distance = own ? c.ranks : distance_of(c, lane, i / 2 - 1);
          const uint32_t p = (c.rank + (take ? c.ranks - distance : distance)) % c.ranks;
          const uint64_t step = take ? j : k, bytes = steps.count(step), first = steps.first(step);
          if (at >= bytes) continue;
          char* const to = take || own ? in(p) + first : pipeline.to(p, k);
          const char* const from = take ? pipeline.from(p, j) : out(p) + first;
          copy(to + at, from + at, smaller(bytes - at, kTurnBytes), thread_id(), block_dim());
        }
      }
      pipeline.end(all(takes));
    }
    pipeline.close([&](uint32_t) MSCCLPP_LAMBDA { return n; }, [&](uint32_t) MSCCLPP_LAMBDA { return n; });
  });
}

MSCCLPP_DEVICE void allgather_shares(const Args& a) {
  const uint64_t share = a.count * a.element;
  exchange_shares(a, [&](uint32_t) MSCCLPP_LAMBDA { return static_cast<const char*>(a.input); },
                  [&](uint32_t p) MSCCLPP_LAMBDA { return static_cast<char*>(a.output) + p * share; });
}

// It works in place too, because the place into which a chunk is taken was put before.
MSCCLPP_DEVICE void alltoall_shares(const Args& a) {
  const uint64_t share = a.count * a.element;
  exchange_shares(a, [&](uint32_t p) MSCCLPP_LAMBDA { return static_cast<const char*>(a.input) + p * share; },
                  [&](uint32_t p) MSCCLPP_LAMBDA { return static_cast<char*>(a.output) + p * share; });
}

// broadcast_shares: the root sends each worker its share of the message, and the workers send these to
// each other.
MSCCLPP_DEVICE void broadcast_shares(const Args& a) {
  const Common& c = a.common;
  const Workers workers(a, false);
  const uint64_t bytes = a.count * a.element, most = workers.most(bytes, 1);
  const uint64_t each = even_step(most, c.lanes, a.chunk), behind = c.ranks > 2 ? 2 * kBehind : kBehind;
  const bool root = c.rank == a.root;
  between(a, [&](uint32_t lane) MSCCLPP_LAMBDA {
    const char* const in = static_cast<const char*>(a.input);
    char* const out = static_cast<char*>(a.output);
    const uint64_t n = Steps{most, each, lane, c.lanes}.size();
    const auto puts = [&](uint64_t k) MSCCLPP_LAMBDA {
      return [&, k](uint32_t p) MSCCLPP_LAMBDA { return root ? until(k, 0, n) : p != a.root ? until(k, kBehind, n) : 0; };
    };
    const auto takes = [&](uint64_t k) MSCCLPP_LAMBDA {
      return [&, k](uint32_t p) MSCCLPP_LAMBDA { return root ? 0 : until(k, p == a.root ? kBehind : 2 * kBehind, n); };
    };
    const Pipeline pipeline(a, lane);
    MSCCLPP_ROLLED
    for (uint64_t k = 0; k < n + behind; ++k) {
      const uint64_t j = k - kBehind;
      if (!pipeline.begin(puts(k), takes(k))) return;
      pipeline.signal(puts(k - 1));
      // A worker passes the root's chunk on from the slot in which it lies. The root copies its own input to
      // its output between two sends. A rank that is alone makes only that copy.
      MSCCLPP_ROLLED
      for (uint32_t i = c.ranks > 1 ? 3 : 1; i < 3 * c.ranks; ++i) {
        const uint32_t p = (c.rank + MSCCLPP_TURN(i / 3, c.ranks)) % c.ranks;
        const bool put = i % 3 == 0, own = i % 3 == 1 && root && out != in;
        if (put || own ? puts(k)(p) == 0 : i % 3 == 1 || takes(k)(p) == 0) continue;
        const bool later = !put && !own && p != a.root;
        const Slice s = workers.part(root || later ? p : c.rank, root ? k : later ? j - kBehind : j, bytes, each, 1, lane, c.lanes);
        char* const to = put ? pipeline.to(p, root ? k : j) : out + s.first;
        const char* const from = root ? in + s.first : put ? pipeline.from(a.root, j) : later ? pipeline.from(p, j - kBehind) : pipeline.from(a.root, j);
        copy(to, from, s.count, thread_id(), block_dim());
      }
      pipeline.end(takes(k));
    }
    pipeline.close([&](uint32_t p) MSCCLPP_LAMBDA { return root || p != a.root ? n : 0; }, [&](uint32_t) MSCCLPP_LAMBDA { return root ? 0 : n; });
  });
}

// reduce_shares: every rank sends each worker its share of the message, and the workers send the root the
// sums.
template <class T>
MSCCLPP_DEVICE void reduce_shares(const Args& a) {
  const Common& c = a.common;
  const Workers workers(a, true);
  const uint64_t most = workers.most(a.count, sizeof(T)), each = even_step(most * sizeof(T), c.lanes, a.chunk) / sizeof(T);
  const bool root = c.rank == a.root, mine = workers.has(c.rank), brings = mine && !root, gets = root && !mine;
  between(a, [&](uint32_t lane) MSCCLPP_LAMBDA {
    const char* const in = static_cast<const char*>(a.input);
    char* const out = static_cast<char*>(a.output);
    const uint64_t n = Steps{most, each, lane, c.lanes}.size();
    const auto part = [&](uint32_t worker, uint64_t k) MSCCLPP_LAMBDA { return workers.part(worker, k, a.count, each, sizeof(T), lane, c.lanes); };
    const auto puts = [&](uint64_t k) MSCCLPP_LAMBDA {
      return [&, k](uint32_t p) MSCCLPP_LAMBDA { return workers.has(p) ? until(k, 0, n) : brings && p == a.root ? until(k, kBehind, n) : 0; };
    };
    const auto takes = [&](uint64_t k) MSCCLPP_LAMBDA {
      return [&, k](uint32_t p) MSCCLPP_LAMBDA { return mine ? until(k, kBehind, n) : gets && workers.has(p) ? until(k, 2 * kBehind, n) : 0; };
    };
    const Pipeline pipeline(a, lane);
    MSCCLPP_ROLLED
    for (uint64_t k = 0; k < n + 2 * kBehind; ++k) {
      if (!pipeline.begin(puts(k), takes(k))) return;
      pipeline.signal(puts(k - 1));
      const auto put = [&]() MSCCLPP_LAMBDA {
        for (uint32_t i = 1; i < c.ranks; ++i) {
          const uint32_t p = (c.rank + i) % c.ranks;
          if (!workers.has(p)) continue;
          const Slice s = part(p, k);
          copy(pipeline.to(p, k), in + s.first * sizeof(T), s.count * sizeof(T), thread_id(), block_dim());
        }
      };
      const auto take = [&]() MSCCLPP_LAMBDA {
        const uint64_t j = k - (mine ? kBehind : 2 * kBehind);
        if (mine) {
          const Slice s = part(c.rank, j);
          const uint64_t at = s.first * sizeof(T);
          char* const sum = brings ? pipeline.to(a.root, j) : out + at;
          const auto inputs = [&](uint32_t r) MSCCLPP_LAMBDA { return r == c.rank ? in + at : pipeline.from(r, j); };
          if (!sum_unrolled<T>(a, s.count, 0, 1, inputs, [&](uint32_t) MSCCLPP_LAMBDA { return sum; }, false)) {
            reduce_step<T>(sum, inputs, c.ranks, s.count, reduction_of(a));
          }
          return;
        }
        for (uint32_t i = 1; i < c.ranks; ++i) {
          const uint32_t p = (c.rank + i) % c.ranks;
          const Slice s = part(p, j);
          copy(out + s.first * sizeof(T), pipeline.from(p, j), s.count * sizeof(T), thread_id(), block_dim());
        }
      };
      const bool comes = mine ? until(k, kBehind, n) > 0 : gets && until(k, 2 * kBehind, n) > 0;
      // Half of the lanes put first and half take first, so that links and memory are busy at the same time.
      MSCCLPP_ROLLED
      for (uint32_t turn = lane; turn < lane + 2; ++turn) {
        if (turn % 2 == 0 && k < n) put();
        if (turn % 2 != 0 && comes) take();
      }
      pipeline.end(takes(k));
    }
    pipeline.close([&](uint32_t p) MSCCLPP_LAMBDA { return workers.has(p) || (brings && p == a.root) ? n : 0; },
               [&](uint32_t p) MSCCLPP_LAMBDA { return mine || (gets && workers.has(p)) ? n : 0; });
  });
}

// fetch is for two ranks, of which one has a message for the other. The first rank puts it into slots of
// its own memory, and the second loads it from there. While the link carries nothing else, loads are as
// fast as stores, and the second rank can use the data at once. For each part, the first rank calls
// meanwhile(at, bytes) and the second take(to, from, at, bytes).
template <class Meanwhile, class Take>
MSCCLPP_DEVICE void fetch(const Args& a, bool gives, Meanwhile meanwhile, Take take) {
  const Common& c = a.common;
  const uint64_t bytes = a.count * a.element;
  const uint32_t peer = 1 - c.rank;
  between(a, [&](uint32_t lane) MSCCLPP_LAMBDA {
    const Steps steps{bytes, even_step(bytes, c.lanes, a.chunk), lane, c.lanes};
    const uint64_t n = steps.size();
    const Pipeline pipeline(a, lane);
    MSCCLPP_ROLLED
    for (uint64_t k = 0; k < n; ++k) {
      const auto puts = [&](uint32_t) MSCCLPP_LAMBDA { return gives ? k + 1 : 0; };
      const auto takes = [&](uint32_t) MSCCLPP_LAMBDA { return gives ? 0 : k + 1; };
      if (!pipeline.begin(puts, takes)) return;
      const uint64_t at = steps.first(k), size = steps.count(k);
      if (gives) {
        if (k > 0) pipeline.signal([&](uint32_t) MSCCLPP_LAMBDA { return k; });
        copy(pipeline.kept(peer, k), static_cast<const char*>(a.input) + at, size, thread_id(), block_dim());
        meanwhile(at, size);
      } else {
        take(static_cast<char*>(a.output) + at, pipeline.fetched(peer, k), at, size);
      }
      pipeline.end(takes);
    }
    pipeline.close([&](uint32_t) MSCCLPP_LAMBDA { return gives ? n : 0; }, [&](uint32_t) MSCCLPP_LAMBDA { return gives ? 0 : n; });
  });
}

MSCCLPP_DEVICE void broadcast_fetch(const Args& a) {
  const bool root = a.common.rank == a.root;
  const char* const in = static_cast<const char*>(a.input);
  char* const out = static_cast<char*>(a.output);
  fetch(a, root,
        [&](uint64_t at, uint64_t bytes) MSCCLPP_LAMBDA {
          if (out != in) copy(out + at, in + at, bytes, thread_id(), block_dim());
        },
        [&](char* to, const char* from, uint64_t, uint64_t bytes) MSCCLPP_LAMBDA { copy(to, from, bytes, thread_id(), block_dim()); });
}

template <class T>
MSCCLPP_DEVICE void reduce_fetch(const Args& a) {
  const uint32_t rank = a.common.rank;
  fetch(a, rank != a.root, [](uint64_t, uint64_t) MSCCLPP_LAMBDA {},
        [&](char* to, const char* from, uint64_t at, uint64_t bytes) MSCCLPP_LAMBDA {
          const auto inputs = [&](uint32_t r) MSCCLPP_LAMBDA { return r == rank ? static_cast<const char*>(a.input) + at : from; };
          const uint64_t count = bytes / sizeof(T);
          if (!sum_unrolled<T, 2>(a, count, 0, 1, inputs, [to](uint32_t) MSCCLPP_LAMBDA { return to; }, false)) {
            reduce_step<T>(to, inputs, 2, count, reduction_of(a));
          }
        });
}

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_PIPELINE_H_
