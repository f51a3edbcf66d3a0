// Messages as in transfers.h, through pipes of lines.
//
// Long messages. Lines lose a sixteenth of a link's bandwidth to their flags. So each lane of the receiver
// offers the buffer of a long message, if the sender can address it. The sender stores the lane's share of
// the message right there, and signals it by a chunk without data. For any other buffer the receiver offers
// a place beside the pipe: the sender stores the share there part by part, and signals each part by a chunk
// without data. Before either, a chunk without data announces the message. Its header lets a receiver that
// expects another length, and so offers nothing, see this. All of these are chunks of the lane's one pipe.
// So messages stay in their order, and the paragraphs on waits and lengths below hold for long ones too.
//
// The place beside the pipe is the slots that the pipes of links.h, or pipelines, have between the two ranks,
// and of no other two: a third rank may be ahead, and put chunks into its own pipe to the receiver. The receiver does not use them otherwise while it offers them, because a launch uses one or the other. The
// sender is done with a message when the receiver has taken all of it, so the next user finds them free.
//
// Blocks. With two blocks for each active lane one sends and the other receives; with
// fewer each block does lanes one after the other, both directions of a lane at once.
// Neither the order of messages nor a shortage of slots delays others: a block moves
// what can be moved, and waits for one queue only when it is the last. Once a sender has
// begun a chunk, it waits for nothing.
//
// Lengths. The header of a chunk has the length of its message. Where two ranks
// disagree, chunks and lanes do not fit together, but the first chunk always goes
// through lane 0, and that lane notes the difference. Other lanes leave, or wait until
// the host reads the note and ends the job.
#ifndef MSCCLPP_COLLECTIVES_TRANSFERS_LINES_H_
#define MSCCLPP_COLLECTIVES_TRANSFERS_LINES_H_

#include "line_pipes.h"
#include "transfers.h"

