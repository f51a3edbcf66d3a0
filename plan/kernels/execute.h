// A launch: all blocks of a rank go through their lists once.
#ifndef MSCCLPP_PLAN_EXECUTE_H_
#define MSCCLPP_PLAN_EXECUTE_H_

#include "data_ops.h"
#include "order_ops.h"
#include "packet_ops.h"

namespace mscclpp {
namespace plans {

template <class T>
MSCCLPP_DEVICE Outcome step(const Machine& m, const Op& o, Cursor& c, uint64_t unit, bool ok) {
  const bool eight = m.a.packet == sizeof(LL8Packet);
  switch (o.kind) {
    case kBarrier: return barrier(m, o, c, ok);
    case kSignal: return signal(m, o);
    case kWait: return wait(m, o, c);
    case kFlush: return flush(m, o);
    case kAcquire: return acquire(m, o, c);
    case kRelease: release(m, o); return kDone;
    case kMove: move(m, o, c, unit); return kDone;
    case kReduce: reduce<T>(m, o, c, unit); return kDone;
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

// The list of block m.block, until it ends or has to wait. ok is that of this thread, on GPUs.
template <class T>
MSCCLPP_DEVICE Outcome run(const Machine& m, Cursor& c, bool& moved) {
  const Block b = m.a.blocks[m.block];
  const Op* ops = m.a.ops + b.first;
  bool ok = true;
  for (turn(m, ops, b.count, c); c.op < b.count; turn(m, ops, b.count, c)) {
    const Op& o = ops[c.op];
    const uint64_t unit = c.pipe != 0 ? ops[c.pipe - 1].unit : 0;
#if MSCCLPP_PLAN_TURNS
    const uint64_t at = c.at + c.part;
    const Outcome out = step<T>(m, o, c, unit, ok);
    moved = moved || out == kDone || c.at + c.part > at;
    if (out != kDone) return out;
    c.at = c.part = c.entered = 0;
#else
    moved = true;
    if (o.kind == kNop) {
      if (!block_sync_and(ok)) return kLeft;
    } else if (ok || o.kind == kBarrier) {
      if (step<T>(m, o, c, unit, ok) != kDone) {
        if (o.kind == kBarrier) return kLeft;
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

// Thread t of nthreads tells its share of the ranks whose memory is reached which call this is.
MSCCLPP_DEVICE void announce(const PlanArgs& a, uint64_t launch, uint32_t t, uint32_t nthreads) {
  for (uint32_t r = t; r < a.ranks; r += nthreads) {
    Notice* notice = a.peers[r];
    if (notice == nullptr) continue;
    auto& now = notice->of[launch & 1];
    store_relaxed(&now.signature, a.signature);
    store_relaxed(&now.input, a.input_offset);
    store_relaxed(&now.output, a.output_offset);
    store_release(&now.launch, launch);
  }
}

// resolve notes where the buffers of a rank are, given its notice. It returns false if the rank has begun another call.
MSCCLPP_DEVICE bool resolve(const PlanArgs& a, Slot* slots, uint32_t r, uint64_t launch) {
  const auto& notice = a.notice[r].of[launch & 1];
  if (load_relaxed(&notice.signature) != a.signature) return false;
  slots[3 * r].address = a.windows[r].input + load_relaxed(&notice.input);
  slots[3 * r + 1].address = a.windows[r].output + load_relaxed(&notice.output);
  return true;
}

#if MSCCLPP_PLAN_TURNS

// apart returns 1 + a rank that has begun another call, or 0.
inline uint32_t apart(const PlanArgs& a, uint64_t launch) {
  for (uint32_t r = 0; r < a.ranks; ++r) {
    const auto& notice = a.notice[r].of[launch & 1];
    if (a.peers[r] == nullptr || load_acquire(&notice.launch) != launch || load_relaxed(&notice.signature) == a.signature) continue;
    if (load_acquire(&notice.launch) == launch) return r + 1;
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

template <class T>
inline void execute(const PlanArgs& a) {
  State* s = a.state;
  const uint64_t launch = s->launches + 1;
  Machine m(a, launch);
  announce(a, launch, 0, 1);
  for (uint32_t b = 0; b < a.block_count; ++b) a.cursors[b] = Cursor();
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
    s->apart = apart(a, launch);
    return left = s->apart != 0;
  };
  while (running > 0 && !left) left = !wait_until(a.control, site, pass) || left;
  if (!left) s->apart = apart(a, launch);
  s->left = left || s->apart != 0;
  s->launches = launch;
}

#else

// Threads look at all that the block is going to read of the tables, at the same time. It is in the cache afterwards, where
// one operation after the other would wait for memory of the device.
MSCCLPP_DEVICE bool sound(const Machine& m) {
  const Block b = m.a.blocks[m.block];
  bool ok = true;
  for (uint32_t i = m.tid; i < b.count; i += m.nthreads) ok = ok && m.a.ops[b.first + i].kind <= kPut;
  for (uint32_t i = m.tid; i < b.operand_count; i += m.nthreads) ok = ok && m.a.operands[b.operands + i].packet <= 1;
  return ok;
}

// Threads wait for the notices of the ranks, each for its own, and write down where their buffers are.
MSCCLPP_DEVICE bool meet(const Machine& m, Slot* slots, uint64_t launch) {
  const PlanArgs& a = m.a;
  for (uint32_t r = m.tid; r < a.ranks; r += m.nthreads) {
    if (a.windows[r].mate == 0) continue;
    const uint64_t* word = &a.notice[r].of[launch & 1].launch;
    const WaitSite site{a.kernel, m.block << 20 | 0xfffffu, r, launch};
    if (!wait_brief(a.control, site, [word, launch]() MSCCLPP_PLAN_LAMBDA { return load_acquire(word) == launch; })) return false;
    if (!resolve(a, slots, r, launch)) {
      store_relaxed_device(&a.state->apart, r + 1);
      return false;
    }
  }
  return true;
}

template <class T>
MSCCLPP_DEVICE void execute(const PlanArgs& a) {
  State* s = a.state;
  const uint64_t launch = load_relaxed_device(&s->launches) + 1;
  Machine m(a, launch);
  m.block = block_id();
  bool ok = load_relaxed_device(&s->left) == 0;
  if (m.block == 0 && ok) announce(a, launch, m.tid, m.nthreads);
  ok = sound(m) && ok;
  if (a.windows != nullptr) {
    Slot* slots = a.resolved + m.block * 3 * a.ranks;
    ok = ok && meet(m, slots, launch);
    m.slots = slots;
  }
  Cursor c = {};
  bool moved = false;
  const Outcome out = block_sync_and(ok) ? run<T>(m, c, moved) : kLeft;
  if (m.tid != 0) return;
  if (out != kDone) {
    store_release_device(&s->left, 1u);
    return;
  }
  if (fetch_add_acq_rel_device(&s->finished, 1u) != a.block_count - 1) return;
  store_relaxed_device(&s->finished, 0u);
  store_release_device(&s->launches, launch);
}

#endif

}  // namespace plans
}  // namespace mscclpp
#endif  // MSCCLPP_PLAN_EXECUTE_H_
