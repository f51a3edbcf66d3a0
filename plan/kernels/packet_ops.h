// The operations on packets. On the host they take pieces, of which all packets have to be there.
#ifndef MSCCLPP_PLAN_PACKET_OPS_H_
#define MSCCLPP_PLAN_PACKET_OPS_H_

#include "switch_ops.h"

namespace mscclpp {
namespace plans {

template <class P>
MSCCLPP_PLAN_OUTLINED void pack_bytes(char* to, const char* from, uint64_t n, uint32_t tid, uint32_t nthreads, uint32_t flag) {
  copyToPackets<P>(to, from, n, tid, nthreads, flag);
}

template <class P>
MSCCLPP_DEVICE void pack(const Machine& m, const Op& o, const Cursor& c) {
  const Range r = m.range(o, m.destination(o, 0), c, 0);
  for (uint32_t i = 0; i < o.destinations; ++i) {
    const char* from = m.at(m.source(o, o.sources == 1 ? 0 : i), r);
    pack_bytes<P>(m.at(m.destination(o, i), r), from, r.n, m.tid, m.nthreads, m.flag);
  }
}

#if MSCCLPP_PLAN_TURNS

constexpr uint64_t kPacketPiece = 1024;  // bytes of payload

// take unpacks packets behind the first done bytes of payload, as many as arrive in a row, and returns where it has come to. It waits for whole groups: behind a
// single packet, groups would lie in two lines each.
template <class P>
inline uint64_t take(const Machine& m, char* to, const char* packets, uint64_t bytes, uint64_t done) {
  using U = typename P::Payload;
  constexpr uint64_t group = mscclpp::detail::kGroup;
  for (uint32_t polls = 1;; ++polls) {
    done += mscclpp::detail::unpack<sizeof(P)>(to + done, packets + 2 * done, bytes - done, m.flag);
    for (U payload; done < bytes && (group == 0 || bytes - done < group); done += sizeof(U)) {
      if (!pollPacket(reinterpret_cast<const P*>(packets + 2 * done), m.flag, payload)) break;
      mscclpp::detail::store_some<U>(to + done, payload, bytes - done);
    }
    if (done >= bytes) return bytes;
    if (polls >= m.patience) return done;
    mscclpp::detail::cpu_pause();
  }
}

template <class P>
inline Outcome unpack(const Machine& m, const Op& o, Cursor& c) {
  const Range r = m.range(o, m.destination(o, 0), c, 0);
  const char* from = m.at(m.source(o, 0), r);
  c.at = take<P>(m, m.at(m.destination(o, 0), r), from, r.n, c.at);
  if (c.at >= r.n) return kDone;
  c.peer = m.a.rank;
  return kBlocked;
}

// forward hands packets on piece by piece; without destinations it waits for them.
template <class P>
inline Outcome forward(const Machine& m, const Op& o, Cursor& c) {
  const Range r = m.range(o, m.source(o, 0), c, 0);
  const char* from = m.at(m.source(o, 0), r);
  alignas(64) char piece[kPacketPiece];
  while (c.at < r.n) {
    const uint64_t n = r.n - c.at < kPacketPiece ? r.n - c.at : kPacketPiece;
    if (take<P>(m, piece, from + 2 * c.at, n, 0) != n) {
      c.peer = m.a.rank;
      return kBlocked;
    }
    for (uint32_t i = 0; i < o.destinations; ++i) {
      copyToPackets<P>(m.at(m.destination(o, i), r) + 2 * c.at, piece, n, 0, 1, m.flag);
    }
    c.at += n;
  }
  return kDone;
}

// A piece is reduced when all packets of it are there. part is 1 + the source that was missing last: it is looked at first.
template <class T, class P, ReduceOp Which>
inline Outcome reduce_packets_by(const Machine& m, const Op& o, Cursor& c) {
  using L = mscclpp::detail::Loops<T, Which>;
  typedef typename L::U U;
  const bool pair = Which != kAvg && o.sources == 2;
  const Range r = m.range(o, m.destination(o, 0), c, 0);
  const char* self = m.at(m.source(o, 0), r);
  char* to = m.at(m.destination(o, 0), r);
  alignas(64) char piece[kPacketPiece];
  alignas(64) Accumulator<T> acc[kPacketPiece / sizeof(T)];
  while (c.at < r.n) {
    const uint64_t n = r.n - c.at < kPacketPiece ? r.n - c.at : kPacketPiece, count = n / sizeof(T);
    if (c.part != 0 && take<P>(m, piece, m.at(m.source(o, c.part), r) + 2 * c.at, n, 0) != n) return kBlocked;
    c.part = 0;
    U* out = reinterpret_cast<U*>(to + c.at);
    const U* own = reinterpret_cast<const U*>(self + c.at);
    for (uint32_t i = 1; i < o.sources; ++i) {
      if (take<P>(m, piece, m.at(m.source(o, i), r) + 2 * c.at, n, 0) != n) {
        c.part = i;
        c.peer = m.a.rank;
        return kBlocked;
      }
      const U* got = reinterpret_cast<const U*>(piece);
      if (pair) {
        L::pair(out, got, own, count);
      } else if (i == 1) {
        L::first(acc, got, count, Accumulator<T>(), false);
      } else {
        L::next(acc, got, count, Accumulator<T>(), false);
      }
    }
    if (!pair) {
      if (o.sources == 1) {
        L::first(acc, own, count, Accumulator<T>(), false);
      } else {
        L::next(acc, own, count, Accumulator<T>(), false);
      }
      L::last(out, acc, count, mscclpp::detail::Divisor<Accumulator<T>>(m.a.ranks));
    }
    for (uint32_t i = 1; i < o.destinations; ++i) {
      copyToPackets<P>(m.at(m.destination(o, i), r) + 2 * c.at, to + c.at, n, 0, 1, m.flag);
    }
    c.at += n;
  }
  return kDone;
}

template <class T, class P>
inline Outcome reduce_packets(const Machine& m, const Op& o, Cursor& c) {
  switch (m.reduction_of(o).op) {
    case kProd: return reduce_packets_by<T, P, kProd>(m, o, c);
    case kMin: return reduce_packets_by<T, P, kMin>(m, o, c);
    case kMax: return reduce_packets_by<T, P, kMax>(m, o, c);
    case kAvg: return reduce_packets_by<T, P, kAvg>(m, o, c);
    default: return reduce_packets_by<T, P, kSum>(m, o, c);
  }
}

#else

template <class P>
MSCCLPP_DEVICE bool read(const Machine& m, const Op& o, const char* packets, uint64_t i, typename P::Payload& payload) {
  const P* p = reinterpret_cast<const P*>(packets) + i;
  const uint32_t flag = m.flag;
  return wait_brief(m.a.control, m.site(o, m.a.rank, flag), [p, flag, &payload]() MSCCLPP_PLAN_LAMBDA { return pollPacket(p, flag, payload); });
}

template <class P>
MSCCLPP_DEVICE Outcome unpack(const Machine& m, const Op& o, Cursor& c) {
  using U = typename P::Payload;
  const Range r = m.range(o, m.destination(o, 0), c, 0);
  const char* from = m.at(m.source(o, 0), r);
  char* to = m.at(m.destination(o, 0), r);
  for (uint64_t i = m.tid; i * sizeof(U) < r.n; i += m.nthreads) {
    U payload;
    if (!read<P>(m, o, from, i, payload)) return kLeft;
    mscclpp::detail::store_some<U>(to + i * sizeof(U), payload, r.n - i * sizeof(U));
  }
  return kDone;
}

// forward hands packets on; without destinations it waits for them.
template <class P>
MSCCLPP_DEVICE Outcome forward(const Machine& m, const Op& o, Cursor& c) {
  using U = typename P::Payload;
  const Range r = m.range(o, m.source(o, 0), c, 0);
  const char* from = m.at(m.source(o, 0), r);
  for (uint64_t i = m.tid; i * sizeof(U) < r.n; i += m.nthreads) {
    U payload;
    if (!read<P>(m, o, from, i, payload)) return kLeft;
    if (packet_through<P>(m, o, r, i, payload)) continue;
    for (uint32_t k = 0; k < o.destinations; ++k) {
      writePacket(reinterpret_cast<P*>(m.at(m.destination(o, k), r)) + i, payload, m.flag);
    }
  }
  return kDone;
}

// A step covers whole packets and whole elements.
template <class T, class P, ReduceOp Which>
MSCCLPP_DEVICE Outcome reduce_packets_by(const Machine& m, const Op& o, Cursor& c) {
  using A = Accumulator<T>;
  using S = mscclpp::detail::PacketStep<T, P>;
  using U = typename P::Payload;
  const mscclpp::detail::Scalars<A> s(m.reduction_of(o), o.sources);
  const Range r = m.range(o, m.destination(o, 0), c, 0);
  for (uint64_t w = m.tid; w * S::kBytes < r.n; w += m.nthreads) {
    const uint64_t at = w * S::kBytes;
    A acc[S::kElements];
    for (uint32_t n = 1; n <= o.sources; ++n) {
      const uint32_t i = n == o.sources ? 0 : n;  // packets first
      const char* p = m.at(m.source(o, i), r);
      typename S::Parts step;
      MSCCLPP_UNROLL
      for (uint32_t k = 0; k < S::kPackets; ++k) {
        const uint64_t here = at + k * sizeof(U);
        step.part[k] = 0;
        if (here >= r.n) continue;
        if (i == 0) {
          step.part[k] = mscclpp::detail::load_some<U>(p + here, r.n - here);
        } else if (!read<P>(m, o, p, w * S::kPackets + k, step.part[k])) {
          return kLeft;
        }
      }
      const auto v = __builtin_bit_cast(typename S::Elements, step);
      MSCCLPP_UNROLL
      for (uint32_t k = 0; k < S::kElements; ++k) {
        const A x = widen_element(v.e[k]);
        acc[k] = n == 1 ? x : mscclpp::detail::apply<Which, A>(acc[k], x, s.op);
      }
    }
    mscclpp::detail::average<Which, S::kElements>(acc, s);
    typename S::Elements done;
    MSCCLPP_UNROLL
    for (uint32_t k = 0; k < S::kElements; ++k) done.e[k] = narrow_element<T>(acc[k]);
    const auto parts = __builtin_bit_cast(typename S::Parts, done);
    MSCCLPP_UNROLL
    for (uint32_t k = 0; k < S::kPackets; ++k) {
      const uint64_t here = at + k * sizeof(U);
      if (here >= r.n) continue;
      mscclpp::detail::store_some<U>(m.at(m.destination(o, 0), r) + here, parts.part[k], r.n - here);
      for (uint32_t i = 1; i < o.destinations; ++i) {
        writePacket(reinterpret_cast<P*>(m.at(m.destination(o, i), r)) + w * S::kPackets + k, parts.part[k], m.flag);
      }
    }
  }
  return kDone;
}

template <class T, class P>
MSCCLPP_DEVICE Outcome reduce_packets(const Machine& m, const Op& o, Cursor& c) {
  if (m.reduction_of(o).op == kSum) return reduce_packets_by<T, P, kSum>(m, o, c);
  return reduce_packets_by<T, P, mscclpp::detail::kAnyOp>(m, o, c);
}
#endif

}  // namespace plans
}  // namespace mscclpp
#endif  // MSCCLPP_PLAN_PACKET_OPS_H_