namespace mscclpp {
namespace collectives {

MSCCLPP_DEVICE Transfer message_of(const TransferArgs& a, uint32_t t) { return listed_message(a, t); }
MSCCLPP_DEVICE Transfer message_of(const LLTransferArgs& a, uint32_t t) { return a.list[t]; }

MSCCLPP_DEVICE bool is_long(const TransferArgs& a, uint64_t bytes) { return bytes >= a.long_bytes; }
MSCCLPP_DEVICE bool is_long(const LLTransferArgs&, uint64_t) { return false; }

// The peer's address of the buffer into which message t is received, or null.
MSCCLPP_DEVICE char* buffer_there(const TransferArgs& a, uint32_t t) {
  const uint64_t at = a.memory == nullptr ? a.theirs[t] : load_relaxed_device(a.memory + uint64_t(t) * kTransferWords + 3);
  return reinterpret_cast<char*>(at);
}
MSCCLPP_DEVICE char* buffer_there(const LLTransferArgs&, uint32_t) { return nullptr; }

// beside_bytes is how many bytes lie beside a chunk, 0: there is no room. beside_slots is for how many chunks
// of a lane there is room, a power of two from 2 on and at most the number of slots of its pipe. The slots of
// one lane of pipes may have room for two lanes. A message of a rank to itself has none.
MSCCLPP_DEVICE uint32_t beside_bytes(const TransferArgs& a) { return a.beside; }
MSCCLPP_DEVICE uint32_t beside_bytes(const LLTransferArgs&) { return 0; }
MSCCLPP_DEVICE uint32_t beside_slots(const TransferArgs& a) { return a.beside_slots; }
MSCCLPP_DEVICE uint32_t beside_slots(const LLTransferArgs&) { return 0; }
MSCCLPP_DEVICE char* beside_address(const TransferArgs& a, uint32_t lane, uint32_t to, uint32_t from, uint64_t position) {
  const uint64_t number = uint64_t(lane / a.common.lanes) * a.beside_slots + (position & (a.beside_slots - 1));
  return Pipe::address(a.common, lane % a.common.lanes, to, from, 0) + number * a.beside;
}
MSCCLPP_DEVICE char* beside_address(const LLTransferArgs&, uint32_t, uint32_t, uint32_t, uint64_t) { return nullptr; }
#if MSCCLPP_TARGET_CHECK
constexpr uint64_t kBurst = 64;
#else
constexpr uint64_t kBurst = 512;
#endif

// The offer of a place beside the pipe, in place of a buffer.
MSCCLPP_DEVICE char* offer_beside() { return reinterpret_cast<char*>(1); }

// Due is the next thing of a message. For most messages that is lines. For a long one it is its announcement,
// then, at the sender, the offer of the receiver, and then the share of the lane: as a whole, beside the pipe,
// or as lines. At the end the sender of a share beside the pipe waits until the receiver has taken it.
enum Due : uint32_t { kDueLines, kDueAnnouncement, kDueOffer, kDueShare, kDueBeside, kDueTaken };

// The front of a queue, as in transfers.h, and how far its pipe is.
struct LineQueue {
  char* buffer;
  char* direct;       // the peer's buffer, offer_beside(), or null
  uint64_t bytes;
  uint64_t chunk;     // the next of this lane
  uint64_t chunks;    // of the message
  uint64_t position;  // of that chunk in the pipe
  uint64_t room;      // of a pipe to a peer, as it was last read
  uint32_t payload;   // of a full chunk
  uint32_t number;    // in the group's list
  uint32_t empty;     // not 0: nothing is left for this lane
  uint32_t movable;   // chunks
  Due due;
};

// due_of is a constant in kernels without long messages, so these pay nothing for it.
MSCCLPP_DEVICE Due due_of(const TransferArgs&, const LineQueue& x) { return x.due; }
MSCCLPP_DEVICE Due due_of(const LLTransferArgs&, const LineQueue&) { return kDueLines; }

template <uint32_t kMost>
struct LineQueues {
#if MSCCLPP_TARGET_GPU
  MSCCLPP_DEVICE LineQueue& operator[](uint32_t q) const {
    static __attribute__((shared)) LineQueue queues[kMost];
    return queues[q];
  }
#else
  LineQueue queues[kMost];
  LineQueue& operator[](uint32_t q) { return queues[q]; }
  const LineQueue& operator[](uint32_t q) const { return queues[q]; }
#endif
};

// LineProgress is what one block does for one lane: queues first to first + count.
// On GPUs the block shares the queues; elsewhere every thread has all of them, and
// they are kept the same.
template <class A, uint32_t kRanks>
class LineProgress {
 public:
  MSCCLPP_DEVICE LineProgress(const A& a, uint32_t lane, uint32_t first, uint32_t count)
      : a_(a), lane_(lane), first_(first), count_(count), left_(0) {
    const uint32_t full = a.lines.groups * kRowUnits, fit = block_dim() / full, most = a.lines.slots / 2;
    batch_ = fit < 1 || most < 1 ? 1 : fit < most ? fit : most;
    block_sync();  // other threads may still look at the lane before
    for (uint32_t q = first_ + Queues::first(); q < end(); q += Queues::step()) queues_[q].number = a_.transfers;
    block_sync();
    for (uint32_t t = Queues::first(); t < a_.transfers; t += Queues::step()) {
      const uint32_t q = queue_of(message_of(a_, t));
      if (q - first_ < count_ && (t == 0 || queue_of(message_of(a_, t - 1)) != q)) queues_[q].number = t;
    }
    block_sync();
    for (uint32_t q = first_ + Queues::first(); q < end(); q += Queues::step()) open(q);
    block_sync();
    for (uint32_t q = first_; q < end(); ++q) left_ += queues_[q].empty == 0;
  }

