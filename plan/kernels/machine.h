// How thread blocks go through their lists.
//
// On a GPU every thread of a block goes through the list, and waits where it has to. On the host one thread has all blocks
// of a rank: an operation that has to wait keeps what it has done in the block's cursor, and the next block has its turn.
// Both are one source: await waits on a GPU, and on the host says whether the wait is over.
#ifndef MSCCLPP_PLAN_MACHINE_H_
#define MSCCLPP_PLAN_MACHINE_H_

#include <mscclpp/device.h>

#include "plan_args.h"

namespace mscclpp {
namespace plans {

#if MSCCLPP_TARGET_CPU
#define MSCCLPP_PLAN_TURNS 1
#endif

// Stands behind the parameters of a lambda, so that it is inlined like any other function.
#if MSCCLPP_TARGET_GPU && defined(__clang__)
#define MSCCLPP_PLAN_LAMBDA __attribute__((always_inline))
#else
#define MSCCLPP_PLAN_LAMBDA
#endif

// Loops over the bytes of an operand are functions where a call costs no memory: there are many, and a driver compiles
// every instruction.
#if MSCCLPP_TARGET_CUDA && defined(__clang__)
#define MSCCLPP_PLAN_OUTLINED __attribute__((device, noinline)) inline
#else
#define MSCCLPP_PLAN_OUTLINED MSCCLPP_DEVICE
#endif

constexpr uint32_t kNoPeer = 0xffffffffu;

enum Outcome : uint32_t { kDone, kBlocked, kLeft };

// The bytes of an operand that a block has to do now, from the beginning of the operand.
struct Range {
  uint64_t from;
  uint64_t n;
  bool noted = false;  // operands say where their bytes are
};

#if !MSCCLPP_PLAN_TURNS
// The part of the tables that a block reads, in memory that it reaches at once. Polls of other ranks' words empty the first cache, so each look at the
// tables would wait for the second one.
struct alignas(16) Room {
  Op ops[kRoomOps];
  Operand operands[kRoomOperands];  // base is where the bytes are that the block does, or, in pipelines, the buffer
  SemaphoreHandle memory[kRoomIDs];
  Slot slots[kRoomSlots];           // with windows
  Window windows[kRoomSlots / 3];
  Notice* peers[kRoomSlots / 3];
};

#if MSCCLPP_TARGET_CHECK
// The emulator's blocks have no memory of their own.
inline Room* room_of(uint32_t rank, uint32_t block) {
  constexpr uint32_t kRanks = 16, kBlocks = 64;
  static Room rooms[kRanks][kBlocks];
  return rank < kRanks && block < kBlocks ? &rooms[rank][block] : nullptr;
}
#else
MSCCLPP_DEVICE Room* room_of(uint32_t, uint32_t) {
  static __attribute__((shared)) Room room;
  return &room;
}
#endif
#endif

struct Machine {
  const PlanArgs& a;
  uint32_t block;
  uint32_t tid;
  uint32_t nthreads;
  uint32_t flag;    // of the packets of this launch
  uint64_t half;    // where its half of scratch memory begins
  const Slot* slots;  // of all ranks, as this block reaches them
  const Operand* operands;
  Block list;         // of the block
#if MSCCLPP_PLAN_TURNS
  uint32_t patience = 1;  // looks at what an operation waits for before another block has its turn
#else
  Room* room;         // null: the tables are read where they are
  bool every;         // false: nothing but moves, reductions and signals over memory, outside of pipelines, and a room for them
#endif

  MSCCLPP_DEVICE Machine(const PlanArgs& args, uint64_t launch)
      : a(args), block(0), tid(thread_id()), nthreads(block_dim()), flag(flag_of(launch)),
        half(launch % 2 == 0 ? args.half : 0), slots(args.slots), operands(args.operands), list() {
#if !MSCCLPP_PLAN_TURNS
    room = nullptr;
    every = true;
#endif
  }

#if !MSCCLPP_PLAN_TURNS
  MSCCLPP_DEVICE void count(uint64_t launch) {
    flag = flag_of(launch);
    half = launch % 2 == 0 ? a.half : 0;
  }
#endif

