// Barriers, stages and pipes between blocks of different ranks, over the scratch
// memory that args.h lays out.
//
// All counters are 64 bits and only grow. The rank that writes a word keeps the
// count in its own State and stores it, so nobody adds to memory of another rank. A
// counter is read before data with acquire, and written after data with release.
//
// Every wait returns false once the communicator was aborted. The kernel then
// leaves at once, and nothing of its state matters any more.
#ifndef MSCCLPP_COLLECTIVES_LINKS_H_
#define MSCCLPP_COLLECTIVES_LINKS_H_

#include <mscclpp/device.h>

#include "args.h"
#include "outlined.h"

namespace mscclpp {
namespace collectives {

// Kinds of word, for the reports of waits that were left.
enum Word : uint32_t { kWordPacket = 1, kWordPipeHead, kWordPipeTail, kWordStageHead, kWordStageTail, kWordSync, kWordSignature, kWordSwitch, kWordStep, kWordOffer };

// kernel_of marks such a wait, with its Word beside it. Numbers of algorithms have 24 bits.
MSCCLPP_DEVICE uint32_t kernel_of(const Signature& s) { return s.collective << 24 | s.algorithm; }

MSCCLPP_DEVICE uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }
MSCCLPP_DEVICE uint64_t larger(uint64_t a, uint64_t b) { return a < b ? b : a; }
MSCCLPP_DEVICE uint64_t round_up(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit * unit; }
MSCCLPP_DEVICE uint64_t ceil_div(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit; }

// blocks_sync is a barrier of the blocks of this launch.
MSCCLPP_DEVICE bool blocks_sync(State* state, const WaitControl* control) { return grid_sync(&state->grid, control, 0, &state->left); }

// A range of elements: the share of one rank in a step.
struct Slice {
  uint64_t first;
  uint64_t count;
};

// slice_of cuts count elements into one slice a rank. All but the last start at a
// multiple of 64 bytes; slices of high ranks are empty when there is little.
MSCCLPP_DEVICE Slice slice_of(uint64_t count, uint32_t rank, uint32_t ranks, uint32_t element) {
  const uint64_t per = round_up(ceil_div(count, ranks), 64 / element);
  const uint64_t first = smaller(count, per * rank);
  return {first, smaller(count - first, per)};
}

// Steps cuts elements into chunks, and deals the chunks to lanes.
struct Steps {
  uint64_t total;  // elements
  uint64_t each;   // of a full step
  uint32_t lane;
  uint32_t lanes;