  // run moves everything. False: leave the kernel.
  MSCCLPP_DEVICE bool run() {
    while (left_ != 0) {
      const bool alone = left_ == 1;
      if (!alone) look();
      bool moved = false;
      // Ranks and lanes begin with different peers.
      uint32_t q = first_ + (lane_ + head(a_).rank + 1) % count_;
      for (uint32_t i = 0; i < count_; ++i, q = q + 1 < end() ? q + 1 : first_) {
        const uint64_t chunks = !alone ? queues_[q].movable : queues_[q].empty == 0 ? ~uint64_t(0) : 0;
        if (chunks == 0) continue;
        if (!move(q, chunks)) return false;
        moved = true;
      }
      if (!moved && !wait()) return false;
    }
    return true;
  }

 private:
  MSCCLPP_DEVICE uint32_t end() const { return first_ + count_; }
  MSCCLPP_DEVICE bool receives(uint32_t q) const { return q >= head(a_).ranks; }
  MSCCLPP_DEVICE LinePipe<A> pipe(uint32_t q) const { return LinePipe<A>{a_, lane_, receives(q) ? q - head(a_).ranks : q}; }
  MSCCLPP_DEVICE uint32_t queue_of(const Transfer& x) const { return x.receive * head(a_).ranks + x.peer; }

  // open finds the first message of queue q, if it has any.
  MSCCLPP_DEVICE void open(uint32_t q) {
    const uint32_t t = queues_[q].number;
    queues_[q].movable = 0;
    queues_[q].empty = 1;
    if (t == a_.transfers) return;
    const LinePipe<A> p = pipe(q);
    queues_[q].position = receives(q) ? *p.received() : *p.sent();
    queues_[q].room = receives(q) ? 0 : p.room();
    advance(q, t);
  }

  // advance puts the first message from number t on that has a chunk for this lane at
  // the front of queue q.
  MSCCLPP_DEVICE void advance(uint32_t q, uint32_t t) {
    queues_[q].empty = 1;
    for (; t < a_.transfers; ++t) {
      const Transfer x = message_of(a_, t);
      if (queue_of(x) != q) break;
      const Cut cut = cut_message(x.bytes, a_.lines.lanes, a_.lines.groups);
      if (cut.chunks <= lane_) continue;
      LineQueue& to = queues_[q];
      to.due = is_long(a_, x.bytes) ? kDueAnnouncement : kDueLines;
      if (is_long(a_, x.bytes) && receives(q)) {
        to.direct = buffer_there(a_, t);
        if (to.direct == nullptr && beside_bytes(a_) != 0 && x.peer != head(a_).rank) to.direct = offer_beside();
        if (signaling_thread()) pipe(q).make_offer(to.position + 1, x.bytes, to.direct);
      }
      to.buffer = static_cast<char*>(x.buffer);
      to.bytes = x.bytes;
      to.chunk = lane_;
      to.chunks = cut.chunks;
      to.payload = cut.payload;
      to.number = t;
      to.empty = 0;
      return;
    }
  }

  // Whether the peer has yet to offer a buffer for the front of queue q.
  MSCCLPP_DEVICE bool awaits_offer(uint32_t q) const {
    return due_of(a_, queues_[q]) == kDueOffer && !pipe(q).offered(queues_[q].position);
  }

  MSCCLPP_DEVICE bool awaits_taken(uint32_t q) const { return due_of(a_, queues_[q]) == kDueTaken; }

  // How many chunks of queue q can be moved without a wait, up to what a block moves at
  // once; for one thread.
  MSCCLPP_DEVICE uint32_t movable(uint32_t q) {
    LineQueue& x = queues_[q];
    if (x.empty != 0) return 0;
    const uint64_t rest = rest_of(x);
    const uint32_t most = rest < batch_ ? static_cast<uint32_t>(rest) : batch_;
    const LinePipe<A> p = pipe(q);
    if (awaits_offer(q)) return 0;
    if (receives(q)) {
      // A sender that has begun a chunk has begun those before.
      const bool last = p.begun(x.position + most - 1), next = p.begun(x.position);
      return last ? most : next ? 1 : 0;
    }
    const uint64_t from = x.position + fewer(x);
    if (x.room < from + most || awaits_taken(q)) x.room = p.room();
    if (awaits_taken(q)) return x.room == x.position + a_.lines.slots;
    return static_cast<uint32_t>(smaller(x.room > from ? x.room - from : 0, most));
  }

