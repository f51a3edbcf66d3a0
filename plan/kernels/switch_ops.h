// Data through the window of a switch: a store to it reaches the memory of all members, and a load reduces over it. The host marks
// operations for which there is a window; where the switch cannot reduce, or words of 16 bytes do not fit, the memory of the members is
// reached one by one.
#ifndef MSCCLPP_PLAN_SWITCH_OPS_H_
#define MSCCLPP_PLAN_SWITCH_OPS_H_

#include "machine.h"

#if MSCCLPP_MULTIMEM
#include <mscclpp/multimem_wide.h>
#endif

namespace mscclpp {
namespace plans {

#if MSCCLPP_MULTIMEM

// Whether the switch reduces elements of a type by an operation.
template <class T, ReduceOp Which, class = void>
struct InSwitch {
  static constexpr bool value = false;
};
template <class T, ReduceOp Which>
struct InSwitch<T, Which, decltype(void(mscclpp::detail::WindowWord<T, Which>::load(nullptr)))> {
  static constexpr bool value = true;
};

template <class T, ReduceOp Which>
MSCCLPP_DEVICE void save_reduced(char* to, Vec16 v, const Reduction& r, uint32_t members, bool all) {
  if constexpr (Which == kSum) v = mscclpp::detail::multimem_finish<T>(v, r, members);
  if (all) {
    mscclpp::detail::multimem_store16(to, v);
  } else {
    mscclpp::store16(to, v);
  }
}

// Threads have several words on their way: a load through the switch takes more than a microsecond.
// The operation is that of the call: divided, a sum is an average. Arguments are numbers, as structs would lie in local memory.
template <class T, ReduceOp Which>
MSCCLPP_PLAN_OUTLINED bool reduce_window(char* to, const char* from, uint64_t bytes, uint32_t op, uint32_t ranks, bool all, uint32_t tid, uint32_t nthreads) {
  if constexpr (InSwitch<T, Which>::value) {
    using Word = mscclpp::detail::WindowWord<T, Which>;
    constexpr uint32_t flight = 4;
    const Reduction r = reduction(static_cast<ReduceOp>(op), 1, ranks);
    const uint64_t words = bytes / 16;
    uint64_t w = tid;
    mscclpp::detail::alias_fence();
    for (; w + uint64_t(flight - 1) * nthreads < words; w += uint64_t(flight) * nthreads) {
      Vec16 v[flight];
      MSCCLPP_UNROLL
      for (uint32_t k = 0; k < flight; ++k) v[k] = Word::load(from + 16 * (w + uint64_t(k) * nthreads));
      MSCCLPP_UNROLL
      for (uint32_t k = 0; k < flight; ++k) save_reduced<T, Which>(to + 16 * (w + uint64_t(k) * nthreads), v[k], r, ranks, all);
    }
    for (; w < words; w += nthreads) save_reduced<T, Which>(to + 16 * w, Word::load(from + 16 * w), r, ranks, all);
    mscclpp::detail::alias_fence();
    return true;
  }
  return false;
}

MSCCLPP_DEVICE bool in_words(const char* from, const char* to, uint64_t bytes) {
  return ((reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to) | bytes) & 15) == 0;
}

// A reduction over the window, to one rank or to all. False: nothing was done.
template <class T>
MSCCLPP_DEVICE bool reduce_through(const Machine& m, const Op& o, const Range& r) {
  if (!m.has(o, kLoadsWindow)) return false;
  const bool all = m.has(o, kStoresWindow);
  const char* from = m.at(m.through(o, 0), r);
  char* to = m.at(all ? m.through(o, 1) : m.destination(o, 0), r);
  if (!in_words(from, to, r.n)) return false;
  const ReduceOp op = m.reduction_of(o).op;
  switch (op) {
    case kSum:
    case kAvg: return reduce_window<T, kSum>(to, from, r.n, op, m.a.ranks, all, m.tid, m.nthreads);
    case kMin: return reduce_window<T, kMin>(to, from, r.n, op, m.a.ranks, all, m.tid, m.nthreads);
    case kMax: return reduce_window<T, kMax>(to, from, r.n, op, m.a.ranks, all, m.tid, m.nthreads);
    default: return false;
  }
}

MSCCLPP_PLAN_OUTLINED void store_window(char* to, const char* from, uint64_t bytes, uint32_t tid, uint32_t nthreads) {
  mscclpp::detail::alias_fence();
  mscclpp::detail::multimem_copy(to, from, bytes, tid, nthreads);
  mscclpp::detail::alias_fence();
}

MSCCLPP_DEVICE bool move_through(const Machine& m, const Op& o, const Range& r) {
  if (!m.has(o, kStoresWindow)) return false;
  const char* from = m.at(m.source(o, 0), r);
  char* to = m.at(m.through(o, 0), r);
  if (!in_words(from, to, r.n)) return false;
  store_window(to, from, r.n, m.tid, m.nthreads);
  return true;
}

// Halves of packets of 16 bytes have a flag each: they need not arrive together.
MSCCLPP_DEVICE void window_packet(LL8Packet* p, uint32_t payload, uint32_t flag) { mscclpp::detail::multimem_packet(reinterpret_cast<char*>(p), payload, flag); }
MSCCLPP_DEVICE void window_packet(LL16Packet* p, uint64_t payload, uint32_t flag) {
  mscclpp::detail::multimem_packet(reinterpret_cast<char*>(p), static_cast<uint32_t>(payload), flag);
  mscclpp::detail::multimem_packet(reinterpret_cast<char*>(p) + 8, static_cast<uint32_t>(payload >> 32), flag);
}

// One packet to all members. False: nothing was done.
template <class P>
MSCCLPP_DEVICE bool packet_through(const Machine& m, const Op& o, const Range& r, uint64_t i, typename P::Payload payload) {
  if (!m.has(o, kStoresWindow)) return false;
  window_packet(reinterpret_cast<P*>(m.at(m.through(o, 0), r)) + i, payload, m.flag);
  return true;
}

#else

template <class T>
MSCCLPP_DEVICE bool reduce_through(const Machine&, const Op&, const Range&) { return false; }
MSCCLPP_DEVICE bool move_through(const Machine&, const Op&, const Range&) { return false; }
template <class P>
MSCCLPP_DEVICE bool packet_through(const Machine&, const Op&, const Range&, uint64_t, typename P::Payload) { return false; }

#endif

}  // namespace plans
}  // namespace mscclpp
#endif  // MSCCLPP_PLAN_SWITCH_OPS_H_
