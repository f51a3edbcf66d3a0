// Send and receive between ranks of different hosts, any number of messages at once. Kernels drive
// port channels and network adapters reach the memory of the GPU, so the host moves nothing.
//
// A message goes in pieces. The sender copies a piece into one of its slots, puts that into the same
// slot of the receiver, and signals. The receiver copies it out. For every kSendRecvCredit pieces that
// it has copied out, it returns as many credits by a signal on a second channel. A credit frees the
// slot on both sides, because a piece that was copied out has left the sender's slot as well.
//
// A rank that has sent its last message may leave the job before that is copied out, and a signal to
// it would fail. So the host notes which ranks have departed. A peer that needs a credit for a piece
// which is still to come cannot have departed, so credits that it needs are returned without a look
// at that note.
//
// Signals of a channel are counted only, never consumed: piece n from a rank is there when
// n signals of its channel are.
#ifndef MSCCLPP_COLLECTIVES_SENDRECV_H_
#define MSCCLPP_COLLECTIVES_SENDRECV_H_

#include "exchange.h"

namespace mscclpp {
namespace collectives {

constexpr uint32_t kNoMessage = 0xffffffffu;
constexpr uint32_t kPollsPerName = 1024;  // of a long wait

// The messages to or from one rank, which go one after the other: the one at the front, as
// far as it has come.
struct SendRecvQueue {
  uint64_t offset;
  uint32_t number;   // in the list; kNoMessage: none is left
  uint32_t movable;  // not 0: a piece can be moved in this round
  uint32_t peer;
  uint32_t receives;
};

// The queues of one block. On GPUs an array of each thread's own would be local memory, so
// the block shares one, which its threads divide among them; elsewhere every thread has
// all of it.
#if MSCCLPP_TARGET_GPU
struct SendRecvQueues {
  MSCCLPP_DEVICE SendRecvQueue& operator[](uint32_t i) const {
    static __attribute__((shared)) SendRecvQueue queues[2 * kSendRecvPeers];
    return queues[i];
  }
  MSCCLPP_DEVICE static uint32_t first() { return thread_id(); }
  MSCCLPP_DEVICE static uint32_t step() { return block_dim(); }
};
#else
struct SendRecvQueues {
  SendRecvQueue queues[2 * kSendRecvPeers];
  SendRecvQueue& operator[](uint32_t i) { return queues[i]; }
  const SendRecvQueue& operator[](uint32_t i) const { return queues[i]; }
  static uint32_t first() { return 0; }
  static uint32_t step() { return 1; }
};
#endif

// SendRecv is one block's part of a launch: every grid_dim()-th queue. Neither the order of the list nor
// a shortage of slots towards one rank delays messages of other ranks.
class SendRecv {
 public:
  MSCCLPP_DEVICE explicit SendRecv(const SendRecvArgs& a) : a_(a) {
    const uint32_t queues = a.transfers == 0 ? 0 : queue_of(message(a.transfers - 1)) + 1;
    count_ = block_id() < queues ? static_cast<uint32_t>(ceil_div(queues - block_id(), grid_dim())) : 0;
    for (uint32_t t = SendRecvQueues::first(); t < a.transfers; t += SendRecvQueues::step()) {
      const Transfer x = message(t);
      const uint32_t q = queue_of(x);
      if (q % grid_dim() != block_id() || (t != 0 && queue_of(message(t - 1)) == q)) continue;
      queues_[q / grid_dim()] = SendRecvQueue{0, t, 0, x.peer, x.receive & 1};
    }
    block_sync();
  }

