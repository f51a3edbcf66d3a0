// The operations that move and combine data.
#ifndef MSCCLPP_PLAN_DATA_OPS_H_
#define MSCCLPP_PLAN_DATA_OPS_H_

#include "machine.h"

namespace mscclpp {
namespace plans {

MSCCLPP_DEVICE uint32_t more(uint32_t a, uint32_t b) { return a > b ? a : b; }

MSCCLPP_PLAN_OUTLINED void copy_bytes(char* to, const char* from, uint64_t n, uint32_t tid, uint32_t nthreads) { copy(to, from, n, tid, nthreads); }

MSCCLPP_DEVICE void move(const Machine& m, const Op& o, const Cursor& c, uint64_t unit) {
  const Range r = m.range(o, m.destination(o, 0), c, unit);
  if (r.n == 0) return;
  for (uint32_t i = 0; i < o.destinations; ++i) {
    copy_bytes(m.at(m.destination(o, i), r), m.at(m.source(o, o.sources == 1 ? 0 : i), r), r.n, m.tid, m.nthreads);
  }
}

#if MSCCLPP_PLAN_TURNS
constexpr uint64_t kSpreadPiece = 16 << 10;  // bytes: what was reduced is still in the cache when it is copied

template <class T>
inline void reduce(const Machine& m, const Op& o, const Cursor& c, uint64_t unit) {
  const Range r = m.range(o, m.destination(o, 0), c, unit);
  char* to = m.at(m.destination(o, 0), r);
  const uint64_t piece = o.destinations == 1 ? r.n : kSpreadPiece;
  for (uint64_t at = 0; at < r.n; at += piece) {
    const uint64_t n = r.n - at < piece ? r.n - at : piece;
    const auto input = [&](uint32_t i) { return static_cast<const void*>(m.at(m.source(o, i), r) + at); };
    reduce_n<T>(to + at, input, o.sources, n / sizeof(T), m.reduction_of(o), 0, 1);
    for (uint32_t i = 1; i < o.destinations; ++i) copy(m.at(m.destination(o, i), r) + at, to + at, n, 0, 1);
  }
}
#else
// One thread reduces an element, and stores it everywhere: no thread needs what another one has reduced.
template <class T, ReduceOp Which>
MSCCLPP_DEVICE void reduce_by(const Machine& m, const Op& o, const Range& r) {
  using Lanes = mscclpp::detail::Lanes<T>;
  using Sum = mscclpp::detail::LaneSum<T, Which>;
  const mscclpp::detail::Scalars<Accumulator<T>> s(m.reduction_of(o), o.sources);
  uintptr_t low = 0;
  for (uint32_t i = 0; i < o.sources; ++i) low |= reinterpret_cast<uintptr_t>(m.at(m.source(o, i), r));
  for (uint32_t i = 0; i < o.destinations; ++i) low |= reinterpret_cast<uintptr_t>(m.at(m.destination(o, i), r));
  const uint64_t words = (low & 15) == 0 ? r.n / 16 : 0;
  for (uint64_t w = m.tid; w < words; w += m.nthreads) {
    Sum sum;
    sum.first(mscclpp::detail::load_lanes<T>(m.at(m.source(o, 0), r) + 16 * w), s);
    for (uint32_t i = 1; i < o.sources; ++i) sum.next(mscclpp::detail::load_lanes<T>(m.at(m.source(o, i), r) + 16 * w), s, i);
    const Lanes v = sum.last(s);
    for (uint32_t i = 0; i < o.destinations; ++i) mscclpp::detail::store_lanes<T>(m.at(m.destination(o, i), r) + 16 * w, v);
  }
  const auto input = [&m, &o, &r](uint32_t i) MSCCLPP_PLAN_LAMBDA { return static_cast<const void*>(m.at(m.source(o, i), r)); };
  for (uint64_t at = 16 * words + m.tid * sizeof(T); at + sizeof(T) <= r.n; at += m.nthreads * sizeof(T)) {
    const T v = mscclpp::detail::reduce_element<T, Which>(input, o.sources, at, s);
    for (uint32_t i = 0; i < o.destinations; ++i) mscclpp::detail::store_element<T>(m.at(m.destination(o, i), r) + at, v);
  }
}

template <class T>
MSCCLPP_DEVICE void reduce(const Machine& m, const Op& o, const Cursor& c, uint64_t unit) {
  const Range r = m.range(o, m.destination(o, 0), c, unit);
  if (r.n == 0) return;
  if (m.reduction_of(o).op == kSum) {
    reduce_by<T, kSum>(m, o, r);
  } else {
    reduce_by<T, mscclpp::detail::kAnyOp>(m, o, r);
  }
}
#endif

// Thread i asks for transfer i.
MSCCLPP_DEVICE Outcome put(const Machine& m, const Op& o, const Cursor& c, uint64_t unit) {
  const Range r = m.range(o, m.destination(o, 0), c, unit);
  for (uint32_t i = m.tid; i < o.destinations; i += m.nthreads) {
    const Operand &to = m.destination(o, i), &from = m.source(o, o.sources == 1 ? 0 : i);
    const PortChannel& port = static_cast<const PortChannel&>(m.a.ports[m.a.ids[o.ids + i]]);
    const uint64_t bytes = to.packet != 0 ? 2 * r.n : r.n;
    const bool signal = (o.flags & kThenSignal) != 0;
    bool ok = true;
    if (bytes == 0) {
      ok = !signal || port.signal(m.a.kernel);
    } else if (signal) {
      ok = port.putWithSignal(m.offset(to, r), m.offset(from, r), bytes, m.a.kernel);
    } else {
      ok = port.put(m.offset(to, r), m.offset(from, r), bytes, m.a.kernel);
    }
    if (!ok) return kLeft;
  }
  return kDone;
}

}  // namespace plans
}  // namespace mscclpp
#endif  // MSCCLPP_PLAN_DATA_OPS_H_