  // By how many there are fewer slots beside the pipe than in it, if the message goes there.
  MSCCLPP_DEVICE uint32_t fewer(const LineQueue& x) const { return due_of(a_, x) == kDueBeside ? a_.lines.slots - beside_slots(a_) : 0; }

  MSCCLPP_DEVICE void look() {
#if MSCCLPP_TARGET_GPU
    block_sync();  // all have seen what the last look found
    for (uint32_t q = first_ + thread_id(); q < end(); q += block_dim()) queues_[q].movable = movable(q);
    block_sync();
#else
    for (uint32_t q = first_; q < end(); ++q) {
      uint32_t chunks = 0;
      for (uint32_t n = thread_id() == 0 ? movable(q) : batch_; block_sync_and(chunks < n); ++chunks) {}
      queues_[q].movable = chunks;
    }
#endif
  }

  // The word that the front of queue q waits for.
  MSCCLPP_DEVICE WaitSite site_of(uint32_t q) const {
    const LinePipe<A> p = pipe(q);
    const uint64_t next = queues_[q].position + 1;
    if (receives(q)) return p.site(kWordPipeHead, next);
    if (due_of(a_, queues_[q]) == kDueOffer) return p.site(kWordOffer, next - 1);
    return p.site(kWordPipeTail, awaits_taken(q) ? next - 1 : next - a_.lines.slots);
  }

  // wait waits until something can be moved.
  MSCCLPP_DEVICE bool wait() {
    bool ok = true;
    if (thread_id() == 0) {
      uint32_t waiting = first_;  // the first queue that is not complete
      while (queues_[waiting].empty != 0) ++waiting;
      WaitSite site = site_of(waiting);
      Turns turns(count_);
      ok = wait_brief(head(a_).control, site, [&]() MSCCLPP_LAMBDA {
        for (uint32_t q = first_; q < end(); ++q) {
          if (movable(q) != 0) return true;
        }
        const uint32_t q = first_ + turns.next();
        if (q < end() && queues_[q].empty == 0) site = site_of(q);
        return false;
      });
    }
    return block_sync_and(ok);
  }

  // move moves up to most chunks of the message at the front of queue q, as a block.
  MSCCLPP_DEVICE bool move(uint32_t q, uint64_t most) {
    LineQueue x = queues_[q];
    const LinePipe<A> p = pipe(q);
    const Due due = due_of(a_, x);
    if (due == kDueOffer && !receive_offer(p, x)) return false;
    if (due_of(a_, x) == kDueShare && !receives(q)) store_share(x);
    const uint64_t rest = rest_of(x), n = smaller(most, rest);
    const bool beside = due_of(a_, x) == kDueBeside, taken = due_of(a_, x) == kDueTaken;
    const bool ok = taken ? await_taken(p, x) : receives(q) ? receive(p, x, n) : send(p, x, n);
    if (!ok) return false;
    block_sync();  // all have read the queue
    if (Queues::step() == 1 || thread_id() == 0) {
      LineQueue& to = queues_[q];
      to.position = x.position + (taken ? 0 : n);
      to.room = x.room;
      bool over = false;
      if (due == kDueAnnouncement) {
        receives(q) ? follow(x) : void(x.due = kDueOffer);
      } else if (n < rest) {
        x.chunk += beside ? n : n * a_.lines.lanes;
      } else if (beside && !receives(q)) {
        x.due = kDueTaken;
      } else {
        over = true;
      }
      to.chunk = x.chunk;
      if (due != kDueLines) {
        to.due = x.due;
        to.payload = x.payload;
      }
      if (thread_id() == 0) *(receives(q) ? p.received() : p.sent()) = to.position;
      if (over) advance(q, x.number + 1);
    }
    block_sync();
    left_ -= queues_[q].empty;
    return true;
  }