  // run moves everything, a piece of every queue that can be moved in each round. False:
  // leave the kernel.
  MSCCLPP_DEVICE bool run() {
    for (;;) {
      look();
      uint32_t waiting = count_;  // the first queue that is not complete
      bool any = false, same = true;
      for (uint32_t i = 0; i < count_; ++i) {
        if (!open(i)) continue;
        if (waiting == count_) waiting = i;
        if (queues_[i].movable == 0) continue;
        any = true;
        same = same && begin(i);
      }
      if (waiting == count_) return true;
      if (!same) return false;
      if (!any) {
        if (!wait(waiting)) return false;
        continue;
      }
      MSCCLPP_ROLLED
      for (uint32_t i = 0; i < count_; ++i) {
        if (queues_[i].movable != 0) move(i);
      }
      if (!turn()) return false;
    }
  }

 private:
  MSCCLPP_DEVICE static uint32_t queue_of(const Transfer& x) { return x.receive >> 1; }
  MSCCLPP_DEVICE uint32_t number(uint32_t i) const { return block_id() + i * grid_dim(); }
  MSCCLPP_DEVICE bool receives(uint32_t i) const { return queues_[i].receives != 0; }
  MSCCLPP_DEVICE uint32_t peer(uint32_t i) const { return queues_[i].peer; }
  MSCCLPP_DEVICE bool open(uint32_t i) const { return queues_[i].number != kNoMessage; }
  MSCCLPP_DEVICE const PortChannel& data(uint32_t i) const { return static_cast<const PortChannel&>(a_.data[peer(i)]); }
  MSCCLPP_DEVICE const PortChannel& credit(uint32_t i) const { return static_cast<const PortChannel&>(a_.credit[peer(i)]); }

  MSCCLPP_DEVICE Transfer message(uint32_t t) const {
    if (a_.memory == nullptr) return a_.list[t];
    const uint64_t* words = a_.memory + static_cast<uint64_t>(t) * kTransferWords;
    const uint64_t last = load_relaxed_device(words + 2);
    return Transfer{reinterpret_cast<void*>(load_relaxed_device(words)), load_relaxed_device(words + 1), static_cast<uint32_t>(last), static_cast<uint32_t>(last >> 32)};
  }

  // Where a slot begins, from the first of a rank: towards a rank, and from one.
  MSCCLPP_DEVICE uint64_t outgoing(uint32_t to, uint64_t piece) const { return (static_cast<uint64_t>(to) * kSendRecvSlots + piece % kSendRecvSlots) * a_.slot; }
  MSCCLPP_DEVICE uint64_t incoming(uint32_t from, uint64_t piece) const { return outgoing(a_.ranks + from, piece); }
  MSCCLPP_DEVICE char* slot(uint32_t i) const {
    const SendRecvPeer& counts = a_.peers[peer(i)];
    return a_.slots + (receives(i) ? incoming(peer(i), counts.received) : outgoing(peer(i), counts.sent));
  }

  // bytes is the size of the next piece of a queue.
  MSCCLPP_DEVICE uint64_t bytes(uint32_t i) const { return smaller(payload(), message(queues_[i].number).bytes - queues_[i].offset); }
  MSCCLPP_DEVICE uint64_t payload() const { return a_.slot - sizeof(SendRecvHead); }

  // coming counts the pieces that a queue still has to move, and stops where a larger number makes no
  // difference. An empty message is a piece as well.
  MSCCLPP_DEVICE uint64_t coming(uint32_t i) const {
    uint64_t pieces = 0, from = queues_[i].offset;
    for (uint32_t t = queues_[i].number; t < a_.transfers && pieces <= kSendRecvSlots; ++t, from = 0) {
      const Transfer x = message(t);
      if (queue_of(x) != number(i)) break;
      pieces += x.bytes == 0 ? 1 : ceil_div(x.bytes - from, payload());
    }
    return pieces;
  }

