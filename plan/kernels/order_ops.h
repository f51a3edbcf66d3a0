// The operations without data: joins, signals, waits, semaphores, barriers.
#ifndef MSCCLPP_PLAN_ORDER_OPS_H_
#define MSCCLPP_PLAN_ORDER_OPS_H_

#include "machine.h"

namespace mscclpp {
namespace plans {

MSCCLPP_DEVICE const PortChannel& port_of(const Machine& m, uint32_t id) { return static_cast<const PortChannel&>(m.a.ports[id]); }

// Whether a signal or a wait orders execution only. That is enough before memory is written that others have read, which
// ThreadSanitizer does not know: for it all of them order data, so that it looks at the rest. Package verify proves the
// order of plans.
MSCCLPP_DEVICE bool is_relaxed(const Op& o) {
#if MSCCLPP_PLAN_STRONG
  (void)o;
  return false;
#else
  return (o.flags & kRelaxed) != 0;
#endif
}

#if MSCCLPP_PLAN_TURNS
// This rank alone raises the counter at the other end of a channel, so that it knows the value: it is behind the number of signals that it has waited for. A store
// leaves at once, where an addition waits until it has the line.
inline void raise(const SemaphoreHandle& s, bool relaxed) {
  const uint64_t count = ++s.expected[1];
  if (relaxed) {
    store_relaxed(s.outbound, count);
  } else {
    store_release(s.outbound, count);
  }
  MSCCLPP_HAPPENED(s.control, kRecordSignal, 0, s.peer)
}
#else
MSCCLPP_DEVICE void raise(const SemaphoreHandle& handle, bool relaxed) {
  const Semaphore& s = static_cast<const Semaphore&>(handle);
  if (relaxed) {
    s.relaxedSignal();
  } else {
    s.signal();
  }
}
#endif

// Thread i signals on channel i.
MSCCLPP_DEVICE Outcome signal(const Machine& m, const Op& o) {
  for (uint32_t i = m.tid; i < o.id_count; i += m.nthreads) {
    if (m.has(o, kOverPort)) {
      if (!port_of(m, m.a.ids[o.ids + i]).signal(m.a.kernel)) return kLeft;
      continue;
    }
    raise(m.memory(o, i), is_relaxed(o));
  }
  return kDone;
}

#if !MSCCLPP_PLAN_TURNS
// A thread takes the number of the signal that it waits for next. It does so before its data is under way or, for later waits, before it signals: a wait
// would begin with a look at the second cache, and so would a signal if the number came right before it.
MSCCLPP_DEVICE void enter(const Machine& m, const Op& next, Cursor& c) {
  if (c.entered != 0 || next.kind != kWait || m.has(next, kOverPort) || next.id_count > m.nthreads || m.tid >= next.id_count) return;
  if ((next.flags & kMet) != 0 && m.a.windows != nullptr) return;
  c.want = mscclpp::detail::advance(m.memory(next, m.tid).expected, 1);
  c.entered = 1;
}
#endif

// Thread i waits for a signal on channel i.
MSCCLPP_DEVICE Outcome wait(const Machine& m, const Op& o, Cursor& c) {
  for (uint32_t i = m.tid + c.part; i < o.id_count; i += m.nthreads) {
    const SemaphoreHandle& s = m.has(o, kOverPort) ? m.a.ports[m.a.ids[o.ids + i]].semaphore : m.memory(o, i);
    if (c.entered == 0) c.want = mscclpp::detail::advance(s.expected, 1);
    c.entered = 1;
    const uint64_t want = c.want;
    const uint64_t* word = s.inbound;
    const bool relaxed = is_relaxed(o);
    const Outcome out = m.await(o, c, s.peer, want, [word, want, relaxed]() MSCCLPP_PLAN_LAMBDA {
      return (relaxed ? load_relaxed(word) : MSCCLPP_POLL(word)) >= want;
    });
    if (out != kDone) return out;
#if MSCCLPP_TARGET_HIP
    if (!relaxed) (void)acquired(true);
#endif
    c.entered = 0;
    ++c.part;
#if !MSCCLPP_PLAN_TURNS
    c.part = 0;
#endif
  }
  return kDone;
}

MSCCLPP_DEVICE Outcome flush(const Machine& m, const Op& o) {
  for (uint32_t i = m.tid; i < o.id_count; i += m.nthreads) {
    if (!port_of(m, m.a.ids[o.ids + i]).flush(m.a.kernel)) return kLeft;
  }
  return kDone;
}

MSCCLPP_DEVICE void release(const Machine& m, const Op& o) {
  for (uint32_t i = m.tid; i < o.id_count; i += m.nthreads) {
    uint32_t* word = m.a.semaphores + m.a.ids[o.ids + i];
#if MSCCLPP_PLAN_TURNS
    ++*word;
#else
    fetch_add_acq_rel_device(word, 1u);
#endif
  }
}

MSCCLPP_DEVICE Outcome acquire(const Machine& m, const Op& o, Cursor& c) {
  for (uint32_t i = m.tid + c.part; i < o.id_count; i += m.nthreads) {
    uint32_t* word = m.a.semaphores + m.a.ids[o.ids + i];
    const Outcome out = m.await(o, c, kNoPeer, 1, [word]() MSCCLPP_PLAN_LAMBDA {
#if MSCCLPP_PLAN_TURNS
      if (*word == 0) return false;
      --*word;
      return true;
#else
      const uint32_t seen = MSCCLPP_POLL_DEVICE(word);
      return seen != 0 && compare_exchange_device(word, seen, seen - 1) == seen;
#endif
    });
    if (out != kDone) return out;
#if MSCCLPP_PLAN_TURNS
    ++c.part;
#else
    fence_device();
#endif
  }
  return kDone;
}

#if !MSCCLPP_PLAN_TURNS
// The window of a switch and a rank's own address are two names of memory. An access by one that follows one by the other needs a fence behind the first
// and another one before the second. Joins have both, as all threads come by between them.
MSCCLPP_DEVICE void between_names(const Machine& m, const Op& o) {
#if MSCCLPP_MULTIMEM
  if (m.has(o, kAliased)) mscclpp::detail::alias_fence();
#endif
  (void)m, (void)o;
}

MSCCLPP_DEVICE bool join(const Machine& m, const Op& o, bool ok) {
  between_names(m, o);
  if (!block_sync_and(ok)) return false;
  between_names(m, o);
  return true;
}
#endif

// A join of blocks of this rank.
MSCCLPP_DEVICE Outcome barrier(const Machine& m, const Op& o, Cursor& c, bool ok) {
  Meeting* meeting = m.a.meetings + o.ids;
#if MSCCLPP_PLAN_TURNS
  (void)ok;
  if (c.entered == 0) {
    c.entered = 1;
    c.want = meeting->generation;
    if (++meeting->arrived == o.blocks) {
      meeting->arrived = 0;
      ++meeting->generation;
    }
  }
  if (meeting->generation != static_cast<uint32_t>(c.want)) return kDone;
  c.peer = kNoPeer;
  return kBlocked;
#else
  between_names(m, o);
  if (!block_sync_and(ok)) return kLeft;
  if (m.tid == 0) {
    const uint32_t* word = &meeting->generation;
    const uint32_t generation = load_relaxed_device(word);
    if (fetch_add_acq_rel_device(&meeting->arrived, 1u) == o.blocks - 1) {
      store_relaxed_device(&meeting->arrived, 0u);
      store_release_device(&meeting->generation, generation + 1);
    } else {
      ok = MSCCLPP_ACQUIRED_DEVICE(m.await(o, c, kNoPeer, generation + 1, [word, generation]() MSCCLPP_PLAN_LAMBDA {
        return MSCCLPP_POLL_DEVICE(word) != generation;
      }) == kDone);
    }
  }
  return join(m, o, ok) ? kDone : kLeft;
#endif
}

}  // namespace plans
}  // namespace mscclpp
#endif  // MSCCLPP_PLAN_ORDER_OPS_H_
