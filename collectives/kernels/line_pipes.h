// Pipes of lines. The data of a chunk arrives together with its flags, so no fence is needed between data
// and signal, and the receiver takes line by line while the rest is in flight. (A chunk that signals data
// which was stored elsewhere carries nothing itself.) Only for links that keep lines whole.
//
// A slot is groups of 16 lines, which have room for 120 pieces of 16 bytes. Four rows
// of four lines make a group, and a row is what a warp stores at once: thread t of the
// warp that has the group handles unit t of each row.
//
//	t % 8 < 7    one piece in each row: 28 of them lie in a row
//	t % 8 == 7   two pieces in all, in halves beside the flags of its four lines
//
// So every thread moves whole pieces, warps move runs of 448 bytes, and no thread needs
// data that another one has loaded. Of a group that is not full only the rows that are
// needed are sent. The first piece of a chunk is its header.
//
// Flags. The flag of a line is made from 31 bits of the chunk's position in the pipe,
// from 0 on. Lines that small chunks do not reach stay as they are, and would hold a
// right flag and old data after 2^31 chunks. So every 2^30 chunks each slot is written
// as a whole once, by the next chunk that uses it. The receiver may return the slot
// before the lines beyond that chunk's own were stored. So there is a barrier of the
// sender's block behind such a chunk, and stores of the next one to the same lines come
// after it.
#ifndef MSCCLPP_COLLECTIVES_LINE_PIPES_H_
#define MSCCLPP_COLLECTIVES_LINE_PIPES_H_

#include "ll.h"

namespace mscclpp {
namespace collectives {

constexpr uint32_t kPiece = 16;
constexpr uint32_t kRowUnits = 32, kRowPieces = 28, kRows = 4;
constexpr uint32_t kGroupUnits = kRows * kRowUnits, kGroupPieces = 120;
constexpr uint32_t kGroupBytes = kGroupPieces * kPiece;
constexpr uint64_t kRewriteEvery = 1ull << 30;

// The members that both kinds of arguments have.
MSCCLPP_DEVICE const Common& head(const TransferArgs& a) { return a.common; }
MSCCLPP_DEVICE const LLTransferArgs& head(const LLTransferArgs& a) { return a; }

// Where one lane's chunks between this rank and a peer are, in one direction.
template <class A>
struct LinePipe {
  const A& a;
  uint32_t lane;
  uint32_t peer;

  MSCCLPP_DEVICE static uint32_t flag_at(uint64_t position) { return static_cast<uint32_t>(position) | 0x80000000u; }
  MSCCLPP_DEVICE bool rewrites(uint64_t position) const {
    return (position & (kRewriteEvery - 1)) < a.lines.slots && position >= kRewriteEvery;
  }

  MSCCLPP_DEVICE char* to(uint64_t position) const { return slot(peer, head(a).rank, position); }
  MSCCLPP_DEVICE char* from(uint64_t position) const { return slot(head(a).rank, peer, position); }
  MSCCLPP_DEVICE uint64_t* sent() const { return &head(a).state->lanes[lane].line_sent[peer]; }
  MSCCLPP_DEVICE uint64_t* received() const { return &head(a).state->lanes[lane].line_received[peer]; }

  // room is the position before which chunks may be put.
  //
  // On NVIDIA relaxed loads and stores are enough on both sides. The sender does not look at the memory
  // that the receiver has stored. Stores of the sender into the slot depend on the word that it has read
  // here, and no store is performed before the branch that decides about it.
  MSCCLPP_DEVICE uint64_t room() const {
    const uint64_t* tail = &mailbox(head(a), head(a).rank, peer, lane)->line_tail;
#if MSCCLPP_TARGET_CUDA
    return load_relaxed(tail) + a.lines.slots;
#else
    return load_acquire(tail) + a.lines.slots;
#endif
  }
  // return_credits says that chunks before position were taken; for one thread, behind a
  // barrier of all that took them.
  MSCCLPP_DEVICE void return_credits(uint64_t position) const {
    collectives::return_credits(&mailbox(head(a), peer, head(a).rank, lane)->line_tail, position);
  }

