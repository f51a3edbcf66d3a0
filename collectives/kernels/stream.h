// Collectives of messages of any size over lines, between at most eight ranks, in
// buffers that peers cannot address: as in ll.h, in pieces that fit into a slot.
//
// A piece is an epoch. A thread takes part in all pieces, always with the same number
// among the threads of the launch, which has the same shape on all ranks. It ends a
// piece before it begins the next one, and never waits for another thread of its rank.
// So while some threads wait for data, that of others is in flight.
//
// Two halves are enough here too. Every thread sends each peer something in the last
// part of every piece, if only an empty unit, and waits for the units of its counterparts
// there. So a thread that begins epoch e + 2 holds a unit of e + 1 from its counterpart,
// and the counterpart has sent that after it had read all units for it in e. At the end
// of a launch this holds for all threads of a peer, and the next launch relies on it.
#ifndef MSCCLPP_COLLECTIVES_STREAM_H_
#define MSCCLPP_COLLECTIVES_STREAM_H_

#include "ll.h"

namespace mscclpp {
namespace collectives {

// Share is a rank's part of a message: where it begins, in bytes, and how long it is.
struct Share {
  uint32_t units;
  uint64_t at, bytes;
};

// Shares divide a message among the ranks, in whole groups of units. One rank may have
// no share, which leaves its link to the data that it alone sends or gets.
template <class C>
struct Shares {
  const uint64_t all;      // bytes
  const uint32_t without;  // the rank that has no share; kMaxRanks: none
  const uint32_t total;    // units
  const uint32_t most;     // of them a rank has

  MSCCLPP_DEVICE Shares(const LLArgs& a, uint64_t bytes, uint32_t without = kMaxRanks)
      : all(bytes), without(without), total(C::units(bytes)), most(most_of(total / C::kGroup, a.ranks - (without < kMaxRanks))) {}

  MSCCLPP_DEVICE uint32_t units(uint32_t rank) const {
    const uint64_t before = uint64_t(place(rank)) * most;
    return rank != without && before < total ? static_cast<uint32_t>(smaller(most, total - before)) : 0;
  }
  // Where it begins, in bytes, and how long it is.
  MSCCLPP_DEVICE uint64_t at(uint32_t rank) const { return smaller(all, place(rank) * C::at(most)); }
  MSCCLPP_DEVICE uint64_t bytes(uint32_t rank) const { return rank == without ? 0 : smaller(C::at(most), all - at(rank)); }
  // The share of a rank, or that much of nothing.
  MSCCLPP_DEVICE Share of(uint32_t rank, bool wanted) const { return {wanted ? units(rank) : 0, at(rank), bytes(rank)}; }

 private:
  MSCCLPP_DEVICE uint32_t place(uint32_t rank) const { return rank > without ? rank - 1 : rank; }
  MSCCLPP_DEVICE static uint32_t most_of(uint32_t groups, uint32_t ranks) { return (groups + ranks - 1) / ranks * C::kGroup; }
};

// The rank without a share where all data is from, or for, one rank. Of two ranks both have
// a share: else one of them would have to sum everything.
MSCCLPP_DEVICE uint32_t without_root(const LLArgs& a) { return a.ranks > 2 ? a.signature.root : kMaxRanks; }

constexpr uint32_t kRowsAtOnce = 4;  // of which a thread has the loads in flight

// Stream goes through the pieces of one launch. The payload of a peer is units. Units with
// the same number modulo the threads of the launch belong to one thread, one in each row. A
// slot has room for a few rows of each part, where a collective that sends to the same peer
// twice has two parts.
template <class C>
class Stream {
 public:
  using Data = typename C::Data;
  const LLArgs& a;

  // units is of the largest share of a rank. All send to all in the last of the parts.
  MSCCLPP_DEVICE Stream(const LLArgs& args, uint32_t units, uint32_t parts)
      : a(args), step_(taking_part()), rows_(static_cast<uint32_t>(ceil_div(units, step_))), always_(parts - 1) {
    part_ = static_cast<uint32_t>((args.slot != 0 ? args.slot : args.half) / parts / C::kWire) / C::kGroup * C::kGroup;
    const uint32_t room = part_ / step_;
    const uint32_t wanted = step_ * kRows < kLeast ? kLeast / step_ : kRows;
    piece_ = room < wanted ? room : wanted;
    if (piece_ > kRowsAtOnce) piece_ -= piece_ % kRowsAtOnce;
    pieces_ = (rows_ + piece_ - 1) / piece_;
  }

