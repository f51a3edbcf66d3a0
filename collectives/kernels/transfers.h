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
  uint64_t payload; // of a full one
  uint64_t position;  // of it in the pipe
  uint64_t unsignaled;  // not 0: the number of chunks sent, which was not signaled yet
  uint32_t number;  // in the group's list
  uint32_t empty;   // not 0: nothing is left for this lane
  uint32_t movable; // not 0: a chunk of it can be moved in this round
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
// refuse_length notes for the host a message of another length than was expected.
template <class C>
MSCCLPP_DEVICE void refuse_length(const C& c, uint32_t peer, uint64_t sent, uint64_t expected) {
  note_length(c.state, peer, sent, expected);
  if (c.notes != nullptr && c.notes != c.state) note_length(c.notes, peer, sent, expected);
}

// Turns goes round the queues that a wait is for, one a poll, so that the wait names by turns each rank it waits for. Waits look
// at the host's words after a power of two of polls; a round is odd, so that they meet each queue.
class Turns {
 public:
  MSCCLPP_DEVICE explicit Turns(uint32_t queues) : round_(queues | 1), at_(0) {}
  MSCCLPP_DEVICE uint32_t next() { return at_ = at_ + 1 < round_ ? at_ + 1 : 0; }

 private:
  uint32_t round_, at_;
};

