// Combine on GPUs: a rank adds up the weighted rows of its experts for each token, and sends that sum once to the token's rank,
// which adds the sums up in the order of ranks.
#ifndef MSCCLPP_INFERENCE_MOE_COMBINE_H_
#define MSCCLPP_INFERENCE_MOE_COMBINE_H_

#include "moe_block.h"

namespace mscclpp {
namespace inference {

#if !MSCCLPP_TARGET_CPU
template <class T>
struct Combine : MoeBlock {
  using MoeBlock::a;
  using MoeBlock::at;
  static constexpr uint32_t kElements = 16 / sizeof(T), kAtOnce = 4, kRanks = 2;
  struct Parts { T e[kElements]; };

  MSCCLPP_DEVICE explicit Combine(const MoeArgs& args) : MoeBlock(args, kCombine, sizeof(T)) {}

  MSCCLPP_DEVICE void books() { compare(); }
  MSCCLPP_DEVICE void count(uint32_t) {}

  // Weights that dispatch has not brought go to the ranks of their experts first.
  MSCCLPP_DEVICE void headers(uint32_t first) {
    if (!begin()) return;
    for (uint32_t i = first * nthreads + tid; i < a.tokens * a.top_k; i += a.headers_by * nthreads) {
      const int64_t e = at.index(i);
      const uint32_t t = i / a.top_k;
      if (at.real(e)) writePacket(at.weight(a.rank, at.rank_of(static_cast<uint32_t>(e)), t) + (i - t * a.top_k), moe_bits(a.factors[i]), at.number);
    }
  }

  MSCCLPP_DEVICE void add(float* acc, Vec16 v, float weight) const {
    const Parts x = __builtin_bit_cast(Parts, v);
    MSCCLPP_UNROLL
    for (uint32_t k = 0; k < kElements; ++k) acc[k] += weight * widen_element(x.e[k]);
  }

  // A record: how many entries it has, and the first ones. They are loaded at once, as there is room for all.
  struct Record {
    uint32_t n;
    Vec16 about[kAtOnce];
  };
  MSCCLPP_DEVICE Record record(uint32_t to, uint32_t t) const {
    Record x;
    const char* p = at.record(to, t);
    const uint32_t tokens = *reinterpret_cast<const uint32_t*>(at.record(to)), n = *reinterpret_cast<const uint32_t*>(p);
    MSCCLPP_UNROLL
    for (uint32_t j = 0; j < kAtOnce; ++j) x.about[j] = load16(p + 16 * (j + 1));
    x.n = t < tokens ? n : 0;
    return x;
  }

  // Weights that dispatch has not brought.
  MSCCLPP_DEVICE void weights(uint32_t to, uint32_t t, Record& from, uint32_t first) {
    MSCCLPP_UNROLL
    for (uint32_t j = 0; j < kAtOnce; ++j) {
      if (first + j < from.n && ok) ok = flagged(from.about[j].z, at.weight(to, a.rank, t) + (from.about[j].x >> 16), kMoeWeights, to);
    }
  }

  // A part of the sum over this rank's experts of a token.
  MSCCLPP_DEVICE Vec16 sum(uint32_t to, uint32_t t, uint32_t v, Record& from) {
    float acc[kElements] = {};
    const char* more = at.record(to, t);
    for (uint32_t first = 0; first < from.n; first += kAtOnce) {
      Vec16 x[kAtOnce];
      MSCCLPP_UNROLL
      for (uint32_t j = 0; j < kAtOnce; ++j) {
        if (first != 0 && first + j < from.n) from.about[j] = load16(more + 16 * (first + j + 1));
      }
      if (!at.has(kMoeWeighted)) weights(to, t, from, first);
      MSCCLPP_UNROLL
      for (uint32_t j = 0; j < kAtOnce; ++j) {
        if (first + j < from.n) x[j] = load16(a.input + ((static_cast<uint64_t>(from.about[j].x & 0xffffu) * a.slots + from.about[j].y) * units + v) * 16);
      }
      MSCCLPP_UNROLL
      for (uint32_t j = 0; j < kAtOnce; ++j) {
        if (first + j < from.n) add(acc, x[j], moe_float(from.about[j].z));
      }
    }
    return scrub(rounded<T>(acc));
  }

  // Tokens of the rank that has most.
  MSCCLPP_DEVICE uint32_t most_tokens() const {
    uint32_t most = 0;
    for (uint32_t r = 0; r < a.ranks; ++r) {
      const uint32_t n = *reinterpret_cast<const uint32_t*>(at.record(r));
      most = most < n ? n : most;
    }
    return most;
  }

  // Sums for other ranks, and last for this one, if its own are not added up where they are received.
  MSCCLPP_DEVICE void send(uint32_t first) {
    const uint32_t of_token = (at.whole_call() ? a.ranks - 1 : a.ranks) * parts;
    uint32_t end = of_token != 0 ? a.most_tokens : 0;
    for (uint32_t i = first, turn = 0; end != 0; i += a.senders, ++turn) {
      const uint32_t t = i / of_token;
      if (t >= end || !ok) return;
      if (turn == 1) {
        end = most_tokens();
        if (t >= end) return;
      }
      const uint32_t turned = a.rank + 1 + (i - t * of_token) / parts, to = turned < a.ranks ? turned : turned - a.ranks, v = i % parts * nthreads + tid;
      Record from = record(to, t);
      if (turn == 0 && !begin()) return;
      if (from.n == 0 || v >= units) continue;
      const Vec16 s = sum(to, t, v, from);
      if (ok) store16_packet(at.partial(a.rank, to, t) + 16ull * v, s);
    }
  }

  MSCCLPP_DEVICE void collect(uint32_t first) {
    for (uint32_t i = first; i < a.tokens * parts; i += a.collectors) {
      const uint32_t t = i / parts, v = i % parts * nthreads + tid;
      const uint64_t set = at.ranks_of(t);
      const bool own = at.whole_call() && (set >> a.rank & 1) != 0;
      Record from;
      if (own) from = record(a.rank, t);
      if (!open()) return;
      if (v >= units) continue;
      Vec16 here{};
      if (own) here = sum(a.rank, t, v, from);
      float acc[kElements] = {};
      for (uint32_t first_rank = 0; first_rank < a.ranks; first_rank += kRanks) {
        const auto comes = [&](uint32_t r) { return r < a.ranks && (set >> r & 1) != 0 && (!own || r != a.rank); };
        Vec16 got[kRanks];
        MSCCLPP_UNROLL
        for (uint32_t k = 0; k < kRanks; ++k) {
          if (comes(first_rank + k)) got[k] = load16_packet(at.partial(first_rank + k, a.rank, t) + 16ull * v);
        }
        MSCCLPP_UNROLL
        for (uint32_t k = 0; k < kRanks; ++k) {
          const uint32_t r = first_rank + k;
          if (comes(r)) add(acc, receive(at.partial(r, a.rank, t) + 16ull * v, r, got[k]), 1.0f);
          else if (own && r == a.rank) add(acc, here, 1.0f);
        }
      }
      if (ok) store16(a.output + (static_cast<uint64_t>(t) * units + v) * 16, rounded<T>(acc));
    }
  }
};
#endif

}  // namespace inference
}  // namespace mscclpp
#endif  // MSCCLPP_INFERENCE_MOE_COMBINE_H_