  MSCCLPP_DEVICE uint64_t size() const {
    const uint64_t all = ceil_div(total, each);
    return all > lane ? ceil_div(all - lane, lanes) : 0;
  }
  MSCCLPP_DEVICE uint64_t first(uint64_t k) const { return (k * lanes + lane) * each; }
  MSCCLPP_DEVICE uint64_t count(uint64_t k) const { return smaller(each, total - first(k)); }
};

// return_credits stores in a peer's word `tail` how many slots were taken. One thread calls it, behind a
// barrier of all threads that took them. On NVIDIA a relaxed store is enough: the block has stored, summed
// or branched on the data by now, so the loads from the slots are done. A release would wait, for
// microseconds, until all stores of the block have arrived.
MSCCLPP_DEVICE void return_credits(uint64_t* tail, uint64_t taken) {
#if MSCCLPP_TARGET_CUDA
  store_relaxed(tail, taken);
#else
  store_release(tail, taken);
#endif
}

// A block copies so many bytes in one direction before it turns to another one, so that links and memory
// are busy at the same time. On a processor copies are sequential anyhow.
#if MSCCLPP_TARGET_GPU
constexpr uint64_t kTurnBytes = 32 << 10;
#elif MSCCLPP_TARGET_CHECK
constexpr uint64_t kTurnBytes = 256;
#else
constexpr uint64_t kTurnBytes = 1 << 20;
#endif

// distance_of is how far behind this rank the peer is to which a lane turns as number i, from 0 on. Lanes begin with different
// peers, so that a rank uses the links to all of them at once, and all ranks do not send to one.
MSCCLPP_DEVICE uint32_t distance_of(const Common& c, uint32_t lane, uint32_t i) { return 1 + (lane + i) % (c.ranks - 1); }
MSCCLPP_DEVICE uint32_t peer_of(const Common& c, uint32_t lane, uint32_t i) { return (c.rank + distance_of(c, lane, i)) % c.ranks; }

// MSCCLPP_TURN is the same order for kernels of packets and of stages: for number i, from 1 on, how far behind this rank the peer is to
// which the block turns. AMD's GPUs have a link for each pair; behind a switch all blocks begin with the next rank, which costs nothing.
#if MSCCLPP_TARGET_HIP || MSCCLPP_TARGET_CHECK
MSCCLPP_DEVICE uint32_t turned(uint32_t i, uint32_t ranks) {
  i += ranks > 2 ? block_id() % (ranks - 1) : 0;
  return i < ranks ? i : i - (ranks - 1);
}
#define MSCCLPP_TURN(i, ranks) turned(i, ranks)
#else
#define MSCCLPP_TURN(i, ranks) (i)
#endif

// even_step is the size of a step, at most `most`, a multiple of 64, with which all lanes have equally
// many steps. Otherwise one lane would work on its last step while the others are done.
MSCCLPP_DEVICE uint64_t even_step(uint64_t total, uint32_t lanes, uint64_t most) {
  const uint64_t share = ceil_div(total, lanes);
  return share == 0 ? most : round_up(ceil_div(share, ceil_div(share, most)), 64);
}

// piece_of is the share of one rank of a staged chunk that holds one for each.
MSCCLPP_DEVICE uint64_t piece_of(uint64_t chunk, uint32_t ranks) { return chunk / ranks / 64 * 64; }

// The words that `from` writes for `to`.
template <class C>
MSCCLPP_DEVICE Mailbox* mailbox(const C& c, uint32_t to, uint32_t from, uint32_t lane) {
  return reinterpret_cast<Mailbox*>(c.scratch[to]) + (uint64_t(lane) * c.ranks + from);
}

// at_least waits until *word, which peer writes, has reached value.
MSCCLPP_DEVICE bool at_least(const Common& c, const uint64_t* word, uint64_t value, Word what, uint32_t peer) {
  if (load_acquire(word) >= value) return true;
  return wait_word(c.control, word, value, kernel_of(c.signature), what, peer, &c.state->left);
}

// Sync is a barrier of all ranks, one for each lane. Data that a rank wrote before it,
// in its own or in others' memory, is visible behind it.
class Sync {
 public:
  MSCCLPP_DEVICE Sync(const Common& c, uint32_t lane) : c_(c), lane_(lane), count_(c.state->lanes[lane].sync) {}

  // enter signals all peers.
  MSCCLPP_DEVICE void enter() {
    ++count_;
    block_sync();
    for (uint32_t i = thread_id() + 1; i < c_.ranks; i += block_dim()) signal((c_.rank + i) % c_.ranks);
  }

  // enter_with also sends them the places of buffers, which they may read from their
  // mailbox until they enter the next barrier. That one must not carry numbers.
  MSCCLPP_DEVICE void enter_with(uint64_t input, uint64_t output, uint64_t memory) {
    ++count_;
    block_sync();
    for (uint32_t i = thread_id() + 1; i < c_.ranks; i += block_dim()) {
      const uint32_t peer = (c_.rank + i) % c_.ranks;
      Mailbox* m = mailbox(c_, peer, c_.rank, lane_);
      m->input = input;
      m->output = output;
      m->memory = memory;
      signal(peer);
    }
  }

