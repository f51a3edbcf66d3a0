// A launch: all blocks of a rank go through their lists once.
#ifndef MSCCLPP_PLAN_EXECUTE_H_
#define MSCCLPP_PLAN_EXECUTE_H_

#include "data_ops.h"
#include "order_ops.h"
#include "packet_ops.h"

namespace mscclpp {
namespace plans {

// kEvery: kernels without it have nothing but the first four kinds.
template <class T, bool kEvery>
MSCCLPP_DEVICE Outcome step(const Machine& m, const Op& o, Cursor& c, uint64_t unit, bool ok) {
  switch (o.kind) {
    case kSignal: return signal(m, o);
    case kWait: return wait(m, o, c);
    case kMove: move(m, o, c, unit); return kDone;
    case kReduce: reduce<T>(m, o, c, unit); return kDone;
    default: break;
  }
  if constexpr (!kEvery) return kDone;
  const bool eight = m.a.packet == sizeof(LL8Packet);
  switch (o.kind) {
    case kBarrier: return barrier(m, o, c, ok);
    case kFlush: return flush(m, o);
    case kAcquire: return acquire(m, o, c);
    case kRelease: release(m, o); return kDone;
    case kPack:
      if (eight) {
        pack<LL8Packet>(m, o, c);
      } else {
        pack<LL16Packet>(m, o, c);
      }
      return kDone;
    case kUnpack: return eight ? unpack<LL8Packet>(m, o, c) : unpack<LL16Packet>(m, o, c);
    case kForward:
    case kAwait: return eight ? forward<LL8Packet>(m, o, c) : forward<LL16Packet>(m, o, c);
    case kReducePackets: return eight ? reduce_packets<T, LL8Packet>(m, o, c) : reduce_packets<T, LL16Packet>(m, o, c);
    case kPut: return put(m, o, c, unit);
    default: return kDone;
  }
}

// How often a pipeline runs its operations.
MSCCLPP_DEVICE uint64_t turns_of(const Machine& m, const Op& o) {
  const uint64_t bytes = o.chunks * m.a.chunk + o.unit - 1;
  return o.unit >> 32 == 0 ? Machine::divide(bytes, static_cast<uint32_t>(o.unit)) : bytes / o.unit;
}

// turn goes into a pipeline, and on to its next turn. The block is at an operation afterwards, or at the end of its list.
MSCCLPP_DEVICE void turn(const Machine& m, const Op* ops, uint32_t count, Cursor& c) {
  for (;;) {
    if (c.pipe != 0) {
      const Op& p = ops[c.pipe - 1];
      if (c.op < c.pipe + p.inner) return;
      if (++c.turn < turns_of(m, p)) {
        c.op = c.pipe;
        if (p.inner != 0) return;
        continue;
      }
      c.pipe = 0;
    }
    if (c.op >= count || ops[c.op].kind != kPipeline) return;
    if (turns_of(m, ops[c.op]) == 0) {
      c.op += 1 + ops[c.op].inner;
      continue;
    }
    c.turn = 0;
    c.pipe = ++c.op;
  }
}

template <bool kEvery>
MSCCLPP_DEVICE bool more(const Machine& m, const Op* ops, uint32_t count, Cursor& c) {
  if (kEvery) turn(m, ops, count, c);
  return c.op < count;
}

// The operation at a place of a list. The kernel for fewer kinds loads what it needs of it as words of 16 bytes: field by field, each branch would wait for the
// next load.
template <bool kEvery>
MSCCLPP_DEVICE decltype(auto) taken(const Op* op) {
#if MSCCLPP_TARGET_CUDA && defined(__clang__)
  if constexpr (!kEvery) {
    static_assert(offsetof(Room, ops) % 16 == 0 && sizeof(Op) % 16 == 0, "operations lie at multiples of 16 bytes");
    static_assert(offsetof(Op, operands) == 8 && offsetof(Op, id_count) == 16 && offsetof(Op, reduction) == 22, "fields are where words have them");
    typedef uint32_t Words __attribute__((ext_vector_type(4), may_alias));
    const Words* words = reinterpret_cast<const Words*>(op);
    const Words a = words[0], b = words[1];
    Op o = {};
    o.kind = static_cast<uint16_t>(a.x);
    o.flags = static_cast<uint16_t>(a.x >> 16);
    o.sources = static_cast<uint16_t>(a.y);
    o.destinations = static_cast<uint16_t>(a.y >> 16);
    o.operands = a.z;
    o.ids = a.w;
    o.id_count = static_cast<uint16_t>(b.x);
    o.reduction = static_cast<uint16_t>(b.y >> 16);
    o.number = op->number;
    o.from = op->from;
    o.bytes = op->bytes;
    return o;
  } else
#endif
    return (*op);
}

// The list of block m.block, until it ends or has to wait. ok is that of this thread, on GPUs.
template <class T, bool kEvery = true>
MSCCLPP_DEVICE Outcome run(const Machine& m, Cursor& c, bool& moved) {
  const Op* ops = m.ops();
  const uint32_t count = m.list.count;
  bool ok = true;
  while (more<kEvery>(m, ops, count, c)) {
    const auto& o = taken<kEvery>(ops + c.op);
    const uint64_t unit = c.pipe != 0 ? ops[c.pipe - 1].unit : 0;
    if ((o.flags & kMet) != 0 && m.a.windows != nullptr) {
      ++c.op;
      continue;
    }
#if MSCCLPP_PLAN_TURNS
    const uint64_t at = c.at + c.part;
    began(m, o, c);
    const Outcome out = step<T, true>(m, o, c, unit, ok);
    moved = moved || out == kDone || c.at + c.part > at;
    if (out != kDone) return out;
    ended(m, o, c, unit);
    c.at = c.part = c.entered = 0;
#else
    moved = true;
    if (o.kind == kNop) {
      if (!join(m, o, ok)) return kLeft;
    } else if (ok || (kEvery && o.kind == kBarrier)) {
      if (o.kind == kSignal && c.op + 1 < (c.pipe != 0 ? c.pipe + ops[c.pipe - 1].inner : count)) enter(m, ops[c.op + 1], c);
      if (step<T, kEvery>(m, o, c, unit, ok) != kDone) {
        if (kEvery && o.kind == kBarrier) return kLeft;
        ok = false;  // this thread is done, and goes on to the next join of the block
      }
    }
#endif
    ++c.op;
  }
#if !MSCCLPP_PLAN_TURNS
  if (!block_sync_and(ok)) return kLeft;
#endif
  return kDone;
}

#if MSCCLPP_PLAN_TURNS

// The calls of this rank as its peers know them, in words that the state of a rank on the host has left.
struct Told {
  uint64_t signature;
  uint64_t input, output;  // with windows
  uint64_t since;          // the first launch with the signature; with windows the last launch
  uint32_t slot;           // of the notice that says so
  uint32_t same;           // launches right before that said the same; at most 2
};
inline Told& told_of(State* s) { return *reinterpret_cast<Told*>(s->pad + 1); }
static_assert(offsetof(State, pad) % 8 == 4, "the words are aligned");
static_assert(sizeof(Told) + sizeof(uint32_t) <= sizeof(State{}.pad), "the words have room");

// A rank tells those whose memory is reached which call this is. Without windows a notice holds until the next one: a rank that repeats
// its calls stores nothing that its peers have in their caches. With windows it stores no more than the number of the launch: two notices say the rest already.
inline void announce(const PlanArgs& a, uint64_t launch) {
  Told& told = told_of(a.state);
  uint32_t slot = launch & 1, same = 0;
  const bool again = told.since != 0 && told.signature == a.signature;
  if (a.windows == nullptr) {
    if (again) return;
    slot = (told.slot + 1) & 1;
  } else if (again && told.input == a.input_offset && told.output == a.output_offset && told.since + 1 == launch) {
    same = told.same < 2 ? told.same + 1 : 2;
  }
  told = Told{a.signature, a.input_offset, a.output_offset, launch, slot, same};
  for (uint32_t r = 0; r < a.ranks; ++r) {
    Notice* notice = a.peers[r];
    if (notice == nullptr) continue;
    auto& now = notice->of[slot];
    if (same == 2) {
      store_release(&now.launch, launch);
      continue;
    }
    store_relaxed(&now.launch, static_cast<uint64_t>(0));  // else a peer could take the old number with the new signature
    store_release(&now.signature, a.signature);
    store_relaxed(&now.input, a.input_offset);
    store_relaxed(&now.output, a.output_offset);
    store_release(&now.launch, launch);
  }
}

// resolve notes where the buffers of a rank are, given its notice. It returns false if the rank has begun another call.
inline bool resolve(const PlanArgs& a, Slot* slots, uint32_t r, uint64_t launch) {
  const auto& notice = a.notice[r].of[launch & 1];
  if (load_relaxed(&notice.signature) != a.signature) return false;
  slots[3 * r].address = a.windows[r].input + load_relaxed(&notice.input);
  slots[3 * r + 1].address = a.windows[r].output + load_relaxed(&notice.output);
  return true;
}

// apart returns 1 + a rank that has begun another call, or 0. Of a rank's notices the last one before the launch counts; with windows
// each launch has one, and ranks that have met have compared them: those may write the next one by now. Without, a notice older than this
// rank's own says nothing: its rank may be about to begin this call with a new one. If it goes on as before instead, it finds this rank's
// notice, which is newer than its own.
inline uint32_t apart(const PlanArgs& a, uint64_t launch, bool met) {
  for (uint32_t r = 0; r < a.ranks; ++r) {
    if (a.peers[r] == nullptr || (met && a.windows[r].mate != 0)) continue;
    const auto& both = a.notice[r].of;
    const uint64_t first = load_acquire(&both[0].launch), second = load_acquire(&both[1].launch);
    const bool later = second <= launch && (first > launch || second > first);
    const auto& notice = both[later ? 1 : 0];
    const uint64_t since = later ? second : first;
    if (since == 0 || since > launch || since < told_of(a.state).since) continue;
    if (load_acquire(&notice.signature) != a.signature && load_acquire(&notice.launch) == since) return r + 1;
  }
  return 0;
}

// meet goes on to the next rank whose notice has not come, and returns its number, or that of ranks if there is none.
inline uint32_t meet(const PlanArgs& a, uint32_t next, uint64_t launch) {
  for (; next < a.ranks; ++next) {
    if (a.windows[next].mate == 0) continue;
    if (load_acquire(&a.notice[next].of[launch & 1].launch) != launch || !resolve(a, a.resolved, next, launch)) return next;
  }
  return next;
}

constexpr uint32_t kIdlePerLook = 1024;  // passes without progress between two looks at what the others have begun
constexpr uint32_t kPatience = 16;       // looks of the only block that is not done

template <class T, bool>
inline void execute(const PlanArgs& a) {
  State* s = a.state;
  const uint64_t launch = s->launches + 1;
  Machine m(a, launch);
  announce(a, launch);
  for (uint32_t b = 0; b < a.block_count; ++b) {
    m.list = a.blocks[b];
    a.cursors[b] = Cursor();
    a.cursors[b].op = m.first();
  }
  uint32_t running = a.block_count, idle = 0, met = a.ranks;
  if (a.windows != nullptr) {
    met = 0;
    m.slots = a.resolved;
  }
  bool left = false;
  WaitSite site{a.kernel, 0, kNoPeer, launch};
  const auto blocks = [&] {
    bool moved = false;
    site.peer = kNoPeer;
    for (uint32_t b = 0; b < a.block_count; ++b) {
      Cursor& c = a.cursors[b];
      if (c.ended != 0) continue;
      m.block = b;
      m.list = a.blocks[b];
      m.patience = running == 1 ? kPatience : 1;
      const Outcome out = run<T>(m, c, moved);
      if (out == kBlocked) {
        if (site.peer == kNoPeer) site = m.site(a.ops[a.blocks[b].first + c.op], c.peer, launch);
        continue;
      }
      if (out == kLeft) return left = true;
      c.ended = 1;
      --running;
      moved = true;
    }
    return moved;
  };
  const auto pass = [&] {
    bool moved = false;
    if (met < a.ranks) site.peer = met = meet(a, met, launch);
    if (met == a.ranks) moved = blocks();
    if (moved || ++idle % kIdlePerLook != 0) return moved;
    s->apart = apart(a, launch, false);
    return left = s->apart != 0;
  };
  while (running > 0 && !left) left = !wait_until(a.control, site, pass) || left;
  if (!left) s->apart = apart(a, launch, a.windows != nullptr);
  s->left = left || s->apart != 0;
  s->launches = launch;
}

#else

// Whether another rank says where an operand is.
MSCCLPP_DEVICE bool is_told(const PlanArgs& a, const Operand& x) { return a.windows != nullptr && x.slot % 3 != 2 && x.slot / 3 != a.rank; }

// Threads copy the part of the tables that the block needs, each an operation with its operands. The copy is the same in all launches but for
// the half of scratch memory and the buffers of other ranks, so it may be made while the kernel before this one runs.
MSCCLPP_DEVICE Room* furnish(Machine& m) {
  const PlanArgs& a = m.a;
  const Block b = m.list;
  const bool small = b.count <= kRoomOps && b.operand_count <= kRoomOperands && b.id_count <= kRoomIDs && (a.windows == nullptr || 3 * a.ranks <= kRoomSlots);
  Room* room = room_of(a.rank, m.block);
  if (m.every && (!small || room == nullptr)) return nullptr;
  if (a.windows != nullptr) {
    for (uint32_t r = m.tid; r < a.ranks; r += m.nthreads) {
      room->windows[r] = a.windows[r];
      room->peers[r] = a.peers[r];
    }
  }
  for (uint32_t i = m.tid; i < b.count; i += m.nthreads) {
    const Op& o = a.ops[b.first + i];
    Op& here = room->ops[i];
#if MSCCLPP_TARGET_CUDA
    __builtin_memcpy(&here, &o, sizeof(Op));  // store16 is for memory of the device alone
#else
    MSCCLPP_UNROLL
    for (uint32_t k = 0; k < sizeof(Op) / sizeof(Vec16); ++k) {  // as words: compilers copy it in 16 bits
      mscclpp::store16(reinterpret_cast<Vec16*>(&here) + k, mscclpp::load16(reinterpret_cast<const Vec16*>(&o) + k));
    }
#endif
    const uint32_t count = m.operands_of(o), first = o.operands - b.operands;
    const bool fixed = !m.changes(o), by_source = o.kind == kForward || o.kind == kAwait;
    if (count != 0) {
      const Range r = m.range_in_turn(o, a.operands[o.operands + (by_source ? 0 : o.sources)], Cursor(), 0);
      here.operands = first;
      here.from = r.from;
      here.bytes = r.n;
      for (uint32_t k = 0; k < count; ++k) {
        const Operand& x = a.operands[o.operands + k];
        const uint64_t base = is_told(a, x) ? 0 : reinterpret_cast<uint64_t>(m.base(x));
        const uint32_t later = is_told(a, x) ? kAtTold : fixed && x.slot % 3 == 2 ? kInHalf : 0;
        room->operands[first + k] = Operand{fixed ? base + m.place(x, r) : base, x.slot, x.index, x.size, x.packet | later};
      }
    }
    if ((o.kind != kSignal && o.kind != kWait) || m.has(o, kOverPort)) continue;
    for (uint32_t k = 0; k < o.id_count; ++k) room->memory[o.ids - b.ids + k] = a.memory[a.ids[o.ids + k]];
  }
  return room;
}

// Threads add the half of scratch memory, and where the buffers of other ranks are.
MSCCLPP_DEVICE void complete(const Machine& m) {
  if (m.half == 0 && m.a.windows == nullptr) return;
  for (uint32_t i = m.tid; i < m.list.operand_count; i += m.nthreads) {
    Operand& x = m.room->operands[i];
    if ((x.packet & kInHalf) != 0) x.base += m.half;
    if ((x.packet & kAtTold) != 0) x.base += m.slots[x.slot].address;
  }
}

MSCCLPP_DEVICE LL16Packet* packets_of(uint32_t* words) { return reinterpret_cast<LL16Packet*>(words); }
MSCCLPP_DEVICE const LL16Packet* packets_of(const uint32_t* words) { return reinterpret_cast<const LL16Packet*>(words); }

// Only data of earlier kernels has to be published by a notice, and their end has done that; on other targets fences do.
MSCCLPP_DEVICE void order() {
#if !MSCCLPP_TARGET_CUDA
  fence_system();
#endif
}

// The first threads take the number of the first signal that they wait for, while the notices of other ranks are under way. In loops an operation may
// be left out, so that only lists without them say which is the first.
template <bool kEvery>
MSCCLPP_DEVICE void enter_first(const Machine& m, Cursor& c) {
  if (kEvery || m.tid >= MSCCLPP_WARP) return;
  for (uint32_t i = c.op; i < m.list.count; ++i) {
    const Op& o = m.ops()[i];
    if (o.kind != kWait || ((o.flags & kMet) != 0 && m.a.windows != nullptr)) continue;
    enter(m, o, c);
    return;
  }
}

constexpr uint32_t kTold = 3;  // words of a notice

MSCCLPP_DEVICE void announce(const Machine& m, uint64_t launch) {
  const PlanArgs& a = m.a;
  order();
  for (uint32_t i = m.tid; i < kTold * a.ranks; i += m.nthreads) {
    const uint32_t r = i / kTold, k = i - kTold * r;
    Notice* peer = m.furnished() ? m.room->peers[r] : a.peers[r];
    if (peer == nullptr) continue;
    writePacket(packets_of(peer->packets[launch & 1][k]), k == 0 ? a.signature : k == 1 ? a.input_offset : a.output_offset, m.flag);
  }
}

// Threads wait for the notices of the ranks, and write down where their buffers are.
MSCCLPP_DEVICE bool meet(const Machine& m, Slot* slots, uint64_t launch) {
  const PlanArgs& a = m.a;
  for (uint32_t i = m.tid; i < kTold * a.ranks; i += m.nthreads) {
    const uint32_t r = i / kTold, k = i - kTold * r;
    const Window* windows = m.furnished() ? m.room->windows : a.windows;
    if (windows[r].mate == 0) continue;
    const LL16Packet* p = packets_of(a.notice[r].packets[launch & 1][k]);
    const uint32_t flag = m.flag;
    const WaitSite site{a.kernel, m.block << 20 | 0xfffffu, r, launch};
    uint64_t told = 0;
    if (!wait_brief(a.control, site, [p, flag, &told]() MSCCLPP_PLAN_LAMBDA { return pollPacket(p, flag, told); })) return false;
    (void)load_acquire(reinterpret_cast<const uint64_t*>(p));  // data is read behind it, which polls do not order
    if (k != 0) {
      slots[3 * r + k - 1].address = (k == 1 ? windows[r].input : windows[r].output) + told;
    } else if (told != a.signature) {
      store_relaxed_device(&a.state->apart, r + 1);
      return false;
    }
  }
  order();
  return true;
}

// Launches may overlap: the next one reads the tables while this one runs. No more than one waits for another.
// A kernel that has less to serve keeps all that it needs in registers: the first cache is emptied by polls, so what it puts aside it would wait for.
template <class T, bool kEvery>
MSCCLPP_DEVICE void execute(const PlanArgs& a) {
  Machine m(a, 1);
  m.every = kEvery;
  m.block = block_id();
  m.list = a.blocks[m.block];
  Room* room = furnish(m);
  block_sync();
  await_previous();
  release_next();
  State* s = a.state;
  uint64_t* launches = &a.cursors[m.block].launches;
  const uint64_t launch = load_relaxed_device(launches) + 1;
  m.count(launch);
  m.room = room;
  if (m.furnished()) m.operands = room->operands;
  bool ok = load_relaxed_device(&s->left) == 0;
  Cursor c = {};
  c.op = m.first();
  if (a.windows != nullptr && m.block == 0 && ok) announce(m, launch);
  if (ok) enter_first<kEvery>(m, c);
  if (a.windows != nullptr) {
    Slot* slots = m.furnished() ? room->slots : a.resolved + m.block * 3 * a.ranks;
    ok = ok && meet(m, slots, launch);
    m.slots = slots;
  }
  ok = block_sync_and(ok);
  if (ok && m.furnished() && (m.half != 0 || a.windows != nullptr)) {
    complete(m);
    block_sync();
  }
  bool moved = false;
  const Outcome out = ok ? run<T, kEvery>(m, c, moved) : kLeft;
  if (m.tid != 0) return;
  if (out != kDone) {
    store_release_device(&s->left, 1u);
  } else {
    store_relaxed_device(launches, launch);
  }
}

#endif

}  // namespace plans
}  // namespace mscclpp
#endif  // MSCCLPP_PLAN_EXECUTE_H_