  // begin is the start of the launch, which touches no memory before. False: leave.
  MSCCLPP_DEVICE bool begin() {
    if (!collectives::begin<C>(a, pieces_, begun_)) return false;
    await_previous();
    return true;
  }

  MSCCLPP_DEVICE uint32_t pieces() const { return pieces_; }

  // open begins piece k; false: leave.
  MSCCLPP_DEVICE bool open(uint32_t k) {
    epoch_ = begun_ + k;
    first_ = k * piece_;
    end_ = first_ + piece_ < rows_ ? first_ + piece_ : rows_;
    if (!clears(epoch_)) return true;
    if (!blocks_sync(a.state, a.control)) return false;  // others may still read what is cleared
    return LLLaunch<C, 0>(a, epoch_).ready();
  }

  // Whether this thread has a unit in row r of a share of so many units.
  MSCCLPP_DEVICE bool has(uint32_t r, uint32_t units) const { return r < end_ && unit(r) < units && global_thread() < step_; }
  MSCCLPP_DEVICE uint32_t unit(uint32_t r) const { return r * step_ + global_thread(); }

  // rows calls body for every kAtOnce rows of the piece.
  template <uint32_t kAtOnce, class Body>
  MSCCLPP_DEVICE bool rows(Body body) const {
    MSCCLPP_ROLLED
    for (uint32_t r = first_; r < end_; r += kAtOnce) {
      if (!body(r)) return false;
    }
    return true;
  }

  // rows_behind calls ahead for every kAtOnce rows of the piece, and behind for those before them.
  template <uint32_t kAtOnce, class Ahead, class Behind>
  MSCCLPP_DEVICE bool rows_behind(Ahead ahead, Behind behind) const {
    MSCCLPP_ROLLED
    for (uint32_t r = first_; r < end_ + kAtOnce; r += kAtOnce) {
      if (r < end_) ahead(r);
      if (r > first_ && !behind(r - kAtOnce)) return false;
    }
    return true;
  }

  // load fetches rows from r on of a share of so many units.
  template <uint32_t kAtOnce>
  MSCCLPP_DEVICE void load(Data (&d)[kAtOnce], uint32_t r, uint32_t units, const char* from, uint64_t bytes, bool whole) const {
    if (full<kAtOnce>(r, units, bytes, whole)) {
      MSCCLPP_UNROLL
      for (uint32_t i = 0; i < kAtOnce; ++i) d[i] = C::load_full(from, unit(r + i));
      return;
    }
    MSCCLPP_UNROLL
    for (uint32_t i = 0; i < kAtOnce; ++i) {
      d[i] = Data{};
      if (!has(r + i, units)) continue;
      d[i] = full<1>(r + i, units, bytes, whole) ? C::load_full(from, unit(r + i)) : C::load_rare(from, unit(r + i), bytes, whole);
    }
  }
  template <uint32_t kAtOnce>
  MSCCLPP_DEVICE void save(const Data (&d)[kAtOnce], uint32_t r, uint32_t units, char* to, uint64_t bytes, bool whole) const {
    if (full<kAtOnce>(r, units, bytes, whole)) {
      MSCCLPP_UNROLL
      for (uint32_t i = 0; i < kAtOnce; ++i) C::save_full(to, unit(r + i), d[i]);
      return;
    }
    MSCCLPP_UNROLL
    for (uint32_t i = 0; i < kAtOnce; ++i) {
      if (!has(r + i, units)) continue;
      if (full<1>(r + i, units, bytes, whole)) {
        C::save_full(to, unit(r + i), d[i]);
      } else {
        C::save_rare(to, unit(r + i), bytes, whole, d[i]);
      }
    }
  }
  template <uint32_t kAtOnce>
  MSCCLPP_DEVICE void send(const Data (&d)[kAtOnce], uint32_t peer, uint32_t part, uint32_t r, uint32_t units) const {
    const LLLaunch<C, 0> ll(a, epoch_);
    MSCCLPP_UNROLL
    for (uint32_t i = 0; i < kAtOnce; ++i) {
      if (travels(part, r + i, units)) ll.send(peer, wire(part, r + i), d[i]);
    }
  }
  // receive waits for rows from r on; false: leave. All threads of a warp call it together.
  template <uint32_t kAtOnce>
  MSCCLPP_DEVICE bool receive(Data (&d)[kAtOnce], uint32_t peer, uint32_t part, uint32_t r, uint32_t units) const {
    const LLLaunch<C, 0> ll(a, epoch_);
    const char* slot = ll.slot(a.rank, peer);
    const uint32_t flag = flag_of(epoch_);
    const WaitSite site{kernel_of(a.signature), kWordPacket, peer, flag, &a.state->left};
    return C::wait(a.control, site, [&]() MSCCLPP_LAMBDA {
      bool all = true;
      MSCCLPP_UNROLL
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        if (travels(part, r + i, units)) all = C::poll(slot, wire(part, r + i), flag, d[i]) && all;
      }
      return all;
    });
  }

