// Messages between pairs of ranks, any number of them at once: send, receive,
// gather, scatter, all-to-all-v, and groups of all of these.
#ifndef MSCCLPP_COLLECTIVES_TRANSFERS_H_
#define MSCCLPP_COLLECTIVES_TRANSFERS_H_

#include "links.h"

namespace mscclpp {
namespace collectives {

// The messages of one direction and peer, which go one after the other: the one at
// the front, as far as a lane has come with it.
struct Queue {
  char* buffer;
  uint64_t bytes;
  uint64_t chunk;   // the next of this lane
  uint32_t number;  // in the group's list
  uint32_t empty;   // not 0: nothing is left for this lane
};

// One queue for each peer to send to, then one for each to receive from. On GPUs an
// array of each thread's own would be local memory, so the block shares one, which its
// threads divide among them; elsewhere every thread has all of it.
#if MSCCLPP_TARGET_GPU
struct Queues {
  MSCCLPP_DEVICE Queue& operator[](uint32_t q) const {
    static __attribute__((shared)) Queue queues[2 * kMaxRanks];
    return queues[q];
  }
  MSCCLPP_DEVICE static uint32_t first() { return thread_id(); }
  MSCCLPP_DEVICE static uint32_t step() { return block_dim(); }
};
#else
struct Queues {
  Queue queues[2 * kMaxRanks];
  Queue& operator[](uint32_t q) { return queues[q]; }
  const Queue& operator[](uint32_t q) const { return queues[q]; }
  static uint32_t first() { return 0; }
  static uint32_t step() { return 1; }
};
#endif

// Message t of the group, by value: a pointer to either place would have the compiler
// copy the kernel's argument to local memory.
MSCCLPP_DEVICE Transfer listed_message(const TransferArgs& a, uint32_t t) {
  if (a.memory == nullptr) return a.list[t];
  const uint64_t* words = a.memory + uint64_t(t) * kTransferWords;
  const uint64_t last = load_relaxed_device(words + 2);
  return Transfer{reinterpret_cast<void*>(load_relaxed_device(words)), load_relaxed_device(words + 1), uint32_t(last), uint32_t(last >> 32)};
}

MSCCLPP_DEVICE void note_length(State* s, uint32_t peer, uint64_t sent, uint64_t expected) {
  store_relaxed(&s->sent, sent);
  store_relaxed(&s->expected, expected);
  store_release(&s->mismatch, kMismatchLength + peer);
}
// refuse_length tells the host of a message of another length than was expected.
template <class C>
MSCCLPP_DEVICE void refuse_length(const C& c, uint32_t peer, uint64_t sent, uint64_t expected) {
  note_length(c.state, peer, sent, expected);
  if (c.notes != nullptr && c.notes != c.state) note_length(c.notes, peer, sent, expected);
}

// Progress of one launch over its list, for one lane. Chunk i of a message goes
// through lane i % lanes; an empty message is one empty chunk.
class Progress {
 public:
  MSCCLPP_DEVICE Progress(const TransferArgs& a, uint32_t lane) : a_(a), c_(a.common), lane_(lane) {
    block_sync();  // other threads may still look at the lane before
    for (uint32_t q = Queues::first(); q < count(); q += Queues::step()) queues_[q].number = a_.transfers;
    block_sync();
    for (uint32_t t = Queues::first(); t < a_.transfers; t += Queues::step()) {
      const uint32_t q = queue_of(message(t));
      if (t == 0 || queue_of(message(t - 1)) != q) queues_[q].number = t;
    }
    block_sync();
    for (uint32_t q = Queues::first(); q < count(); q += Queues::step()) advance(q, queues_[q].number);
    block_sync();
  }

  MSCCLPP_DEVICE uint32_t count() const { return 2 * c_.ranks; }
  MSCCLPP_DEVICE bool complete(uint32_t q) const { return queues_[q].empty != 0; }
  MSCCLPP_DEVICE bool receives(uint32_t q) const { return q >= c_.ranks; }
  MSCCLPP_DEVICE uint32_t peer(uint32_t q) const { return receives(q) ? q - c_.ranks : q; }

  // Whether queue q can move a chunk now; for one thread.
  MSCCLPP_DEVICE bool movable(uint32_t q) const {
    if (complete(q)) return false;
    return receives(q) ? Pipe::ready(c_, lane_, peer(q)) : Pipe::room(c_, lane_, peer(q));
  }