  // meet is enter_with and wait by packets: one store and no fence, where a release
  // would first wait for the link. It is for the start of a launch alone. Only data of
  // earlier kernels has to be published there, and their end has done that; on other
  // targets fences do. All ranks enter the next barrier when they no longer need the
  // numbers.
  MSCCLPP_DEVICE bool meet(uint64_t input, uint64_t output, uint64_t memory) {
    const uint32_t flag = static_cast<uint32_t>(++count_) | 0x80000000u;
    const uint64_t mine[3] = {input, output, memory};
    bool ok = true;
    order();
    for (uint32_t i = thread_id(); i < 3 * c_.ranks; i += block_dim()) {
      const uint32_t peer = i / 3, k = i - 3 * peer;
      if (peer != c_.rank) writePacket(meeting(peer, c_.rank) + k, k == 0 ? mine[0] : k == 1 ? mine[1] : mine[2], flag);
    }
    for (uint32_t i = thread_id(); i < 3 * c_.ranks && ok; i += block_dim()) {
      const uint32_t peer = i / 3, k = i - 3 * peer;
      if (peer == c_.rank) continue;
      const LL16Packet* p = meeting(c_.rank, peer) + k;
      const WaitSite site{kernel_of(c_.signature), kWordSync, peer, count_, &c_.state->left};
      uint64_t theirs = 0;
      ok = wait_brief(c_.control, site, [&]() MSCCLPP_LAMBDA { return pollPacket(p, flag, theirs); });
      (void)load_acquire(reinterpret_cast<const uint64_t*>(p));  // data is read behind it, which polls do not order
      Mailbox* m = mailbox(c_, c_.rank, peer, lane_);
      (k == 0 ? m->input : k == 1 ? m->output : m->memory) = theirs;
    }
    order();
    return block_sync_and(ok);
  }

  MSCCLPP_DEVICE bool wait() {
    bool ok = true;
    for (uint32_t i = thread_id() + 1; i < c_.ranks && ok; i += block_dim()) {
      const uint32_t peer = (c_.rank + i) % c_.ranks;
      ok = at_least(c_, &mailbox(c_, c_.rank, peer, lane_)->sync, count_, kWordSync, peer);
    }
    return block_sync_and(ok);
  }

  MSCCLPP_DEVICE bool barrier() {
    enter();
    return wait();
  }

  MSCCLPP_DEVICE void close() {
    block_sync();
    if (thread_id() == 0) c_.state->lanes[lane_].sync = count_;
  }

 private:
  MSCCLPP_DEVICE LL16Packet* meeting(uint32_t to, uint32_t from) const {
    return reinterpret_cast<LL16Packet*>(mailbox(c_, to, from, lane_)->meeting);
  }
  MSCCLPP_DEVICE static void order() {
#if !MSCCLPP_TARGET_CUDA
    fence_system();
#endif
  }
  MSCCLPP_DEVICE void signal(uint32_t peer) const {
    store_release(&mailbox(c_, peer, c_.rank, lane_)->sync, count_);
    MSCCLPP_HAPPENED(c_.control, kRecordSignal, 0, peer)
  }

  const Common& c_;
  const uint32_t lane_;
  uint64_t count_;
};

// Stage is the rotating buffer that one rank fills and all others read where it
// lies: data is staged once however many read it. A chunk's slot is filled again
// once every peer has said that it is done with it, so a fast rank cannot overrun
// a slow one. Every peer consumes every chunk, also one that holds nothing for it.
//
// Chunks are numbered from 0 in the launch.
class Stage {
 public:
  MSCCLPP_DEVICE Stage(const Common& c, uint32_t lane) : c_(c), lane_(lane), state_(&c.state->lanes[lane]), base_(state_->staged) {}

  // slot waits until chunk i may be filled, and returns where; null after an abort.
  MSCCLPP_DEVICE char* slot(uint64_t i) { return room(i) ? address(c_.rank, base_ + i) : nullptr; }

  // room only waits: false after an abort.
  MSCCLPP_DEVICE bool room(uint64_t i) {
    const uint64_t position = base_ + i;
    bool ok = true;
    if (position >= c_.stage_slots) {
      for (uint32_t k = thread_id() + 1; k < c_.ranks && ok; k += block_dim()) {
        const uint32_t peer = (c_.rank + k) % c_.ranks;
        ok = at_least(c_, &mailbox(c_, c_.rank, peer, lane_)->stage_tail, position + 1 - c_.stage_slots, kWordStageTail, peer);
      }
    }
    return block_sync_and(ok);
  }

  // publish signals chunk i to the peers. All of it was written before.
  MSCCLPP_DEVICE void publish(uint64_t i) {
    block_sync();
    for (uint32_t k = thread_id() + 1; k < c_.ranks; k += block_dim()) {
      const uint32_t peer = (c_.rank + k) % c_.ranks;
      store_release(&mailbox(c_, peer, c_.rank, lane_)->stage_head, base_ + i + 1);
      MSCCLPP_HAPPENED(c_.control, kRecordSignal, 0, peer)
    }
  }