  // return_credits signals the peer that slots are free; for one thread. A peer that needs the credit
  // to send the last piece that this rank knows of is still there. Then the note of the host is not
  // read, which would take a microsecond.
  MSCCLPP_DEVICE bool return_credits(uint32_t i, uint64_t last) const {
    SendRecvPeer& counts = a_.peers[peer(i)];
    for (; counts.given < counts.received / kSendRecvCredit; ++counts.given) {
      if (last <= kSendRecvSlots + kSendRecvCredit * counts.given && load_relaxed(a_.departed + peer(i)) != 0) break;
      if (!credit(i).signal(a_.signature.algorithm)) return false;
    }
    return true;
  }

  // Whether a queue can move a piece now; for one thread.
  MSCCLPP_DEVICE bool movable(uint32_t i) const {
    const SendRecvPeer& counts = a_.peers[peer(i)];
    if (receives(i)) return load_acquire(data(i).semaphore.inbound) > counts.received;
    return counts.sent < kSendRecvSlots || counts.sent < kSendRecvSlots + kSendRecvCredit * load_acquire(credit(i).semaphore.inbound);
  }

  // The same, for a queue that the block would otherwise wait for. Credits that were held back are
  // returned here. If their signal fails, the wait that follows fails for the same reason, so the
  // result is not looked at.
  MSCCLPP_DEVICE bool ready(uint32_t i) const {
    if (movable(i)) return true;
    if (receives(i)) return_credits(i, a_.peers[peer(i)].received + coming(i));
    return false;
  }

  // look finds the queues that can be moved, for all threads alike.
  MSCCLPP_DEVICE void look() {
#if MSCCLPP_TARGET_GPU
    for (uint32_t i = SendRecvQueues::first(); i < count_; i += SendRecvQueues::step()) queues_[i].movable = open(i) && ready(i);
    block_sync();
#else
    for (uint32_t i = 0; i < count_; ++i) queues_[i].movable = open(i) && block_sync_and(thread_id() != 0 || ready(i));
#endif
  }

  // begin writes the head of the next piece of a queue, or compares it. False: the peer's message has
  // another length.
  MSCCLPP_DEVICE bool begin(uint32_t i) {
    SendRecvHead* const head = reinterpret_cast<SendRecvHead*>(slot(i));
    const uint64_t total = message(queues_[i].number).bytes;
    const SendRecvPeer& counts = a_.peers[peer(i)];
    if (!receives(i)) {
      if (thread_id() == 0) {
        head->sequence = counts.sent + 1;
        head->total = total;
      }
      return true;
    }
    const bool same = head->total == total && head->sequence == counts.received + 1;
    if (!same && thread_id() == 0) refuse(peer(i), head->total, total);
    return same;
  }

  // refuse notes a message of another length than was expected, and waits until the host has ended the
  // job: nobody can take back the kernels behind this one on the stream.
  MSCCLPP_DEVICE void refuse(uint32_t peer, uint64_t sent, uint64_t expected) {
    SendRecvNote* n = a_.note;
    if (compare_exchange_device(&n->found, 0u, 2u) == 0) {
      store_relaxed(&n->peer, peer);
      store_relaxed(&n->sent, sent);
      store_relaxed(&n->expected, expected);
      store_release(&n->found, 1u);
    }
    wait_brief(a_.control, WaitSite{kernel_of(a_.signature), kWordSignature, peer, expected}, []() MSCCLPP_LAMBDA { return false; });
  }

  MSCCLPP_DEVICE void move(uint32_t i) {
    char* const here = static_cast<char*>(message(queues_[i].number).buffer) + queues_[i].offset;
    char* const there = slot(i) + sizeof(SendRecvHead);
    copy(receives(i) ? here : there, receives(i) ? there : here, bytes(i), thread_id(), block_dim());
  }

  // turn ends a round: it sends the slots that were filled and returns the credits that peers need.
  MSCCLPP_DEVICE bool turn() {
    block_sync();  // all have copied
    bool ok = true;
    for (uint32_t i = SendRecvQueues::first(); i < count_; i += SendRecvQueues::step()) {
      if (queues_[i].movable == 0) continue;
      if (SendRecvQueues::step() > 1 || thread_id() == 0) ok = ok && (receives(i) ? taken(i) : filled(i));
    }
    ok = block_sync_and(ok);  // no other thread looks at a queue any more
    for (uint32_t i = SendRecvQueues::first(); i < count_ && ok; i += SendRecvQueues::step()) {
      if (queues_[i].movable != 0) advance(i);
    }
    return ok;
  }