  // move copies one chunk. False: the peer's message has another length.
  MSCCLPP_DEVICE bool move(uint32_t q) {
    const Queue x = queues_[q];
    const uint64_t at = x.chunk * Pipe::payload(c_), bytes = smaller(Pipe::payload(c_), x.bytes - at);
    if (receives(q)) {
      char* slot = Pipe::from(c_, lane_, peer(q));
      const uint64_t sent = reinterpret_cast<const PipeHeader*>(slot)->total;
      if (sent != x.bytes) {
        if (thread_id() == 0) refuse_length(c_, peer(q), sent, x.bytes);
        return false;
      }
      copy(x.buffer + at, Pipe::data(slot), bytes, thread_id(), block_dim());
      Pipe::take(c_, lane_, peer(q));
    } else {
      char* slot = Pipe::to(c_, lane_, peer(q));
      if (thread_id() == 0) *reinterpret_cast<PipeHeader*>(slot) = PipeHeader{bytes, x.bytes};
      copy(Pipe::data(slot), x.buffer + at, bytes, thread_id(), block_dim());
      Pipe::put(c_, lane_, peer(q));
    }
    // All have read the queue, since taking and putting are barriers; and nobody reads
    // it again before the next one.
    if (Queues::first() == 0) {
      if (x.chunk + c_.lanes < chunks(x.bytes)) {
        queues_[q].chunk = x.chunk + c_.lanes;
      } else {
        advance(q, x.number + 1);
      }
    }
    return true;
  }

 private:
  MSCCLPP_DEVICE Transfer message(uint32_t t) const { return listed_message(a_, t); }
  MSCCLPP_DEVICE uint32_t queue_of(const Transfer& x) const { return x.receive * c_.ranks + x.peer; }

  MSCCLPP_DEVICE uint64_t chunks(uint64_t bytes) const {
    const uint64_t n = ceil_div(bytes, Pipe::payload(c_));
    return n == 0 ? 1 : n;
  }

  // advance puts the first message from number t on that has a chunk for this lane at
  // the front of queue q.
  MSCCLPP_DEVICE void advance(uint32_t q, uint32_t t) {
    for (; t < a_.transfers; ++t) {
      const Transfer x = message(t);
      if (queue_of(x) != q) break;
      if (chunks(x.bytes) <= lane_) continue;
      queues_[q] = Queue{static_cast<char*>(x.buffer), x.bytes, lane_, t, 0};
      return;
    }
    queues_[q].empty = 1;
  }

  const TransferArgs& a_;
  const Common& c_;
  const uint32_t lane_;
  Queues queues_;
};

// into_memory writes down the messages of this launch for the one that performs them.
MSCCLPP_DEVICE void into_memory(const TransferArgs& a) {
  for (uint32_t t = global_thread(); t < a.listed; t += global_threads()) {
    uint64_t* words = a.memory + (a.first + t) * kTransferWords;
    store_relaxed_device(words, reinterpret_cast<uint64_t>(a.list[t].buffer));
    store_relaxed_device(words + 1, a.list[t].bytes);
    store_relaxed_device(words + 2, uint64_t(a.list[t].receive) << 32 | a.list[t].peer);
  }
}

// transfers moves whatever can be moved until all is done: no order of the list
// and no shortage of slots towards one peer holds up the others.
MSCCLPP_DEVICE void transfers(const TransferArgs& a) {
  if (a.listed != 0) return into_memory(a);
  const Common& c = a.common;
  for (uint32_t lane = block_id(); lane < c.lanes; lane += grid_dim()) {
    Progress progress(a, lane);
    for (;;) {
      uint32_t waiting = progress.count();  // the first queue that is not complete
      bool moved = false;
      for (uint32_t q = 0; q < progress.count(); ++q) {
        while (block_sync_and(thread_id() != 0 || progress.movable(q))) {
          if (!progress.move(q)) return;
          moved = true;
        }
        if (waiting == progress.count() && !progress.complete(q)) waiting = q;
      }
      if (waiting == progress.count()) break;
      if (moved) continue;
      bool ok = true;
      if (thread_id() == 0) {
        const WaitSite site{c.signature.collective << 8 | c.signature.algorithm,
                            uint32_t(progress.receives(waiting) ? kWordPipeHead : kWordPipeTail), progress.peer(waiting), 0};
        ok = wait_until(c.control, site, [&]() MSCCLPP_LAMBDA {
          for (uint32_t q = 0; q < progress.count(); ++q) {
            if (progress.movable(q)) return true;
          }
          return false;
        });
      }
      if (!block_sync_and(ok)) return;
    }
  }
}

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_TRANSFERS_H_