  // wait waits for chunk i of peer; wait_all, of every peer.
  MSCCLPP_DEVICE bool wait(uint32_t peer, uint64_t i) {
    return block_sync_and(thread_id() != 0 || arrived(peer, i));
  }
  MSCCLPP_DEVICE bool wait_all(uint64_t i) {
    bool ok = true;
    for (uint32_t k = thread_id() + 1; k < c_.ranks && ok; k += block_dim()) ok = arrived((c_.rank + k) % c_.ranks, i);
    return block_sync_and(ok);
  }

  // number counts chunk i of a rank from when the communicator was made.
  MSCCLPP_DEVICE uint64_t number(uint32_t rank, uint64_t i) const { return (rank == c_.rank ? base_ : state_->pulled[rank]) + i; }

  // data is where chunk i of peer lies.
  MSCCLPP_DEVICE const char* data(uint32_t peer, uint64_t i) const { return address(peer, state_->pulled[peer] + i); }

  // release says that this rank is done with chunk i of peer; release_all, of
  // every peer.
  MSCCLPP_DEVICE void release(uint32_t peer, uint64_t i) {
    block_sync();
    if (thread_id() == 0) done(peer, i);
  }
  MSCCLPP_DEVICE void release_all(uint64_t i) {
    block_sync();
    for (uint32_t k = thread_id() + 1; k < c_.ranks; k += block_dim()) done((c_.rank + k) % c_.ranks, i);
  }

  // close ends a launch in which every rank staged n chunks.
  MSCCLPP_DEVICE void close(uint64_t n) {
    block_sync();
    for (uint32_t p = thread_id(); p < c_.ranks; p += block_dim()) {
      if (p == c_.rank) {
        state_->staged = base_ + n;
      } else {
        state_->pulled[p] += n;
      }
    }
  }

  // close_one ends a launch in which only root staged.
  MSCCLPP_DEVICE void close_one(uint32_t root, uint64_t n) {
    block_sync();
    if (thread_id() == 0) (root == c_.rank ? state_->staged : state_->pulled[root]) += n;
  }

 private:
  MSCCLPP_DEVICE bool arrived(uint32_t peer, uint64_t i) const {
    return at_least(c_, &mailbox(c_, c_.rank, peer, lane_)->stage_head, state_->pulled[peer] + i + 1, kWordStageHead, peer);
  }
  MSCCLPP_DEVICE void done(uint32_t peer, uint64_t i) const {
    store_release(&mailbox(c_, peer, c_.rank, lane_)->stage_tail, state_->pulled[peer] + i + 1);
    MSCCLPP_HAPPENED(c_.control, kRecordSignal, 0, peer)
  }
  MSCCLPP_DEVICE char* address(uint32_t rank, uint64_t position) const {
    const uint64_t slot = uint64_t(lane_) * c_.stage_slots + position % c_.stage_slots;
    return reinterpret_cast<char*>(c_.scratch[rank]) + c_.stages + slot * c_.stage_slot;
  }

  const Common& c_;
  const uint32_t lane_;
  LaneState* const state_;
  const uint64_t base_;
};

// The pipes in the memory of a rank are those from the others, by rank: the ranks behind it come one place before.
MSCCLPP_DEVICE uint64_t pipe_of(uint32_t ranks, uint32_t lane, uint32_t to, uint32_t from) { return uint64_t(lane) * (ranks - 1) + from - (from > to); }

// PipeHeader precedes a chunk in a pipe.
struct alignas(64) PipeHeader {
  uint64_t bytes;    // in this chunk
  uint64_t total;    // of the message that it is part of
};

// A pipe carries chunks from one rank to one other, through slots in the memory of
// the receiver, which returns credits. Pipes of different pairs are independent, so
// asymmetric transfers, and those among some of the ranks, go through pipes. A rank
// has a short one to itself, which lies before the others.
struct Pipe {
  MSCCLPP_DEVICE static char* address(const Common& c, uint32_t lane, uint32_t to, uint32_t from, uint64_t position) {
    const uint64_t slot = pipe_of(c.ranks, lane, to, from) * c.pipe_slots + position % c.pipe_slots;
    return reinterpret_cast<char*>(c.scratch[to]) + c.pipes + slot * c.pipe_slot;
  }
  MSCCLPP_DEVICE static uint64_t payload(const Common& c) { return c.pipe_slot - sizeof(PipeHeader); }
  MSCCLPP_DEVICE static char* own_address(const Common& c, uint32_t lane, uint64_t position) {
    const uint64_t slot = uint64_t(lane) * c.pipe_slots + position % c.pipe_slots;
    return reinterpret_cast<char*>(c.scratch[c.rank]) + c.pipes - (slot + 1) * own_slot(c);
  }
  MSCCLPP_DEVICE static uint64_t own_payload(const Common& c) { return own_slot(c) - sizeof(PipeHeader); }
  MSCCLPP_DEVICE static char* data(char* slot) { return slot + sizeof(PipeHeader); }