  MSCCLPP_DEVICE bool filled(uint32_t i) {
    SendRecvPeer& counts = a_.peers[peer(i)];
    const uint64_t piece = counts.sent++;
    return data(i).putWithSignal(incoming(a_.rank, piece), outgoing(peer(i), piece), sizeof(SendRecvHead) + bytes(i), a_.signature.algorithm);
  }
  MSCCLPP_DEVICE bool taken(uint32_t i) {
    SendRecvPeer& counts = a_.peers[peer(i)];
    const uint64_t last = counts.received + coming(i);
    ++counts.received;
    return return_credits(i, last);
  }

  // advance goes on to the next piece of a queue.
  MSCCLPP_DEVICE void advance(uint32_t i) {
    SendRecvQueue& q = queues_[i];
    q.offset += bytes(i);
    if (q.offset < message(q.number).bytes) return;
    q.offset = 0;
    ++q.number;
    if (q.number == a_.transfers || queue_of(message(q.number)) != number(i)) q.number = kNoMessage;
  }

  // wait notes for the host which rank the block waits for. In a long wait it names all of them in turn,
  // because any of them may be the one that has left the job.
  MSCCLPP_DEVICE bool wait(uint32_t waiting) {
    bool ok = true;
    if (thread_id() == 0) {
      const uint64_t which = ++a_.state->waits[block_id()] << 16;
      const PortChannel& port = receives(waiting) ? data(waiting) : credit(waiting);
      const WaitSite site{a_.signature.algorithm, port.semaphore.id, peer(waiting), 0};
      uint32_t polls = 0;
      ok = wait_until(a_.control, site, [&]() MSCCLPP_LAMBDA {
        for (uint32_t i = 0; i < count_; ++i) {
          if (open(i) && movable(i)) return true;
        }
        if (polls++ % kPollsPerName == 0) {
          store_relaxed(&a_.note->waits[block_id()], which | (peer(waiting) + 1));
          do waiting = (waiting + 1) % count_; while (!open(waiting));
        }
        return false;
      });
      store_relaxed(&a_.note->waits[block_id()], uint64_t(0));
    }
    return block_sync_and(ok);
  }

  const SendRecvArgs& a_;
  uint32_t count_;  // of queues
  SendRecvQueues queues_;
};

// store_list puts the messages of this launch into memory, for the launch that moves them.
MSCCLPP_DEVICE void store_list(const SendRecvArgs& a) {
  for (uint32_t t = global_thread(); t < a.listed; t += global_threads()) {
    uint64_t* words = a.memory + (a.first + t) * kTransferWords;
    store_relaxed_device(words, reinterpret_cast<uint64_t>(a.list[t].buffer));
    store_relaxed_device(words + 1, a.list[t].bytes);
    store_relaxed_device(words + 2, static_cast<uint64_t>(a.list[t].receive) << 32 | a.list[t].peer);
  }
}

// sendrecv moves the messages of a group. A launch that was left stays the last one, and nothing is
// sent behind a wait that an earlier kernel has left, for the reasons given at exchange.
MSCCLPP_DEVICE void sendrecv(const SendRecvArgs& a) {
  if (a.listed != 0) return store_list(a);
  uint32_t over = 0;
  if (thread_id() == 0) over = load_relaxed_device(&a.state->left) | gone(a.control) | gone(a.inside);
  SendRecv messages(a);
  if (!block_sync_and(over == 0)) return;
  if (!messages.run() && thread_id() == 0) store_release_device(&a.state->left, 1u);
}

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_SENDRECV_H_