  // The number of the launch, without 0: that is what memory holds before the first one.
  static MSCCLPP_DEVICE uint32_t flag_of(uint64_t launch) {
    uint64_t n = launch - 1;  // modulo 2^32 - 1 this is the sum of its halves
    n = static_cast<uint32_t>(n) + (n >> 32);
    const uint32_t flag = static_cast<uint32_t>(n) + static_cast<uint32_t>(n >> 32) + 1;
    return flag != 0 ? flag : 1;
  }

  MSCCLPP_DEVICE const Operand& source(const Op& o, uint32_t i) const { return operands[o.operands + i]; }
  MSCCLPP_DEVICE const Operand& destination(const Op& o, uint32_t i) const { return source(o, o.sources + i); }
  MSCCLPP_DEVICE const Operand& through(const Op& o, uint32_t i) const { return source(o, o.sources + o.destinations + i); }
#if MSCCLPP_PLAN_TURNS
  MSCCLPP_DEVICE const Op* ops() const { return a.ops + a.blocks[block].first; }
  MSCCLPP_DEVICE const SemaphoreHandle& memory(const Op& o, uint32_t i) const { return a.memory[a.ids[o.ids + i]]; }
#else
  MSCCLPP_DEVICE bool furnished() const { return !every || room != nullptr; }
  MSCCLPP_DEVICE const Op* ops() const { return furnished() ? room->ops : a.ops + list.first; }
  MSCCLPP_DEVICE const SemaphoreHandle& memory(const Op& o, uint32_t i) const {
    return furnished() ? room->memory[o.ids - list.ids + i] : a.memory[a.ids[o.ids + i]];
  }
#endif

  MSCCLPP_DEVICE WaitSite site(const Op& o, uint32_t peer, uint64_t expected) const {
    return WaitSite{a.kernel, block << 20 | (o.number & 0xfffffu), peer, expected};
  }

  // A processor of a GPU divides 64 bits in a hundred instructions.
  static MSCCLPP_DEVICE uint64_t divide(uint64_t n, uint32_t by) { return n >> 32 == 0 ? static_cast<uint32_t>(n) / by : n / by; }

  // A slice of several of n bytes: granules are dealt out one by one, and the last slice has the rest.
  MSCCLPP_DEVICE Range share(uint64_t n, uint32_t slice, uint32_t of) const {
    const uint64_t e = divide(n, a.alignment), q = divide(e, of), r = e - q * of;
    const uint64_t begin = (slice * q + (slice < r ? slice : r)) * a.alignment;
    return Range{begin, slice + 1 == of ? n - begin : (q + (slice < r ? 1 : 0)) * a.alignment};
  }

#if MSCCLPP_PLAN_TURNS
  MSCCLPP_DEVICE bool has(const Op& o, uint16_t flag) const { return (o.flags & flag) != 0; }
#else
  MSCCLPP_DEVICE bool has(const Op& o, uint16_t flag) const { return every && (o.flags & flag) != 0; }  // of flags that not every kernel serves
#endif
  MSCCLPP_DEVICE bool changes(const Op& o) const { return has(o, kInPipeline) && !has(o, kOfPackets); }
  MSCCLPP_DEVICE uint32_t operands_of(const Op& o) const {
    const uint32_t count = uint32_t(o.sources) + o.destinations;
#if MSCCLPP_MULTIMEM
    return count + (has(o, kLoadsWindow) ? 1 : 0) + (has(o, kStoresWindow) ? 1 : 0);
#else
    return count;
#endif
  }

  MSCCLPP_DEVICE Range range(const Op& o, const Operand& x, const Cursor& c, uint64_t unit) const {
#if !MSCCLPP_PLAN_TURNS
    if (furnished() && !changes(o)) return Range{o.from, o.bytes, true};
#endif
    return range_in_turn(o, x, c, unit);
  }

  MSCCLPP_DEVICE Range range_in_turn(const Op& o, const Operand& x, const Cursor& c, uint64_t unit) const {
    uint64_t from = 0, n = x.size * a.chunk;
    if (c.pipe != 0 && (o.flags & kOfPackets) == 0) {
      from = c.turn * unit;
      n = from >= n ? 0 : n - from < unit ? n - from : unit;
    }
    if (o.slices > 1) {
      const Range r = share(n, o.slice, o.slices);
      from += r.from;
      n = r.n;
    }
    return Range{from, n};
  }

