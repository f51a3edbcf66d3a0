// Messages between pairs of ranks, any number of them at once: send, receive,
// gather, scatter, all-to-all-v, and groups of all of these.
#ifndef MSCCLPP_COLLECTIVES_TRANSFERS_H_
#define MSCCLPP_COLLECTIVES_TRANSFERS_H_

#include "links.h"

namespace mscclpp {
namespace collectives {

// The next chunk of each transfer, alike for all threads of a block. On GPUs an array
// of each thread's own would be local memory, so the block shares one, which its first
// thread writes; elsewhere every thread has one.
#if MSCCLPP_TARGET_GPU
struct NextChunks {
  MSCCLPP_DEVICE static uint64_t* words() {
    static __attribute__((shared)) uint64_t next[kMaxTransfers];
    return next;
  }
  MSCCLPP_DEVICE uint64_t operator[](uint32_t t) const { return words()[t]; }
  MSCCLPP_DEVICE void set(uint32_t t, uint64_t chunk) {
    if (thread_id() == 0) words()[t] = chunk;
  }
};
#else
struct NextChunks {
  uint64_t words[kMaxTransfers];
  uint64_t operator[](uint32_t t) const { return words[t]; }
  void set(uint32_t t, uint64_t chunk) { words[t] = chunk; }
};
#endif

// Progress of one launch over its list, for one lane. Chunk i of a message goes
// through lane i % lanes; an empty message is one empty chunk.
class Progress {
 public:
  MSCCLPP_DEVICE Progress(const TransferArgs& a, uint32_t lane) : a_(a), c_(a.common), lane_(lane) {
    block_sync();  // other threads may still look at the lane before
    for (uint32_t t = 0; t < a.transfers; ++t) next_.set(t, lane);
    block_sync();
  }

  MSCCLPP_DEVICE bool complete(uint32_t t) const { return next_[t] >= chunks(t); }

  // Whether transfer t can move a chunk now; for one thread.
  MSCCLPP_DEVICE bool movable(uint32_t t) const {
    const Transfer& x = a_.list[t];
    if (complete(t)) return false;
    // Messages of one pair and direction go one after the other; they are neighbors.
    if (t > 0 && a_.list[t - 1].peer == x.peer && a_.list[t - 1].receive == x.receive && !complete(t - 1)) return false;
    return x.receive ? Pipe::ready(c_, lane_, x.peer) : Pipe::room(c_, lane_, x.peer);
  }

  // move copies one chunk. False: the peer's message has another length.
  MSCCLPP_DEVICE bool move(uint32_t t) {
    const Transfer& x = a_.list[t];
    const uint64_t chunk = next_[t], at = chunk * Pipe::payload(c_), bytes = smaller(Pipe::payload(c_), x.bytes - at);
    char* buffer = static_cast<char*>(x.buffer) + at;
    if (x.receive) {
      char* slot = Pipe::from(c_, lane_, x.peer);
      if (reinterpret_cast<const PipeHeader*>(slot)->total != x.bytes) {
        if (thread_id() == 0) c_.state->mismatch = kMismatchLength + x.peer;
        return false;
      }
      copy(buffer, Pipe::data(slot), bytes, thread_id(), block_dim());
      Pipe::take(c_, lane_, x.peer);
    } else {
      char* slot = Pipe::to(c_, lane_, x.peer);
      if (thread_id() == 0) *reinterpret_cast<PipeHeader*>(slot) = PipeHeader{bytes, x.bytes};
      copy(Pipe::data(slot), buffer, bytes, thread_id(), block_dim());
      Pipe::put(c_, lane_, x.peer);
    }
    next_.set(t, chunk + c_.lanes);  // all have read it: taking and putting are barriers
    return true;
  }

 private:
  MSCCLPP_DEVICE uint64_t chunks(uint32_t t) const {
    const uint64_t n = ceil_div(a_.list[t].bytes, Pipe::payload(c_));
    return n == 0 ? 1 : n;
  }

  const TransferArgs& a_;
  const Common& c_;
  const uint32_t lane_;
  NextChunks next_;
};

// transfers moves whatever can be moved until all is done: no order of the list
// and no shortage of slots towards one peer holds up the others.
MSCCLPP_DEVICE void transfers(const TransferArgs& a) {
  const Common& c = a.common;
  for (uint32_t lane = block_id(); lane < c.lanes; lane += grid_dim()) {
    Progress progress(a, lane);
    for (;;) {
      bool complete = true, moved = false;
      for (uint32_t t = 0; t < a.transfers; ++t) {
        while (block_sync_and(thread_id() != 0 || progress.movable(t))) {
          if (!progress.move(t)) return;
          moved = true;
        }
        complete = complete && progress.complete(t);
      }
      if (complete) break;
      if (moved) continue;
      bool ok = true;
      if (thread_id() == 0) {
        ok = wait_until(c.control, WaitSite{c.signature.collective << 8 | c.signature.algorithm, kWordPipeHead, c.rank, 0}, [&]() MSCCLPP_LAMBDA {
          for (uint32_t t = 0; t < a.transfers; ++t) {
            if (progress.movable(t)) return true;
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