  // begun reports, to one thread, whether the peer has begun to send a chunk. Once it
  // has, it sends the rest without waiting for anything.
  MSCCLPP_DEVICE bool begun(uint64_t position) const {
    Vec16 v;
    return pollLineUnit(from(position), kLineUnits - 1, flag_at(position), v);
  }

  // fence_before stands between stores elsewhere, of this thread or of the block before a barrier, and the
  // chunk that signals them. fence_behind stands behind the poll that has found this chunk.
  MSCCLPP_DEVICE void fence_before(uint64_t position) const {
    fence_system();
#if MSCCLPP_TARGET_CHECK
    check::fence_release(to(position));
#endif
    (void)position;
  }
  MSCCLPP_DEVICE void fence_behind(uint64_t position) const {
#if MSCCLPP_TARGET_CHECK
    check::fence_acquire(from(position));
#endif
    fence_system();
    (void)position;
  }

  // make_offer offers the peer a place for the message of so many bytes whose first chunk behind its
  // announcement has that position: the buffer as the peer addresses it, offer_beside(), or null. offered
  // reports whether the peer has made its offer, and offer returns it then: null also if the peer expects
  // another length. For one thread.
  MSCCLPP_DEVICE void make_offer(uint64_t position, uint64_t bytes, char* there) const {
    Mailbox* box = mailbox(head(a), peer, head(a).rank, lane);
    store_relaxed(&box->offered_bytes, bytes);
    store_relaxed(&box->offer, reinterpret_cast<uint64_t>(there));
    store_release(&box->offered, position);
  }
  MSCCLPP_DEVICE bool offered(uint64_t position) const {
    return load_acquire(&mailbox(head(a), head(a).rank, peer, lane)->offered) == position;
  }
  MSCCLPP_DEVICE char* offer(uint64_t bytes) const {
    const Mailbox* box = mailbox(head(a), head(a).rank, peer, lane);
    return load_relaxed(&box->offered_bytes) == bytes ? reinterpret_cast<char*>(load_relaxed(&box->offer)) : nullptr;
  }

  MSCCLPP_DEVICE WaitSite site(Word what, uint64_t expected) const {
    return WaitSite{kernel_of(head(a).signature), what, peer, expected, &head(a).state->left};
  }

 private:
  MSCCLPP_DEVICE char* slot(uint32_t in, uint32_t of, uint64_t position) const {
    const uint32_t each = a.lines.groups * (kGroupUnits * kLineUnitBytes);
    const uint64_t number = (uint64_t(lane) * head(a).ranks + of) * a.lines.slots + (position & (a.lines.slots - 1));
    return reinterpret_cast<char*>(head(a).scratch[in]) + a.lines.offset + number * each;
  }
};

// The division of a message into chunks. It follows from its length and the number of
// lanes, so both sides compute the same. Chunk i goes through lane i % lanes, and an
// empty message is one chunk.
struct Cut {
  uint64_t chunks;
  uint32_t payload;  // of a full chunk
};
MSCCLPP_DEVICE Cut cut_message(uint64_t bytes, uint32_t lanes, uint32_t groups) {
  if (bytes <= kGroupBytes - kPiece) return Cut{1, kGroupBytes - kPiece};
  const uint64_t share = ceil_div(bytes, lanes), most = groups * kGroupBytes - kPiece;
  const uint64_t each = ceil_div(share, ceil_div(share, most));
  const uint32_t payload = static_cast<uint32_t>(ceil_div(each + kPiece, kGroupBytes)) * kGroupBytes - kPiece;
  return Cut{ceil_div(bytes, payload), payload};
}

// The part of a chunk that one thread handles: its units of one group.
struct Column {
  uint32_t group;
  uint32_t t;  // of 32