constexpr uint64_t kLeastChunk = 8192;  // where there is as much

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
    for (uint32_t q = Queues::first(); q < count(); q += Queues::step()) {
      queues_[q].position = receives(q) ? Pipe::received(c_, lane_, peer(q)) : Pipe::sent(c_, lane_, peer(q));
      queues_[q].unsignaled = 0;
      advance(q, queues_[q].number);
    }
    block_sync();
  }

  // run moves everything, in each round a chunk of every queue that can be moved. It goes from queue to
  // queue with a part of each. If all blocks first sent and then took, the link would be idle while they
  // take. False: leave the kernel.
  MSCCLPP_DEVICE bool run() {
    for (;;) {
      look();
      signal_sent();
      uint32_t waiting = count();  // the first queue that is not complete
      bool any = false;
      uint64_t most = 0;
      for (uint32_t q = 0; q < count(); ++q) {
        if (queues_[q].empty == 0 && waiting == count()) waiting = q;
        if (queues_[q].movable == 0) continue;
        if (!begin(q)) return false;
        any = true;
        most = larger(most, queues_[q].payload);
      }
      if (waiting == count()) return true;
      if (!any) {
        if (!wait(waiting)) return false;
        continue;
      }
      MSCCLPP_ROLLED
      for (uint64_t at = 0; at < most; at += kTurnBytes) {
        MSCCLPP_ROLLED
        for (uint32_t q = 0; q < count(); ++q) {
          if (queues_[q].movable != 0) move(q, at);
        }
      }
      turn();
    }
  }

 private:
  MSCCLPP_DEVICE uint32_t count() const { return 2 * c_.ranks; }
  MSCCLPP_DEVICE bool receives(uint32_t q) const { return q >= c_.ranks; }
  MSCCLPP_DEVICE uint32_t peer(uint32_t q) const { return receives(q) ? q - c_.ranks : q; }
  MSCCLPP_DEVICE Transfer message(uint32_t t) const { return listed_message(a_, t); }
  MSCCLPP_DEVICE uint32_t queue_of(const Transfer& x) const { return x.receive * c_.ranks + x.peer; }

  MSCCLPP_DEVICE uint64_t payload_of(uint64_t bytes, uint32_t peer) const {
    const uint64_t most = peer == c_.rank ? Pipe::own_payload(c_) : Pipe::payload(c_), each = even_step(bytes, c_.lanes, most);
    return each < kLeastChunk ? smaller(kLeastChunk, most) : each;
  }
  MSCCLPP_DEVICE static uint64_t chunks(uint64_t bytes, uint64_t payload) { return bytes == 0 ? 1 : ceil_div(bytes, payload); }

  // Whether queue q can move a chunk now; for one thread.
  MSCCLPP_DEVICE bool movable(uint32_t q) const {
    if (queues_[q].empty != 0) return false;
    const uint64_t position = queues_[q].position;
    return receives(q) ? Pipe::ready(c_, lane_, peer(q), position) : Pipe::room(c_, lane_, peer(q), position);
  }

  MSCCLPP_DEVICE char* slot(uint32_t q) const {
    const uint32_t to = receives(q) ? c_.rank : peer(q), from = receives(q) ? peer(q) : c_.rank;
    if (to == from) return Pipe::own_address(c_, lane_, queues_[q].position);
    return Pipe::address(c_, lane_, to, from, queues_[q].position);
  }

  // begin writes the header of the next chunk of queue q, or compares it, if it is the message's first
  // chunk in this lane. False: the peer's message has another length.
  MSCCLPP_DEVICE bool begin(uint32_t q) {
    const Queue& x = queues_[q];
    if (x.chunk != lane_) return true;
    PipeHeader* const header = reinterpret_cast<PipeHeader*>(slot(q));
    if (!receives(q)) {
      if (thread_id() == 0) *header = PipeHeader{bytes_of(x), x.bytes};
      return true;
    }
    const uint64_t sent = header->total;
    if (sent != x.bytes && thread_id() == 0) refuse_length(c_, peer(q), sent, x.bytes);
    return sent == x.bytes;
  }

  // move copies a part of that chunk, from byte `at` on.
  MSCCLPP_DEVICE void move(uint32_t q, uint64_t at) {
    const Queue& x = queues_[q];
    const uint64_t bytes = bytes_of(x);
    if (at >= bytes) return;
    char* const here = x.buffer + x.chunk * x.payload + at;
    char* const there = Pipe::data(slot(q)) + at;
    copy(receives(q) ? here : there, receives(q) ? there : here, smaller(bytes - at, kTurnBytes), thread_id(), block_dim());
  }
  MSCCLPP_DEVICE static uint64_t bytes_of(const Queue& x) { return smaller(x.payload, x.bytes - x.chunk * x.payload); }

  // look finds the queues that can be moved, for all threads alike.
  MSCCLPP_DEVICE void look() {
#if MSCCLPP_TARGET_GPU
    for (uint32_t q = Queues::first(); q < count(); q += Queues::step()) queues_[q].movable = movable(q);
    block_sync();
#else
    for (uint32_t q = 0; q < count(); ++q) queues_[q].movable = block_sync_and(thread_id() != 0 || movable(q));
#endif
  }

  // signal_sent signals the chunks that the last round has sent. Its fence takes microseconds, which
  // overlap with the next round: only the threads that signal wait for it.
  MSCCLPP_DEVICE void signal_sent() {
    for (uint32_t q = Queues::first(); q < c_.ranks; q += Queues::step()) {
      if (queues_[q].unsignaled != 0 && signaling_thread()) Pipe::signal(c_, lane_, q, queues_[q].unsignaled);
      queues_[q].unsignaled = 0;
    }
  }

  // turn ends a round.
  MSCCLPP_DEVICE void turn() {
    block_sync();  // all have copied, and read the queues
    for (uint32_t q = Queues::first(); q < count(); q += Queues::step()) {
      Queue& x = queues_[q];
      if (x.movable == 0) continue;
      const uint64_t moved = ++x.position;
      if (signaling_thread()) receives(q) ? Pipe::taken(c_, lane_, peer(q), moved) : Pipe::filled(c_, lane_, peer(q), moved);
      if (x.chunk + c_.lanes < chunks(x.bytes, x.payload)) {
        x.chunk += c_.lanes;
      } else {
        advance(q, x.number + 1);
      }
      x.unsignaled = moved;
    }
  }
  // Where every thread has all queues, the first one signals.
  MSCCLPP_DEVICE static bool signaling_thread() { return Queues::step() > 1 || thread_id() == 0; }

  MSCCLPP_DEVICE WaitSite site_of(uint32_t q) const {
    return WaitSite{kernel_of(c_.signature), uint32_t(receives(q) ? kWordPipeHead : kWordPipeTail), peer(q), 0, &c_.state->left};
  }

  MSCCLPP_DEVICE bool wait(uint32_t waiting) {
    bool ok = true;
    if (thread_id() == 0) {
      WaitSite site = site_of(waiting);
      Turns turns(count());
      ok = wait_until(c_.control, site, [&]() MSCCLPP_LAMBDA {
        for (uint32_t q = 0; q < count(); ++q) {
          if (movable(q)) return true;
        }
        const uint32_t q = turns.next();
        if (q < count() && queues_[q].empty == 0) site = site_of(q);
        return false;
      });
    }
    return block_sync_and(ok);
  }

  // advance puts the first message from number t on that has a chunk for this lane at
  // the front of queue q.
  MSCCLPP_DEVICE void advance(uint32_t q, uint32_t t) {
    for (; t < a_.transfers; ++t) {
      const Transfer x = message(t);
      if (queue_of(x) != q) break;
      const uint64_t payload = payload_of(x.bytes, x.peer);
      if (chunks(x.bytes, payload) <= lane_) continue;
      queues_[q] = Queue{static_cast<char*>(x.buffer), x.bytes, lane_, payload, queues_[q].position, 0, t, 0, 0};
      return;
    }
    queues_[q].empty = 1;
  }

  const TransferArgs& a_;
  const Common& c_;
  const uint32_t lane_;
  Queues queues_;
};

// store_list puts the messages of this launch into memory, for the launch that moves them.
MSCCLPP_DEVICE void store_list(const TransferArgs& a) {
  for (uint32_t t = global_thread(); t < a.listed; t += global_threads()) {
    uint64_t* words = a.memory + (a.first + t) * kTransferWords;
    store_relaxed_device(words, reinterpret_cast<uint64_t>(a.list[t].buffer));
    store_relaxed_device(words + 1, a.list[t].bytes);
    store_relaxed_device(words + 2, uint64_t(a.list[t].receive) << 32 | a.list[t].peer);
    store_relaxed_device(words + 3, a.theirs[t]);
  }
}

// transfers moves whatever can be moved until all is done, so neither the order of the list nor a shortage
// of slots towards one peer delays the messages of others.
MSCCLPP_DEVICE void transfers(const TransferArgs& a) {
  if (a.listed != 0) return store_list(a);
  for (uint32_t lane = block_id(); lane < a.common.lanes; lane += grid_dim()) {
    Progress progress(a, lane);
    if (!progress.run()) return;
  }
}

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_TRANSFERS_H_
