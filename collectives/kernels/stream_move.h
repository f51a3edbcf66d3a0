// All-gather, all-to-all and broadcast of stream.h.
#ifndef MSCCLPP_COLLECTIVES_STREAM_MOVE_H_
#define MSCCLPP_COLLECTIVES_STREAM_MOVE_H_

#include "stream.h"

namespace mscclpp {
namespace collectives {

template <class C>
MSCCLPP_DEVICE void stream_allgather(const LLArgs& a) {
  const char* in = static_cast<const char*>(a.input);
  char* out = static_cast<char*>(a.output);
  const uint64_t bytes = a.count * a.element;
  const bool whole = C::aligned(in), whole_out = C::aligned(out) && C::aligned(out + bytes);
  const bool in_place = out + a.rank * bytes == in;
  const uint32_t units = C::units(bytes);
  Stream<C> s(a, units, 1);
  if (!s.begin()) return;
  MSCCLPP_ROLLED
  for (uint32_t k = 0; k < s.pieces(); ++k) {
    if (!s.open(k)) return;
    s.template rows<kRowsAtOnce>([&](uint32_t r) MSCCLPP_LAMBDA {
      typename C::Data d[kRowsAtOnce];
      s.load(d, r, units, in, bytes, whole);
      s.peers([&](uint32_t p) MSCCLPP_LAMBDA { return s.send(d, p, 0, r, units), true; });
      if (!in_place) s.save(d, r, units, out + a.rank * bytes, bytes, whole_out);
      return true;
    });
    s.sent(k);
    if (!s.template collect<kRowsAtOnce>(0, out, whole_out, [&](uint32_t p) MSCCLPP_LAMBDA { return Share{units, p * bytes, bytes}; })) return;
  }
}

template <class C>
MSCCLPP_DEVICE void stream_alltoall(const LLArgs& a) {
  const char* in = static_cast<const char*>(a.input);
  char* out = static_cast<char*>(a.output);
  const uint64_t bytes = a.count * a.element;
  const bool whole = C::aligned(in) && C::aligned(in + bytes), whole_out = C::aligned(out) && C::aligned(out + bytes);
  const uint32_t units = C::units(bytes);
  Stream<C> s(a, units, 1);
  if (!s.begin()) return;
  MSCCLPP_ROLLED
  for (uint32_t k = 0; k < s.pieces(); ++k) {
    if (!s.open(k)) return;
    s.peers([&](uint32_t p) MSCCLPP_LAMBDA {
      return s.template rows<kRowsAtOnce>([&](uint32_t r) MSCCLPP_LAMBDA {
        typename C::Data d[kRowsAtOnce];
        s.load(d, r, units, in + p * bytes, bytes, whole);
        s.send(d, p, 0, r, units);
        return true;
      });
    });
    s.sent(k);
    if (in != out) {  // while the peers' data is in flight
      const uint64_t at = s.begins(bytes);
      copy(out + a.rank * bytes + at, in + a.rank * bytes + at, s.ends(bytes) - at, global_thread(), global_threads());
    }
    if (!s.template collect<kRowsAtOnce>(0, out, whole_out, [&](uint32_t p) MSCCLPP_LAMBDA { return Share{units, p * bytes, bytes}; })) return;
  }
}

// The root sends every other rank a share, and each of them passes its share on to the
// rest. So no link carries the message more than once, however many ranks there are. The root
// sends a few rows to each of them by turns, so that all pass theirs on while it sends the rest.
template <class C>
MSCCLPP_DEVICE void stream_broadcast(const LLArgs& a) {
  const char* in = static_cast<const char*>(a.input);
  char* out = static_cast<char*>(a.output);
  const uint32_t root = a.signature.root;
  const bool have = a.rank == root;
  const Shares<C> shares(a, a.count * a.element, without_root(a));
  const bool whole = C::aligned(in), whole_out = C::aligned(out);
  Stream<C> s(a, shares.most, 2);
  if (!s.begin()) return;
  const uint32_t own = shares.units(a.rank);
  MSCCLPP_ROLLED
  for (uint32_t k = 0; k < s.pieces(); ++k) {
    if (!s.open(k)) return;
    if (have) {
      constexpr uint32_t kTurn = kRowsAtOnce / 2;
      s.template rows<kTurn>([&](uint32_t r) MSCCLPP_LAMBDA {
        return s.peers([&](uint32_t p) MSCCLPP_LAMBDA {
          typename C::Data d[kTurn];
          s.load(d, r, shares.units(p), in + shares.at(p), shares.bytes(p), whole);
          s.send(d, p, 0, r, shares.units(p));
          if (in != out) s.save(d, r, shares.units(p), out + shares.at(p), shares.bytes(p), whole_out);
          return true;
        });
      });
    }
    const bool ok = s.template rows<kRowsAtOnce>([&](uint32_t r) MSCCLPP_LAMBDA {
      typename C::Data d[kRowsAtOnce];
      if (have) {
        s.load(d, r, own, in + shares.at(a.rank), shares.bytes(a.rank), whole);
      } else if (!s.receive(d, root, 0, r, own)) {
        return false;
      }
      s.peers([&](uint32_t p) MSCCLPP_LAMBDA { return s.send(d, p, 1, r, p == root ? 0 : own), true; });
      if (!have || in != out) s.save(d, r, own, out + shares.at(a.rank), shares.bytes(a.rank), whole_out);
      return true;
    });
    if (!ok) return;
    s.sent(k);
    if (!s.template collect<kRowsAtOnce>(1, out, whole_out, [&](uint32_t p) MSCCLPP_LAMBDA { return shares.of(p, !have); })) return;
  }
}

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_STREAM_MOVE_H_