  MSCCLPP_DEVICE bool halves() const { return t % kLineUnits == kLineUnits - 1; }
  MSCCLPP_DEVICE uint32_t unit(uint32_t row) const { return group * kGroupUnits + row * kRowUnits + t; }
  // Which piece of the chunk is in unit `row`, or for halves in units 2 * row and after.
  MSCCLPP_DEVICE uint32_t piece(uint32_t row) const {
    const uint32_t of = halves() ? kRows * kRowPieces + 4 * row + t / kLineUnits : row * kRowPieces + t - t / kLineUnits;
    return group * kGroupPieces + of;
  }
  MSCCLPP_DEVICE bool has(uint32_t row) const { return row < 2 || !halves(); }
  // Whether a chunk of so many bytes fills all pieces of the group.
  MSCCLPP_DEVICE bool filled(uint32_t bytes) const { return (group + 1) * kGroupPieces <= 1 + bytes / kPiece; }
  // Rows of the group that a chunk of so many pieces has.
  MSCCLPP_DEVICE uint32_t rows(uint32_t pieces) const {
    const uint32_t first = group * kGroupPieces;
    if (pieces <= first) return 0;
    const uint32_t left = pieces - first;
    return left > (kRows - 1) * kRowPieces ? kRows : (left + kRowPieces - 1) / kRowPieces;
  }
};

// One piece at data + at, where data has so many bytes; missing bytes are zero. Words have
// 16, 8 or 4 bytes as data is aligned, or else single bytes.
MSCCLPP_OUTLINED_LARGE uint64_t load_half(const char* p, uint64_t left) {
  if (left >= 8 && (reinterpret_cast<uintptr_t>(p) & 7) == 0) return *reinterpret_cast<const uint64_t*>(p);
  if (left >= 8 && (reinterpret_cast<uintptr_t>(p) & 3) == 0) {
    return uint64_t(reinterpret_cast<const uint32_t*>(p)[1]) << 32 | reinterpret_cast<const uint32_t*>(p)[0];
  }
  return load_odd(p, static_cast<uint32_t>(smaller(left, 8)));
}
MSCCLPP_OUTLINED_LARGE void store_half(char* p, uint64_t v, uint64_t left) {
  if (left >= 8 && (reinterpret_cast<uintptr_t>(p) & 7) == 0) {
    *reinterpret_cast<uint64_t*>(p) = v;
  } else if (left >= 8 && (reinterpret_cast<uintptr_t>(p) & 3) == 0) {
    reinterpret_cast<uint32_t*>(p)[0] = static_cast<uint32_t>(v);
    reinterpret_cast<uint32_t*>(p)[1] = static_cast<uint32_t>(v >> 32);
  } else {
    store_odd(p, v, static_cast<uint32_t>(smaller(left, 8)));
  }
}
MSCCLPP_DEVICE Vec16 load_piece(const char* data, uint32_t at, uint32_t bytes, bool aligned) {
  if (aligned && at + kPiece <= bytes) return load16(data + at);
  const uint64_t a = at < bytes ? load_half(data + at, bytes - at) : 0;
  const uint64_t b = at + 8 < bytes ? load_half(data + at + 8, bytes - at - 8) : 0;
  return Vec16{static_cast<uint32_t>(a), static_cast<uint32_t>(a >> 32), static_cast<uint32_t>(b), static_cast<uint32_t>(b >> 32)};
}
MSCCLPP_DEVICE void store_piece(char* data, uint32_t at, uint32_t bytes, bool aligned, Vec16 v) {
  if (aligned && at + kPiece <= bytes) return store16(data + at, v);
  if (at < bytes) store_half(data + at, uint64_t(v.y) << 32 | v.x, bytes - at);
  if (at + 8 < bytes) store_half(data + at + 8, uint64_t(v.w) << 32 | v.z, bytes - at - 8);
}
MSCCLPP_DEVICE bool aligned_to_pieces(const void* p) { return (reinterpret_cast<uintptr_t>(p) & (kPiece - 1)) == 0; }
MSCCLPP_DEVICE uint32_t pieces_of(uint32_t bytes) { return 1 + (bytes + kPiece - 1) / kPiece; }

// send_column sends this thread's part of a chunk of bytes at data, which belongs to a message of total.
// room is the last room of the pipe that it has read, and is updated. False: leave.
template <class A>
MSCCLPP_DEVICE bool send_column(const LinePipe<A>& pipe, uint64_t position, Column x, const char* data, uint32_t bytes, uint64_t total,
                                bool all, uint64_t& room) {
  const uint32_t pieces = pieces_of(bytes);
  const uint32_t rows = all ? kRows : x.rows(pieces);
  const bool aligned = aligned_to_pieces(data);
  Vec16 v[kRows];
  if (aligned && x.filled(bytes)) {
    // Nothing but loads, so that all are in flight at once.
    MSCCLPP_UNROLL
    for (uint32_t r = 0; r < kRows; ++r) {
      v[r] = Vec16{0, 0, 0, 0};
      const uint32_t piece = x.piece(r);
      if (x.has(r)) v[r] = load16(data + (piece - (piece != 0)) * kPiece);
    }
  } else {
    MSCCLPP_UNROLL
    for (uint32_t r = 0; r < kRows; ++r) {
      v[r] = Vec16{0, 0, 0, 0};
      const uint32_t piece = x.piece(r);
      if (x.has(r) && piece < pieces && piece != 0) v[r] = load_piece(data, (piece - 1) * kPiece, bytes, aligned);
    }
  }
  if (x.piece(0) == 0) v[0] = Vec16{static_cast<uint32_t>(total), static_cast<uint32_t>(total >> 32), 0, 0};
  if (x.halves()) {
    v[3] = Vec16{v[1].z, v[1].w, 0, 0};
    v[2] = Vec16{v[1].x, v[1].y, 0, 0};
    v[1] = Vec16{v[0].z, v[0].w, 0, 0};
  }
  if (!line_threads_all(room > position) &&
      !wait_lines(head(pipe.a).control, pipe.site(kWordPipeTail, position + 1 - pipe.a.lines.slots), [&]() MSCCLPP_LAMBDA {
        room = pipe.room();
        return room > position;
      })) return false;
  char* slot = pipe.to(position);
  const uint32_t flag = pipe.flag_at(position);
  MSCCLPP_UNROLL
  for (uint32_t r = 0; r < kRows; ++r) {
    if (r < rows) writeLineUnit(slot, x.unit(r), v[r], flag);
  }
  return true;
}

// receive_column is the other side. sent becomes the length of the peer's message, in
// the thread that has the header; false also if that is not total.
template <class A>
MSCCLPP_DEVICE bool receive_column(const LinePipe<A>& pipe, uint64_t position, Column x, char* data, uint32_t bytes, uint64_t total,
                                   uint64_t& sent) {
  const uint32_t pieces = pieces_of(bytes);
  const uint32_t rows = x.rows(pieces);
  const bool aligned = aligned_to_pieces(data);
  const char* slot = pipe.from(position);
  const uint32_t flag = pipe.flag_at(position);
  const WaitControl* control = head(pipe.a).control;
  const WaitSite site = pipe.site(kWordPipeHead, position + 1);
  Vec16 v[kRows];
  bool rest = false;
  const auto look = [&]() MSCCLPP_LAMBDA {
    bool first = true;
    rest = true;
    MSCCLPP_UNROLL
    for (uint32_t r = 0; r < kRows; ++r) {
      if (r >= rows) continue;
      const bool here = pollLineUnit(slot, x.unit(r), flag, v[r]);
      if (r == 0) first = here;
      rest = rest && here;
    }
    return first;
  };
  if (x.group == 0) {
    // Of a message of another length the first row may be all that ever comes.
    if (!wait_lines(control, site, look)) return false;
    if (x.t == 0) sent = uint64_t(v[0].y) << 32 | v[0].x;
    if (!line_threads_all(x.t != 0 || sent == total)) return false;
  }
  // Every poll of a warp reads whole lines again, also in threads that miss nothing.
  const bool here = x.group == 0 && line_threads_all(rest);
  if (!here && !wait_lines(control, site, [&]() MSCCLPP_LAMBDA {
        look();
        return rest;
      })) return false;
  if (x.halves()) {
    v[0] = Vec16{v[0].x, v[0].y, v[1].x, v[1].y};
    v[1] = Vec16{v[2].x, v[2].y, v[3].x, v[3].y};
  }
  if (aligned && x.filled(bytes)) {
    MSCCLPP_UNROLL
    for (uint32_t r = 0; r < kRows; ++r) {
      const uint32_t piece = x.piece(r);
      if (x.has(r) && piece != 0) store16(data + (piece - 1) * kPiece, v[r]);
    }
  } else {
    MSCCLPP_UNROLL
    for (uint32_t r = 0; r < kRows; ++r) {
      const uint32_t piece = x.piece(r);
      if (x.has(r) && piece < pieces && piece != 0) store_piece(data, (piece - 1) * kPiece, bytes, aligned, v[r]);
    }
  }
  return true;
}

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_LINE_PIPES_H_