  // How many chunks were put into the pipe to, and taken out of that from, a peer.
  MSCCLPP_DEVICE static uint64_t sent(const Common& c, uint32_t lane, uint32_t peer) { return c.state->lanes[lane].sent[peer]; }
  MSCCLPP_DEVICE static uint64_t received(const Common& c, uint32_t lane, uint32_t peer) { return c.state->lanes[lane].received[peer]; }

  // room and ready say, without waiting and to one thread, whether chunk number position
  // to peer can be put, or from peer be taken. wait_room and wait_ready wait for the next, as a
  // block.
  MSCCLPP_DEVICE static bool room(const Common& c, uint32_t lane, uint32_t peer, uint64_t position) {
    return position < c.pipe_slots || load_acquire(&mailbox(c, c.rank, peer, lane)->pipe_tail) + c.pipe_slots > position;
  }
  MSCCLPP_DEVICE static bool ready(const Common& c, uint32_t lane, uint32_t peer, uint64_t position) {
    return load_acquire(&mailbox(c, c.rank, peer, lane)->pipe_head) > position;
  }
  MSCCLPP_DEVICE static bool wait_room(const Common& c, uint32_t lane, uint32_t peer) {
    const uint64_t position = c.state->lanes[lane].sent[peer];
    return block_sync_and(thread_id() != 0 || position < c.pipe_slots ||
                          at_least(c, &mailbox(c, c.rank, peer, lane)->pipe_tail, position + 1 - c.pipe_slots, kWordPipeTail, peer));
  }
  MSCCLPP_DEVICE static bool wait_ready(const Common& c, uint32_t lane, uint32_t peer) {
    const uint64_t position = c.state->lanes[lane].received[peer];
    return block_sync_and(thread_id() != 0 ||
                          at_least(c, &mailbox(c, c.rank, peer, lane)->pipe_head, position + 1, kWordPipeHead, peer));
  }

  // The slots of the next chunk to, and from, peer.
  MSCCLPP_DEVICE static char* to(const Common& c, uint32_t lane, uint32_t peer) {
    return address(c, lane, peer, c.rank, c.state->lanes[lane].sent[peer]);
  }
  MSCCLPP_DEVICE static char* from(const Common& c, uint32_t lane, uint32_t peer) {
    return address(c, lane, c.rank, peer, c.state->lanes[lane].received[peer]);
  }

  // filled sets the count of chunks that were put, and signal signals it to the peer; taken does both for
  // chunks that were taken. One thread calls them, behind a barrier of all threads that filled, or emptied,
  // the slot. put and take are all of that, for whole blocks.
  MSCCLPP_DEVICE static void filled(const Common& c, uint32_t lane, uint32_t peer, uint64_t n) { c.state->lanes[lane].sent[peer] = n; }
  MSCCLPP_DEVICE static void signal(const Common& c, uint32_t lane, uint32_t peer, uint64_t n) {
    store_release(&mailbox(c, peer, c.rank, lane)->pipe_head, n);
    MSCCLPP_HAPPENED(c.control, kRecordSignal, 0, peer)
  }
  MSCCLPP_DEVICE static void taken(const Common& c, uint32_t lane, uint32_t peer, uint64_t n) {
    c.state->lanes[lane].received[peer] = n;
    return_credits(&mailbox(c, peer, c.rank, lane)->pipe_tail, n);
  }
  MSCCLPP_DEVICE static void put(const Common& c, uint32_t lane, uint32_t peer) {
    block_sync();
    if (thread_id() == 0) {
      const uint64_t n = sent(c, lane, peer) + 1;
      filled(c, lane, peer, n);
      signal(c, lane, peer, n);
    }
    block_sync();
  }
  MSCCLPP_DEVICE static void take(const Common& c, uint32_t lane, uint32_t peer) {
    block_sync();
    if (thread_id() == 0) taken(c, lane, peer, received(c, lane, peer) + 1);
    block_sync();
  }