  // Chunks that are left of the message, or of what is due before there are more.
  MSCCLPP_DEVICE uint64_t rest_of(const LineQueue& x) const {
    const Due due = due_of(a_, x);
    if (due == kDueBeside) return larger(ceil_div(share_of(x).bytes, x.payload), 1) - x.chunk;
    return due == kDueLines ? (x.chunks - x.chunk + a_.lines.lanes - 1) / a_.lines.lanes : 1;
  }
  // Where every thread has all queues, the first one signals.
  MSCCLPP_DEVICE static bool signaling_thread() { return Queues::step() > 1 || thread_id() == 0; }

  // receive_offer waits for the peer's offer, as a block. False: leave.
  MSCCLPP_DEVICE bool receive_offer(const LinePipe<A>& p, LineQueue& x) const {
    const bool ok = block_sync_and(thread_id() != 0 || wait_brief(head(a_).control, p.site(kWordOffer, x.position),
                                                                  [&]() MSCCLPP_LAMBDA { return p.offered(x.position); }));
    x.direct = ok ? p.offer(x.bytes) : nullptr;
    follow(x);
    block_sync();  // all have read it: the peer may make its next offer once it has chunks of some threads
    return ok;
  }

  // follow sets the kind of chunks that come behind an offer.
  MSCCLPP_DEVICE void follow(LineQueue& x) const {
    x.due = x.direct == nullptr ? kDueLines : x.direct == offer_beside() ? kDueBeside : kDueShare;
    if (x.due != kDueBeside) return;
    x.chunk = 0;
    x.payload = beside_bytes(a_);
  }

  // This lane's share of a long message, a multiple of the bytes that a warp stores at once.
  struct Share {
    uint64_t first, bytes;
  };
  MSCCLPP_DEVICE Share share_of(const LineQueue& x) const {
    const uint64_t each = round_up(ceil_div(x.bytes, smaller(x.chunks, a_.lines.lanes)), kBurst), first = smaller(x.bytes, lane_ * each);
    return Share{first, smaller(each, x.bytes - first)};
  }
  // The part of it that goes beside chunk i of the share.
  MSCCLPP_DEVICE static Share part_of(const LineQueue& x, Share all, uint64_t i) {
    const uint64_t at = smaller(all.bytes, i * x.payload);
    return Share{all.first + at, smaller(x.payload, all.bytes - at)};
  }

  // store_share stores the lane's share of a long message in the peer's buffer. A receiver that sees the
  // next chunk sees these stores as well.
  MSCCLPP_DEVICE void store_share(const LineQueue& x) const {
    const Share s = share_of(x);
    copy(x.direct + s.first, x.buffer + s.first, s.bytes, thread_id(), block_dim());
    stored();
    fence_system();
  }
  MSCCLPP_DEVICE static void stored() {
#if MSCCLPP_TARGET_HIP
    fence_system();  // a barrier does not wait for the stores of other waves, and no fence behind it does
#endif
    block_sync();
  }

