// Broadcast and reduce along a chain of ranks: each passes on to the next what comes from the one before. A reduce adds this
// rank's own data on the way, so partial results travel, as in rings. Each link carries the message once, and in one
// direction, so ranks need no more room than a few chunks. A chain of n ranks begins late by n - 1 chunks, and the others
// (stream.h, pipeline.h) by four, of all shares.
//
// Lines have no chunks: a unit goes on as soon as it has come, so they serve messages of a few MiB. Chunks
// have no flags in the data, which a long message is better without.
#ifndef MSCCLPP_COLLECTIVES_CHAIN_H_
#define MSCCLPP_COLLECTIVES_CHAIN_H_

#include "pipeline.h"
#include "stream.h"

namespace mscclpp {
namespace collectives {

// Chain is the place of a rank in the chain that begins with a given one.
struct Chain {
  uint32_t previous, next;
  bool first, last;

  MSCCLPP_DEVICE Chain(uint32_t rank, uint32_t ranks, uint32_t begin)
      : previous(rank == 0 ? ranks - 1 : rank - 1), next(rank + 1 == ranks ? 0 : rank + 1), first(rank == begin), last(next == begin) {}
};

// chain_lines passes bytes on as lines. own: whether this rank loads its input; keeps: whether it stores to its output.
// join(d, from) makes what goes on of its own rows and those that came. In each piece every rank still receives
// something from every other one, which stream.h requires: the units that those send first which have no data for it.
template <class C, uint32_t kAtOnce, class Join>
MSCCLPP_DEVICE void chain_lines(const LLArgs& a, uint64_t bytes, const Chain& chain, bool own, bool keeps, Join join) {
  using Data = typename C::Data;
  const char* in = static_cast<const char*>(a.input);
  char* out = static_cast<char*>(a.output);
  const bool whole = C::aligned(in), whole_out = C::aligned(out);
  const uint32_t units = C::units(bytes);
  Stream<C> s(a, units, 1);
  if (!s.begin()) return;
  MSCCLPP_ROLLED
  for (uint32_t k = 0; k < s.pieces(); ++k) {
    if (!s.open(k)) return;
    s.peers([&](uint32_t p) MSCCLPP_LAMBDA {
      if (chain.last || p != chain.next) s.send_empty(p);
      return true;
    });
    const bool ok = s.template rows<kAtOnce>([&](uint32_t r) MSCCLPP_LAMBDA {
      Data d[kAtOnce];
      if (own) s.load(d, r, units, in, bytes, whole);
      if (!chain.first) {
        Data from[kAtOnce];
        if (!s.receive(from, chain.previous, 0, r, units)) return false;
        join(d, from);
      }
      if (!chain.last) s.send(d, chain.next, 0, r, units);
      if (keeps) s.save(d, r, units, out, bytes, whole_out);
      return true;
    });
    if (!ok) return;
    s.sent(k);
    const bool met = s.peers([&](uint32_t p) MSCCLPP_LAMBDA { return (!chain.first && p == chain.previous) || s.receive_empty(p); });
    if (!met) return;
  }
}

template <class C>
MSCCLPP_DEVICE void chain_broadcast(const LLArgs& a) {
  const Chain chain(a.rank, a.ranks, a.signature.root);
  chain_lines<C, kRowsAtOnce>(a, a.count * a.element, chain, chain.first, !chain.first || a.input != a.output, [](auto& d, const auto& from) MSCCLPP_LAMBDA {
    MSCCLPP_UNROLL
    for (uint32_t i = 0; i < kRowsAtOnce; ++i) d[i] = from[i];
  });
}

// chain_chunks passes bytes on in chunks, through the slots of a pipeline. pass(lane, to, from, at, bytes) makes a chunk of the one that
// came: to is where it goes on, and null in the last rank; from is null in the first one.
//
// A block signals a chunk while it works on the next one, as pipelines do. Where the next one has not come yet, or there is
// no room for it, the block has nothing to do and signals at once.
template <class Pass>
MSCCLPP_DEVICE void chain_chunks(const Args& a, const Chain& chain, Pass pass) {
  const Common& c = a.common;
  const uint64_t all = a.count * a.element;
  between(a, [&](uint32_t lane) MSCCLPP_LAMBDA {
    const Steps steps{all, even_step(all, c.lanes, a.chunk), lane, c.lanes};
    const uint64_t n = steps.size();
    const Pipeline pipeline(a, lane);
    uint64_t signaled = 0;  // of the thread that signals
    MSCCLPP_ROLLED
    for (uint64_t k = 0; k < n; ++k) {
      bool ok = true;
      if (thread_id() == 0) {
        const bool late = (!chain.last && !pipeline.has_room(chain.next, k + 1)) || (!chain.first && !pipeline.has_come(chain.previous, k + 1));
        if (late && !chain.last && signaled < k) pipeline.put(chain.next, signaled = k);
        ok = (chain.last || pipeline.room(chain.next, k + 1)) && (chain.first || pipeline.arrived(chain.previous, k + 1));
      }
      if (!block_sync_and(ok)) return;
      if (thread_id() == 0 && !chain.last && signaled < k) pipeline.put(chain.next, signaled = k);
      pass(chain.last ? nullptr : pipeline.to(chain.next, k), chain.first ? nullptr : pipeline.from(chain.previous, k), steps.first(k), steps.count(k));
      block_sync();
      if (thread_id() == 0 && !chain.first) pipeline.took(chain.previous, k + 1);
    }
    pipeline.close([&](uint32_t p) MSCCLPP_LAMBDA { return !chain.last && p == chain.next ? n : 0; },
                   [&](uint32_t p) MSCCLPP_LAMBDA { return !chain.first && p == chain.previous ? n : 0; });
  });
}

// copy_both copies to one or two places.
MSCCLPP_DEVICE void copy_both(char* to, char* also, const char* from, uint64_t bytes) {
#if MSCCLPP_OVERLAPS || MSCCLPP_TARGET_CHECK
  if (to != nullptr && also != nullptr &&
      ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(also) | reinterpret_cast<uintptr_t>(from) | bytes) & 15) == 0) {
    return tiles<2>(bytes / 16, 0, 1, [&](uint64_t w, auto each) MSCCLPP_LAMBDA {
      constexpr uint32_t U = decltype(each)::kRanks;
      Vec16 v[U];
      MSCCLPP_UNROLL
      for (uint32_t u = 0; u < U; ++u) v[u] = load16(from + 16 * (w + u * block_dim()));
      MSCCLPP_UNROLL
      for (uint32_t u = 0; u < U; ++u) store16(to + 16 * (w + u * block_dim()), v[u]);
      MSCCLPP_UNROLL
      for (uint32_t u = 0; u < U; ++u) store16(also + 16 * (w + u * block_dim()), v[u]);
    });
  }
#endif
  if (to != nullptr) copy(to, from, bytes, thread_id(), block_dim());
  if (also != nullptr) copy(also, from, bytes, thread_id(), block_dim());
}

MSCCLPP_DEVICE void broadcast_chain(const Args& a) {
  const Common& c = a.common;
  const Chain chain(c.rank, c.ranks, a.root);
  chain_chunks(a, chain, [&](char* to, const char* from, uint64_t at, uint64_t bytes) MSCCLPP_LAMBDA {
    const char* const in = chain.first ? static_cast<const char*>(a.input) + at : from;
    copy_both(to, chain.first && a.input == a.output ? nullptr : static_cast<char*>(a.output) + at, in, bytes);
  });
}

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_CHAIN_H_
