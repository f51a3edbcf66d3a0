// The operations that move and combine data.
#ifndef MSCCLPP_PLAN_DATA_OPS_H_
#define MSCCLPP_PLAN_DATA_OPS_H_

#include "switch_ops.h"

namespace mscclpp {
namespace plans {

MSCCLPP_DEVICE uint32_t more(uint32_t a, uint32_t b) { return a > b ? a : b; }

MSCCLPP_PLAN_OUTLINED void copy_bytes(char* to, const char* from, uint64_t n, uint32_t tid, uint32_t nthreads) { copy(to, from, n, tid, nthreads); }

#if MSCCLPP_PLAN_TURNS
constexpr uint64_t kSpreadPiece = 16 << 10;  // bytes: they are still in the cache when they are copied once more

inline bool spread(const Machine& m, const Op& o, const Range& r) {
  const char* from = m.at(m.source(o, 0), r);
  for (uint64_t at = 0; at < r.n; at += kSpreadPiece) {
    const uint64_t n = r.n - at < kSpreadPiece ? r.n - at : kSpreadPiece;
    for (uint32_t i = 0; i < o.destinations; ++i) copy(m.at(m.destination(o, i), r) + at, from + at, n, 0, 1);
  }
  return true;
}
#else
// Words of one source to all destinations: it is read once, and stores to other ranks are under way while those to the own memory are made.
// False: they do not lie at multiples of 16 bytes, and nothing was done.
MSCCLPP_PLAN_OUTLINED bool spread_bytes(const Operand* to, uint32_t count, const char* from, uint64_t bytes, uint32_t tid, uint32_t nthreads) {
  uint64_t low = reinterpret_cast<uint64_t>(from) | bytes;
  MSCCLPP_ROLLED
  for (uint32_t i = 0; i < count; ++i) low |= to[i].base;
  if ((low & 15) != 0) return false;
  constexpr uint32_t flight = 4;
  const uint64_t round = 16 * uint64_t(nthreads) * flight, step = 16 * uint64_t(nthreads);
  uint64_t at = 16 * tid;
  MSCCLPP_ROLLED
  for (; at - 16 * tid + round <= bytes; at += round) {
    Vec16 v[flight];
    MSCCLPP_UNROLL
    for (uint32_t k = 0; k < flight; ++k) v[k] = mscclpp::load16(from + at + k * step);
    for (uint32_t i = 0; i < count; ++i) {
      char* target = reinterpret_cast<char*>(to[i].base) + at;
      MSCCLPP_UNROLL
      for (uint32_t k = 0; k < flight; ++k) mscclpp::store16(target + k * step, v[k]);
    }
  }
  if (at >= bytes) return true;
  Vec16 v[flight] = {};  // the rest is under way together, too
  MSCCLPP_UNROLL
  for (uint32_t k = 0; k < flight; ++k) {
    if (at + k * step < bytes) v[k] = mscclpp::load16(from + at + k * step);
  }
  for (uint32_t i = 0; i < count; ++i) {
    char* target = reinterpret_cast<char*>(to[i].base) + at;
    MSCCLPP_UNROLL
    for (uint32_t k = 0; k < flight; ++k) {
      if (at + k * step < bytes) mscclpp::store16(target + k * step, v[k]);
    }
  }
  return true;
}

// Where operands do not say where their bytes are, each destination gets its copy.
MSCCLPP_DEVICE bool spread(const Machine& m, const Op& o, const Range& r) {
  return r.noted && spread_bytes(&m.destination(o, 0), o.destinations, m.at(m.source(o, 0), r), r.n, m.tid, m.nthreads);
}
#endif

MSCCLPP_DEVICE void move(const Machine& m, const Op& o, const Cursor& c, uint64_t unit) {
  const Range r = m.range(o, m.destination(o, 0), c, unit);
  if (r.n == 0 || move_through(m, o, r)) return;
  if (o.sources == 1 && o.destinations > 1 && spread(m, o, r)) return;
  for (uint32_t i = 0; i < o.destinations; ++i) {
    copy_bytes(m.at(m.destination(o, i), r), m.at(m.source(o, o.sources == 1 ? 0 : i), r), r.n, m.tid, m.nthreads);
  }
}

#if MSCCLPP_PLAN_TURNS
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
// Words of each source that a thread loads before it uses them. More would not fit into its registers: sums of halves take twice
// the words', and those of bytes four times.
template <class T, ReduceOp Which>
constexpr uint32_t kFlight = sizeof(T) == 1 ? 1 : sizeof(T) == 4 && Which == kSum ? 4 : 2;

// Two sources, with many loads of a thread in flight: a load of another rank's memory takes a microsecond. False: they do not lie at multiples of
// 16 bytes, and nothing was done. Arguments are numbers, as structs would lie in local memory.
template <class T, ReduceOp Which>
MSCCLPP_PLAN_OUTLINED bool reduce_pairs(char* to, char* other, const char* first, const char* second, uint64_t bytes, uint32_t op, uint32_t ranks, uint32_t tid, uint32_t nthreads) {
  using Lanes = mscclpp::detail::Lanes<T>;
  using Sum = mscclpp::detail::LaneSum<T, Which>;
  if (((reinterpret_cast<uint64_t>(first) | reinterpret_cast<uint64_t>(second) | reinterpret_cast<uint64_t>(to) | reinterpret_cast<uint64_t>(other)) & 15) != 0) return false;
  const mscclpp::detail::Scalars<Accumulator<T>> s(Which == kSum ? reduction(kSum) : reduction(static_cast<ReduceOp>(op), 1, ranks), 2);
  const auto put = [to, other, &s](uint64_t at, const Vec16& a, const Vec16& b) MSCCLPP_PLAN_LAMBDA {
    Sum sum;
    sum.first(__builtin_bit_cast(Lanes, a), s);
    sum.next(__builtin_bit_cast(Lanes, b), s, 1);
    const Lanes v = sum.last(s);
    mscclpp::detail::store_lanes<T>(to + at, v);
    if (other != to) mscclpp::detail::store_lanes<T>(other + at, v);
  };
  constexpr uint32_t flight = kFlight<T, Which>;
  const uint64_t step = 16 * uint64_t(nthreads), round = step * flight;
  uint64_t at = 16 * tid;
  MSCCLPP_ROLLED
  for (; flight > 1 && at - 16 * tid + round <= bytes; at += round) {
    Vec16 a[flight], b[flight];  // not yet lanes, which take a register each
    MSCCLPP_UNROLL
    for (uint32_t k = 0; k < flight; ++k) {
      a[k] = mscclpp::load16(first + at + k * step);
      b[k] = mscclpp::load16(second + at + k * step);
    }
    MSCCLPP_UNROLL
    for (uint32_t k = 0; k < flight; ++k) put(at + k * step, a[k], b[k]);
  }
  if constexpr (flight > 2) {  // the rest is under way together, too; other reductions have too many instructions for that
    if (at >= bytes) return true;
    Vec16 a[flight] = {}, b[flight] = {};
    MSCCLPP_UNROLL
    for (uint32_t k = 0; k < flight; ++k) {
      if (at + k * step >= bytes) continue;
      a[k] = mscclpp::load16(first + at + k * step);
      b[k] = mscclpp::load16(second + at + k * step);
    }
    MSCCLPP_UNROLL
    for (uint32_t k = 0; k < flight; ++k) {
      if (at + k * step < bytes) put(at + k * step, a[k], b[k]);
    }
  } else {
    MSCCLPP_ROLLED
    for (; at < bytes; at += step) {
      const Vec16 a = mscclpp::load16(first + at), b = mscclpp::load16(second + at);
      put(at, a, b);
    }
  }
  return true;
}

// Words of any number of sources and destinations.
template <class T, ReduceOp Which>
MSCCLPP_DEVICE bool reduce_words(const Machine& m, const Op& o, const Range& r, uint64_t bytes, const mscclpp::detail::Scalars<Accumulator<T>>& s) {
  using Lanes = mscclpp::detail::Lanes<T>;
  using Sum = mscclpp::detail::LaneSum<T, Which>;
  uintptr_t low = 0;
  MSCCLPP_ROLLED
  for (uint32_t i = 0; i < o.sources; ++i) low |= reinterpret_cast<uintptr_t>(m.at(m.source(o, i), r));
  MSCCLPP_ROLLED
  for (uint32_t i = 0; i < o.destinations; ++i) low |= reinterpret_cast<uintptr_t>(m.at(m.destination(o, i), r));
  if ((low & 15) != 0) return false;
  MSCCLPP_ROLLED
  for (uint64_t at = 16 * m.tid; at < bytes; at += 16 * uint64_t(m.nthreads)) {
    Sum sum;
    constexpr uint32_t batch = Which != kSum ? 1 : sizeof(T) == 1 ? 1 : 2;  // loads under way, as registers allow
    MSCCLPP_ROLLED
    for (uint32_t i = 0; i < o.sources; i += batch) {
      Vec16 v[batch];
      MSCCLPP_UNROLL
      for (uint32_t k = 0; k < batch; ++k) {
        if (i + k < o.sources) v[k] = mscclpp::load16(m.at(m.source(o, i + k), r) + at);
      }
      MSCCLPP_UNROLL
      for (uint32_t k = 0; k < batch; ++k) {
        if (i + k == 0) {
          sum.first(__builtin_bit_cast(Lanes, v[k]), s);
        } else if (i + k < o.sources) {
          sum.next(__builtin_bit_cast(Lanes, v[k]), s, i + k);
        }
      }
    }
    const Lanes v = sum.last(s);
    MSCCLPP_ROLLED
    for (uint32_t i = 0; i < o.destinations; ++i) mscclpp::detail::store_lanes<T>(m.at(m.destination(o, i), r) + at, v);
  }
  return true;
}

// One thread reduces an element, and stores it everywhere: no thread needs what another one has reduced.
template <class T, ReduceOp Which>
MSCCLPP_DEVICE void reduce_by(const Machine& m, const Op& o, const Range& r, uint32_t op) {
  const uint64_t bytes = r.n & ~uint64_t(15);
  const bool pairs = o.sources == 2 && o.destinations <= 2;
  bool done = false;
  if (pairs) {
    char* to = m.at(m.destination(o, 0), r);
    char* other = o.destinations > 1 ? m.at(m.destination(o, 1), r) : to;
    done = reduce_pairs<T, Which>(to, other, m.at(m.source(o, 0), r), m.at(m.source(o, 1), r), bytes, op, m.a.ranks, m.tid, m.nthreads);
    if (done && bytes == r.n) return;
  }
  // The compiler knows the scalars of a sum; those of other operations take divisions.
  const mscclpp::detail::Scalars<Accumulator<T>> s(Which == kSum ? reduction(kSum) : m.reduction_of(o), o.sources);
  if (!pairs) done = reduce_words<T, Which>(m, o, r, bytes, s);
  const auto input = [&m, &o, &r](uint32_t i) MSCCLPP_PLAN_LAMBDA { return static_cast<const void*>(m.at(m.source(o, i), r)); };
  MSCCLPP_ROLLED
  for (uint64_t at = (done ? bytes : 0) + m.tid * sizeof(T); at + sizeof(T) <= r.n; at += m.nthreads * sizeof(T)) {
    const T v = mscclpp::detail::reduce_element<T, Which>(input, o.sources, at, s);
    MSCCLPP_ROLLED
    for (uint32_t i = 0; i < o.destinations; ++i) mscclpp::detail::store_element<T>(m.at(m.destination(o, i), r) + at, v);
  }
}

template <class T>
MSCCLPP_DEVICE void reduce(const Machine& m, const Op& o, const Cursor& c, uint64_t unit) {
  const Range r = m.range(o, m.destination(o, 0), c, unit);
  if (r.n == 0 || reduce_through<T>(m, o, r)) return;
  const ReduceOp op = m.reduction_of(o).op;
  if (op == kSum) {
    reduce_by<T, kSum>(m, o, r, op);
  } else {
    reduce_by<T, mscclpp::detail::kAnyOp>(m, o, r, op);
  }
}
#endif

// Thread i asks for transfer i.
MSCCLPP_DEVICE Outcome put(const Machine& m, const Op& o, const Cursor& c, uint64_t unit) {
  const Range r = m.range(o, m.destination(o, 0), c, unit);
  for (uint32_t i = m.tid; i < o.destinations; i += m.nthreads) {
    const Operand &to = m.destination(o, i), &from = m.source(o, o.sources == 1 ? 0 : i);
    const PortChannel& port = static_cast<const PortChannel&>(m.a.ports[m.a.ids[o.ids + i]]);
    const uint64_t bytes = (to.packet & kOfPacket) != 0 ? 2 * r.n : r.n;
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