  // Where byte r.from of an operand lies in its buffer.
  MSCCLPP_DEVICE uint64_t place(const Operand& x, const Range& r) const {
    if (x.slot % 3 != 2) return x.index * a.chunk + r.from;
    uint64_t from = r.from;
    if (a.scratch_chunk < a.chunk) from %= a.scratch_chunk;  // a window that is used again
    from += x.index * a.scratch_chunk;
    return half + ((x.packet & kOfPacket) != 0 ? 2 * from : from);
  }

  MSCCLPP_DEVICE char* base(const Operand& x) const {
    if (x.base != 0) return reinterpret_cast<char*>(x.base);
    if (x.slot == 3 * a.rank) return a.input;
    if (x.slot == 3 * a.rank + 1) return a.output;
    return reinterpret_cast<char*>(slots[x.slot].address);
  }
  MSCCLPP_DEVICE char* at(const Operand& x, const Range& r) const {
#if !MSCCLPP_PLAN_TURNS
    if (!every || r.noted) return reinterpret_cast<char*>(x.base);
#endif
    return base(x) + place(x, r);
  }
  MSCCLPP_DEVICE uint64_t offset(const Operand& x, const Range& r) const { return a.slots[x.slot].offset + place(x, r); }

  // Before the result is whole, an average is a sum.
  MSCCLPP_DEVICE Reduction reduction_of(const Op& o) const {
    const auto op = static_cast<ReduceOp>(o.reduction != 0 ? o.reduction - 1u : a.op);
    return reduction(op == kAvg && (o.flags & kTotal) == 0 ? kSum : op, 1, a.ranks);
  }

  // Where a list begins.
  MSCCLPP_DEVICE uint32_t first() const { return a.windows != nullptr ? list.met : 0; }

  // Waits on a GPU; on the host reports whether there is something to wait for.
  template <class F>
  MSCCLPP_DEVICE Outcome await(const Op& o, Cursor& c, uint32_t peer, uint64_t expected, F ready) const {
#if MSCCLPP_PLAN_TURNS
    (void)o, (void)expected;
    for (uint32_t polls = 1; !ready(); ++polls) {
      if (polls >= patience) {
        c.peer = peer;
        return kBlocked;
      }
      mscclpp::detail::cpu_pause();
    }
    return kDone;
#else
    (void)c;
    return wait_brief(a.control, site(o, peer, expected), ready) ? kDone : kLeft;
#endif
  }
};

#if MSCCLPP_PLAN_TURNS
// An operation writes a record when its block comes to it, with its number in the list and the turn of its pipeline, and one when it is
// done, with its bytes.
#if MSCCLPP_RECORDS
inline bool recording() { return !mscclpp::detail::off() && mscclpp::detail::recorder != nullptr; }
inline uint64_t& noted_of(Cursor& c) { return c.pad[0]; }

__attribute__((noinline, unused)) static void record(const Machine& m, const Op& o, uint32_t phase, uint64_t bytes, uint32_t peer) {
  mscclpp::detail::Recorder* r = mscclpp::detail::recorder;
  r->waited();
  r->write(mscclpp::detail::now_ns(), (kRecordOperation + 4 * o.kind) | phase, bytes, m.block, peer);
}

inline void began(const Machine& m, const Op& o, Cursor& c) {
  if (!recording() || noted_of(c) != 0) return;
  noted_of(c) = 1;
  record(m, o, kRecordBegin, o.number | c.turn << 32, kNoPeer);
}
inline void ended(const Machine& m, const Op& o, Cursor& c, uint64_t unit) {
  if (!recording() || noted_of(c) == 0) return;
  noted_of(c) = 0;
  const bool data = uint32_t(o.sources) + o.destinations != 0, by_source = o.kind == kForward || o.kind == kAwait;
  const bool waits = o.kind == kWait && o.id_count != 0;
  const uint32_t peer = !waits ? kNoPeer : (o.flags & kOverPort) != 0 ? m.a.ports[m.a.ids[o.ids]].semaphore.peer : m.memory(o, 0).peer;
  record(m, o, kRecordEnd, !data ? 0 : m.range(o, by_source ? m.source(o, 0) : m.destination(o, 0), c, unit).n, peer);
}
#else
inline void began(const Machine&, const Op&, Cursor&) {}
inline void ended(const Machine&, const Op&, Cursor&, uint64_t) {}
#endif
#endif

}  // namespace plans
}  // namespace mscclpp
#endif  // MSCCLPP_PLAN_MACHINE_H_