  // send_beside puts parts of the share beside the chunks that signal them. Warps signal by turns, behind a
  // fence that takes microseconds, while the others begin with the next part.
  MSCCLPP_DEVICE bool send_beside(const LinePipe<A>& p, LineQueue& x, uint64_t n) const {
    const Share all = share_of(x);
    const uint32_t behind = fewer(x);
    uint32_t turn = 0;
    MSCCLPP_ROLLED
    for (uint64_t i = 0; i <= n; ++i) {
      const uint64_t position = x.position + i;
      if (i < n && !block_sync_and(thread_id() != 0 || x.room > position + behind ||
                                   wait_brief(head(a_).control, p.site(kWordPipeTail, position + 1 - beside_slots(a_)), [&]() MSCCLPP_LAMBDA {
                                     x.room = p.room();
                                     return x.room > position + behind;
                                   }))) return false;
      if (i > 0) signal_beside(p, position - 1, x.bytes, turn);
      if (i == n) break;
      const Share part = part_of(x, all, x.chunk + i);
      copy(beside_address(a_, lane_, p.peer, head(a_).rank, position), x.buffer + part.first, part.bytes, thread_id(), block_dim());
      stored();
    }
    return true;
  }

  // signal_beside sends a chunk without data, for which there is room already.
  MSCCLPP_DEVICE void signal_beside(const LinePipe<A>& p, uint64_t position, uint64_t total, uint32_t& turn) const {
    const bool rewrites = p.rewrites(position);
    const uint32_t columns = rewrites ? a_.lines.groups * kRowUnits : kRowUnits;
    uint64_t room = position + 1;
    MSCCLPP_ROLLED
    for (uint32_t c = column_of(turn); c < columns; c += block_dim()) {
      p.fence_before(position);
      send_column(p, position, Column{c / kRowUnits, c % kRowUnits}, nullptr, 0, total, rewrites, room);
    }
    turn = after(turn, columns);
    if (rewrites) block_sync();
  }

  MSCCLPP_DEVICE bool receive_beside(const LinePipe<A>& p, LineQueue& x, uint64_t n) const {
    const Share all = share_of(x);
    uint32_t turn = 0;
    MSCCLPP_ROLLED
    for (uint64_t i = 0; i < n; ++i) {
      const uint64_t position = x.position + i;
      const Share part = part_of(x, all, x.chunk + i);
      bool ok = true;
      MSCCLPP_ROLLED
      for (uint32_t c = column_of(turn); c < kRowUnits && ok; c += block_dim()) {
        uint64_t sent = x.bytes;
        ok = receive_column(p, position, Column{0, c}, x.buffer, 0, x.bytes, sent);
        if (ok) p.fence_behind(position);
      }
      turn = after(turn, kRowUnits);
      if (!block_sync_and(ok)) return false;
      copy(x.buffer + part.first, beside_address(a_, lane_, head(a_).rank, p.peer, position), part.bytes, thread_id(), block_dim());
      block_sync();
      if (thread_id() == 0) p.return_credits(position + 1);
    }
    return true;
  }

  // await_taken waits until the peer has taken all that lies beside the pipe.
  MSCCLPP_DEVICE bool await_taken(const LinePipe<A>& p, LineQueue& x) const {
    return block_sync_and(thread_id() != 0 || wait_brief(head(a_).control, p.site(kWordPipeTail, x.position), [&]() MSCCLPP_LAMBDA {
      x.room = p.room();
      return x.room == x.position + a_.lines.slots;
    }));
  }

  // Chunks that follow each other are given to different warps, as far as there are
  // any: `turn` is how many columns were handed out, and column_of the first that this
  // thread has of the next.
  MSCCLPP_DEVICE uint32_t column_of(uint32_t turn) const {
    const uint32_t t = thread_id();
    return t >= turn ? t - turn : t + block_dim() - turn;
  }
  MSCCLPP_DEVICE static uint32_t after(uint32_t turn, uint32_t columns) { return (turn + columns) % block_dim(); }

  MSCCLPP_DEVICE uint32_t bytes_at(const LineQueue& x, uint64_t at) const {
    return due_of(a_, x) == kDueLines ? static_cast<uint32_t>(smaller(x.payload, x.bytes - at)) : 0;
  }
  MSCCLPP_DEVICE static uint32_t columns_of(uint32_t bytes) { return (pieces_of(bytes) + kGroupPieces - 1) / kGroupPieces * kRowUnits; }