  // Where this rank has no data for a peer in a piece, it sends an empty unit, and the peer waits for that. send_empty sends it,
  // where the launch has one part; receive_empty is receive of it.
  MSCCLPP_DEVICE void send_empty(uint32_t peer) const {
    if (global_thread() < step_) LLLaunch<C, 0>(a, epoch_).send(peer, wire(0, first_), Data{});
  }
  MSCCLPP_DEVICE bool receive_empty(uint32_t peer) const {
    Data d[1];
    return receive(d, peer, 0, first_, 0);
  }

  // collect waits for a part of every peer's share and saves it. where says which
  // share of the message that is; false: leave.
  template <uint32_t kAtOnce, class Where>
  MSCCLPP_DEVICE bool collect(uint32_t part, char* out, bool whole, Where where) const {
    return peers([&](uint32_t p) MSCCLPP_LAMBDA {
      const Share share = where(p);
      return rows<kAtOnce>([&](uint32_t r) MSCCLPP_LAMBDA {
        Data d[kAtOnce];
        if (!receive(d, p, part, r, share.units)) return false;
        save(d, r, share.units, out + share.at, share.bytes, whole);
        return true;
      });
    });
  }

  // Calls body for each peer, by turns; it says whether to go on.
  template <class Body>
  MSCCLPP_DEVICE bool peers(Body body) const {
    MSCCLPP_ROLLED
    for (uint32_t k = 1; k < a.ranks; ++k) {
      const uint32_t p = a.rank + MSCCLPP_TURN(k, a.ranks);
      if (!body(p < a.ranks ? p : p - a.ranks)) return false;
    }
    return true;
  }

  // The bytes of a share that belong to this piece.
  MSCCLPP_DEVICE uint64_t begins(uint64_t bytes) const { return smaller(bytes, C::at(first_ * step_)); }
  MSCCLPP_DEVICE uint64_t ends(uint64_t bytes) const { return smaller(bytes, C::at(end_ * step_)); }

  // sent says that this thread has sent all of piece k.
  MSCCLPP_DEVICE void sent(uint32_t k) const {
    if (k + 1 == pieces_) LLLaunch<C, 0>(a, epoch_).sent();
  }

 private:
  // Whether rows from r on are whole units at even addresses, as nearly all are: then
  // no branch stands between their loads.
  template <uint32_t kAtOnce>
  MSCCLPP_DEVICE bool full(uint32_t r, uint32_t units, uint64_t bytes, bool whole) const {
    const uint32_t last = r + kAtOnce - 1;
    return whole && has(last, units) && C::at(unit(last)) + sizeof(Data) <= bytes;
  }

  static constexpr uint32_t kRows = 8;       // of a piece: more data in flight than a link holds
  static constexpr uint32_t kLeast = 32768;  // units of a piece, where threads are few

  // Threads beyond whole groups take no part. So in all epochs a place in a slot belongs to
  // one thread, and it is at the same place of its group as the unit.
  MSCCLPP_DEVICE static uint32_t taking_part() { return global_threads() < C::kGroup ? 1 : global_threads() / C::kGroup * C::kGroup; }

  MSCCLPP_DEVICE bool travels(uint32_t part, uint32_t r, uint32_t units) const {
    return has(r, units) || (part == always_ && r == first_ && global_thread() < step_);
  }
  MSCCLPP_DEVICE uint32_t wire(uint32_t part, uint32_t r) const { return part * part_ + (r - first_) * step_ + global_thread(); }

  uint64_t begun_ = 0;  // the first epoch
  const uint32_t step_, rows_, always_;
  uint32_t part_;   // units of a slot for each part
  uint32_t piece_;  // rows
  uint32_t pieces_;
  uint64_t epoch_ = 0;
  uint32_t first_ = 0, end_ = 0;
};

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_STREAM_H_