 private:
  MSCCLPP_DEVICE static uint64_t own_slot(const Common& c) { return smaller(c.pipe_slot, kOwnPipeSlot); }
};

// A signature is two LL16 packets, with the low half of the sequence as the flag. So
// publishing it is two stores for which nothing waits.
template <class C>
MSCCLPP_DEVICE uint64_t signature_part(const C& c, uint32_t part) {
  const Signature& s = c.signature;
  if (part == 0) return s.count;
  return uint64_t(s.collective << 24 | (s.algorithm & 0xffffffu)) << 32 | s.root << 16 | s.op << 8 | s.type;
}
template <class C>
MSCCLPP_DEVICE LL16Packet* signature_packet(const C& c, uint32_t to, uint32_t from, uint32_t parity, uint32_t part) {
  return reinterpret_cast<LL16Packet*>(mailbox(c, to, from, 0)->signature[parity]) + part;
}

// publish sends the peers the signature of this launch; for one thread. It returns the
// sequence of the launch.
//
// Two signatures by parity are enough where ranks compare them. A rank writes the one of
// launch k + 2 after it has seen all signatures of launch k + 1, and a peer publishes
// that of k + 1 when it is done comparing those of k.
template <class C>
MSCCLPP_DEVICE uint64_t publish(const C& c) {
  const uint64_t sequence = c.state->sequence + 1;
  const uint32_t flag = static_cast<uint32_t>(sequence);
  c.state->sequence = sequence;
  MSCCLPP_ROLLED
  for (uint32_t peer = 0; peer < c.ranks; ++peer) {
    if (peer == c.rank) continue;
    writePacket(signature_packet(c, peer, c.rank, flag & 1, 0), signature_part(c, 0), flag);
    writePacket(signature_packet(c, peer, c.rank, flag & 1, 1), signature_part(c, 1), flag);
  }
  return sequence;
}

// agree publishes the signature of this launch, and compares it with those of the peers
// when the caller asked for that. False: do not touch any data. No earlier kernel of
// the stream may be running.
template <class C>
MSCCLPP_DEVICE bool agree(const C& c) {
  if (c.check == kCheckNever) return true;
  bool ok = true;
  if (global_thread() == 0) {
    const uint64_t sequence = publish(c);
    const uint32_t flag = static_cast<uint32_t>(sequence);
    bool same = true;
    MSCCLPP_ROLLED
    for (uint32_t i = 0; i < 2 * c.ranks && ok && c.check == kCheckCompare; ++i) {
      const uint32_t peer = i / 2;
      if (peer == c.rank) continue;
      const LL16Packet* packet = signature_packet(c, c.rank, peer, flag & 1, i % 2);
      const WaitSite site{kernel_of(c.signature), kWordSignature, peer, sequence, &c.state->left};
      uint64_t theirs = 0;
      ok = wait_brief(c.control, site, [&]() MSCCLPP_LAMBDA { return pollPacket(packet, flag, theirs); });
      same = same && theirs == signature_part(c, i % 2);
    }
    if (c.check == kCheckCompare) {
      c.state->mismatch = same ? 0 : kMismatchSignature;
      if (!same && c.notes != c.state) store_relaxed(&c.notes->mismatch, kMismatchSignature);
    }
  }
  if (c.check != kCheckCompare) return true;
  if (!block_sync_and(ok) || !blocks_sync(c.state, c.control)) return false;
  return c.state->mismatch == 0;
}

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_LINKS_H_
