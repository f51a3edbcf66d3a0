// Mail: messages between ranks of different hosts, any number of them at once. Kernels
// drive port channels, adapters of the network reach memory of the GPU, and the host has
// no part.
//
// A message goes in pieces. A piece is copied into a slot of the sender, put into the same
// slot of the receiver and announced by a signal, and copied out of there. For every
// kMailCredit pieces that were taken out a signal on a second channel gives as many slots
// back, on both sides: a piece that was taken out has left the sender's slot as well.
//
// Who has sent its last message may leave the job before it is taken out, and then nobody
// gets a signal any more. The host knows who has; who is to send a piece that it cannot have
// sent without a signal has not.
//
// Signals of a channel are counted only, never consumed: piece n from a rank is there when
// n signals of its channel are.
#ifndef MSCCLPP_COLLECTIVES_MAIL_H_
#define MSCCLPP_COLLECTIVES_MAIL_H_

#include "exchange.h"

namespace mscclpp {
namespace collectives {

constexpr uint32_t kNoMail = 0xffffffffu;
constexpr uint32_t kPollsPerName = 1024;  // of a long wait

// The messages to or from one rank, which go one after the other: the one at the front, as
// far as it has come.
struct MailQueue {
  uint64_t offset;
  uint32_t number;   // in the list; kNoMail: nothing is left
  uint32_t movable;  // not 0: a piece can be moved in this round
  uint32_t peer;
  uint32_t receives;
};

// The queues of one block. On GPUs an array of each thread's own would be local memory, so
// the block shares one, which its threads divide among them; elsewhere every thread has
// all of it.
#if MSCCLPP_TARGET_GPU
struct MailQueues {
  MSCCLPP_DEVICE MailQueue& operator[](uint32_t i) const {
    static __attribute__((shared)) MailQueue queues[2 * kMailPeers];
    return queues[i];
  }
  MSCCLPP_DEVICE static uint32_t first() { return thread_id(); }
  MSCCLPP_DEVICE static uint32_t step() { return block_dim(); }
};
#else
struct MailQueues {
  MailQueue queues[2 * kMailPeers];
  MailQueue& operator[](uint32_t i) { return queues[i]; }
  const MailQueue& operator[](uint32_t i) const { return queues[i]; }
  static uint32_t first() { return 0; }
  static uint32_t step() { return 1; }
};
#endif

// Delivery is what one block does of a launch: it has every grid_dim()-th queue. No order
// of the list and no shortage of slots towards one rank holds up the others.
class Delivery {
 public:
  MSCCLPP_DEVICE explicit Delivery(const MailArgs& a) : a_(a) {
    const uint32_t queues = a.transfers == 0 ? 0 : queue_of(message(a.transfers - 1)) + 1;
    count_ = block_id() < queues ? static_cast<uint32_t>(ceil_div(queues - block_id(), grid_dim())) : 0;
    for (uint32_t t = MailQueues::first(); t < a.transfers; t += MailQueues::step()) {
      const Transfer x = message(t);
      const uint32_t q = queue_of(x);
      if (q % grid_dim() != block_id() || (t != 0 && queue_of(message(t - 1)) == q)) continue;
      queues_[q / grid_dim()] = MailQueue{0, t, 0, x.peer, x.receive & 1};
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
  MSCCLPP_DEVICE bool open(uint32_t i) const { return queues_[i].number != kNoMail; }
  MSCCLPP_DEVICE const PortChannel& data(uint32_t i) const { return static_cast<const PortChannel&>(a_.data[peer(i)]); }
  MSCCLPP_DEVICE const PortChannel& credit(uint32_t i) const { return static_cast<const PortChannel&>(a_.credit[peer(i)]); }

  MSCCLPP_DEVICE Transfer message(uint32_t t) const {
    if (a_.memory == nullptr) return a_.list[t];
    const uint64_t* words = a_.memory + static_cast<uint64_t>(t) * kTransferWords;
    const uint64_t last = load_relaxed_device(words + 2);
    return Transfer{reinterpret_cast<void*>(load_relaxed_device(words)), load_relaxed_device(words + 1), static_cast<uint32_t>(last), static_cast<uint32_t>(last >> 32)};
  }

  // Where a slot begins, from the first of a rank: towards a rank, and from one.
  MSCCLPP_DEVICE uint64_t outgoing(uint32_t to, uint64_t piece) const { return (static_cast<uint64_t>(to) * kMailSlots + piece % kMailSlots) * a_.slot; }
  MSCCLPP_DEVICE uint64_t incoming(uint32_t from, uint64_t piece) const { return outgoing(a_.ranks + from, piece); }
  MSCCLPP_DEVICE char* slot(uint32_t i) const {
    const MailWay& way = a_.ways[peer(i)];
    return a_.slots + (receives(i) ? incoming(peer(i), way.received) : outgoing(peer(i), way.sent));
  }

  // bytes is the size of the next piece of a queue.
  MSCCLPP_DEVICE uint64_t bytes(uint32_t i) const { return smaller(payload(), message(queues_[i].number).bytes - queues_[i].offset); }
  MSCCLPP_DEVICE uint64_t payload() const { return a_.slot - sizeof(MailHead); }

  // coming counts the pieces that a queue moves from here on, as far as it matters. An empty
  // message is a piece as well.
  MSCCLPP_DEVICE uint64_t coming(uint32_t i) const {
    uint64_t pieces = 0, from = queues_[i].offset;
    for (uint32_t t = queues_[i].number; t < a_.transfers && pieces <= kMailSlots; ++t, from = 0) {
      const Transfer x = message(t);
      if (queue_of(x) != number(i)) break;
      pieces += x.bytes == 0 ? 1 : ceil_div(x.bytes - from, payload());
    }
    return pieces;
  }

  // give_back tells of slots that the peer's pieces have left; for one thread. Where the peer
  // needs that to send the last piece that is known of, the host need not be asked, which
  // takes a microsecond.
  MSCCLPP_DEVICE bool give_back(uint32_t i, uint64_t last) const {
    MailWay& way = a_.ways[peer(i)];
    for (; way.given < way.received / kMailCredit; ++way.given) {
      if (last <= kMailSlots + kMailCredit * way.given && load_relaxed(a_.parted + peer(i)) != 0) break;
      if (!credit(i).signal(a_.signature.algorithm)) return false;
    }
    return true;
  }

  // Whether a queue can move a piece now; for one thread.
  MSCCLPP_DEVICE bool movable(uint32_t i) const {
    const MailWay& way = a_.ways[peer(i)];
    if (receives(i)) return load_acquire(data(i).semaphore.inbound) > way.received;
    return way.sent < kMailSlots || way.sent < kMailSlots + kMailCredit * load_acquire(credit(i).semaphore.inbound);
  }

  // The same, for a queue that would be waited for otherwise. Who cannot give back is told
  // to leave, there.
  MSCCLPP_DEVICE bool ready(uint32_t i) const {
    if (movable(i)) return true;
    if (receives(i)) give_back(i, a_.ways[peer(i)].received + coming(i));
    return false;
  }

  // look finds the queues that can be moved, for all threads alike.
  MSCCLPP_DEVICE void look() {
#if MSCCLPP_TARGET_GPU
    for (uint32_t i = MailQueues::first(); i < count_; i += MailQueues::step()) queues_[i].movable = open(i) && ready(i);
    block_sync();
#else
    for (uint32_t i = 0; i < count_; ++i) queues_[i].movable = open(i) && block_sync_and(thread_id() != 0 || ready(i));
#endif
  }

  // begin says, or sees, what the next piece of a queue is. False: the peer's message has
  // another length.
  MSCCLPP_DEVICE bool begin(uint32_t i) {
    MailHead* const head = reinterpret_cast<MailHead*>(slot(i));
    const uint64_t total = message(queues_[i].number).bytes;
    const MailWay& way = a_.ways[peer(i)];
    if (!receives(i)) {
      if (thread_id() == 0) {
        head->sequence = way.sent + 1;
        head->total = total;
      }
      return true;
    }
    const bool same = head->total == total && head->sequence == way.received + 1;
    if (!same && thread_id() == 0) refuse(peer(i), head->total, total);
    return same;
  }

  // refuse tells the host of a message of another length than was expected, and stays until
  // that ends the job: what is behind the launch on the stream cannot be called back.
  MSCCLPP_DEVICE void refuse(uint32_t peer, uint64_t sent, uint64_t expected) {
    MailNote* n = a_.note;
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
    char* const there = slot(i) + sizeof(MailHead);
    copy(receives(i) ? here : there, receives(i) ? there : here, bytes(i), thread_id(), block_dim());
  }

  // turn ends a round: it sends what was filled, and gives back what the peer needs.
  MSCCLPP_DEVICE bool turn() {
    block_sync();  // all have copied
    bool ok = true;
    for (uint32_t i = MailQueues::first(); i < count_; i += MailQueues::step()) {
      if (queues_[i].movable == 0) continue;
      if (MailQueues::step() > 1 || thread_id() == 0) ok = ok && (receives(i) ? taken(i) : filled(i));
    }
    ok = block_sync_and(ok);  // no other thread looks at a queue any more
    for (uint32_t i = MailQueues::first(); i < count_ && ok; i += MailQueues::step()) {
      if (queues_[i].movable != 0) advance(i);
    }
    return ok;
  }

  MSCCLPP_DEVICE bool filled(uint32_t i) {
    MailWay& way = a_.ways[peer(i)];
    const uint64_t piece = way.sent++;
    return data(i).putWithSignal(incoming(a_.rank, piece), outgoing(peer(i), piece), sizeof(MailHead) + bytes(i), a_.signature.algorithm);
  }
  MSCCLPP_DEVICE bool taken(uint32_t i) {
    MailWay& way = a_.ways[peer(i)];
    const uint64_t last = way.received + coming(i);
    ++way.received;
    return give_back(i, last);
  }

  // advance goes on to the next piece of a queue.
  MSCCLPP_DEVICE void advance(uint32_t i) {
    MailQueue& q = queues_[i];
    q.offset += bytes(i);
    if (q.offset < message(q.number).bytes) return;
    q.offset = 0;
    ++q.number;
    if (q.number == a_.transfers || queue_of(message(q.number)) != number(i)) q.number = kNoMail;
  }

  // wait lets the host know for whom it waits: in turn, if that takes long, for the rank that
  // has left the job may be any of them.
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

  const MailArgs& a_;
  uint32_t count_;  // of queues
  MailQueues queues_;
};

// note_down puts the messages of this launch into memory, for the one that delivers them.
MSCCLPP_DEVICE void note_down(const MailArgs& a) {
  for (uint32_t t = global_thread(); t < a.listed; t += global_threads()) {
    uint64_t* words = a.memory + (a.first + t) * kTransferWords;
    store_relaxed_device(words, reinterpret_cast<uint64_t>(a.list[t].buffer));
    store_relaxed_device(words + 1, a.list[t].bytes);
    store_relaxed_device(words + 2, static_cast<uint64_t>(a.list[t].receive) << 32 | a.list[t].peer);
  }
}

// mail delivers the messages of a group. A launch that was left stays the last, and nothing
// is sent behind a wait that an earlier kernel has left, for the reasons that exchange has.
MSCCLPP_DEVICE void mail(const MailArgs& a) {
  if (a.listed != 0) return note_down(a);
  uint32_t over = 0;
  if (thread_id() == 0) over = load_relaxed_device(&a.state->left) | gone(a.control) | gone(a.inside);
  Delivery delivery(a);
  if (!block_sync_and(over == 0)) return;
  if (!delivery.run() && thread_id() == 0) store_release_device(&a.state->left, 1u);
}

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_MAIL_H_