  MSCCLPP_DEVICE bool send(const LinePipe<A>& p, LineQueue& x, uint64_t n) const {
    if (due_of(a_, x) == kDueBeside) return send_beside(p, x, n);
    bool ok = true;
    uint32_t turn = 0;
    MSCCLPP_ROLLED
    for (uint64_t i = 0; i < n && ok; ++i) {
      const uint64_t at = (x.chunk + i * a_.lines.lanes) * x.payload, position = x.position + i;
      const uint32_t bytes = bytes_at(x, at);
      const bool all = p.rewrites(position);
      const uint32_t columns = all ? a_.lines.groups * kRowUnits : columns_of(bytes);
      MSCCLPP_ROLLED
      for (uint32_t c = column_of(turn); c < columns && ok; c += block_dim()) {
        ok = send_column(p, position, Column{c / kRowUnits, c % kRowUnits}, x.buffer + at, bytes, x.bytes, all, x.room);
      }
      turn = after(turn, columns);
      if (all) ok = block_sync_and(ok);
    }
    return block_sync_and(ok);
  }

  // Credits are returned for a few slots at a time: when each warp has had something to do.
  MSCCLPP_DEVICE bool receive(const LinePipe<A>& p, LineQueue& x, uint64_t n) const {
    if (due_of(a_, x) == kDueBeside) return receive_beside(p, x, n);
    uint32_t turn = 0, taken = 0;
    bool ok = true;
    MSCCLPP_ROLLED
    for (uint64_t i = 0; i < n; ++i) {
      const uint64_t at = (x.chunk + i * a_.lines.lanes) * x.payload, position = x.position + i;
      const uint32_t bytes = bytes_at(x, at), columns = columns_of(bytes);
      MSCCLPP_ROLLED
      for (uint32_t c = column_of(turn); c < columns && ok; c += block_dim()) {
        uint64_t sent = x.bytes;
        ok = receive_column(p, position, Column{c / kRowUnits, c % kRowUnits}, x.buffer + at, bytes, x.bytes, sent);
        if (sent != x.bytes && lane_ == 0) refuse_length(head(a_), p.peer, sent, x.bytes);
      }
      turn = after(turn, columns);
      if (++taken < batch_ && i + 1 < n) continue;
      if (!block_sync_and(ok)) return false;
      if (thread_id() == 0) p.return_credits(position + 1);
      taken = 0;
    }
    if (due_of(a_, x) == kDueShare) fence_system();  // the stores that the chunk signals are visible behind this
    return true;
  }

  const A& a_;
  const uint32_t lane_, first_, count_;
  uint32_t left_;   // queues that are not empty
  uint32_t batch_;  // chunks that a block moves at once
  LineQueues<2 * kRanks> queues_;
};

template <class A, uint32_t kRanks>
MSCCLPP_DEVICE void transfers_by_lines(const A& a) {
  const uint32_t ranks = head(a).ranks;
  const bool split = grid_dim() >= 2 * a.lines.active;
  const uint32_t parts = split ? 2 * a.lines.active : a.lines.active;
  MSCCLPP_ROLLED
  for (uint32_t i = block_id(); i < parts; i += grid_dim()) {
    LineProgress<A, kRanks> progress(a, split ? i / 2 : i, split && i % 2 != 0 ? ranks : 0, split ? ranks : 2 * ranks);
    if (!progress.run()) return;
  }
}

MSCCLPP_DEVICE void transfers_lines(const TransferArgs& a) {
  await_previous();
  if (a.listed != 0) return store_list(a);
  transfers_by_lines<TransferArgs, kMaxRanks>(a);
}

MSCCLPP_DEVICE void transfers_lines_few(const LLTransferArgs& a) {
  if (a.release == kReleaseAtOnce) release_next();
  await_previous();
  transfers_by_lines<LLTransferArgs, kLLRanks>(a);
}

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_TRANSFERS_LINES_H_
