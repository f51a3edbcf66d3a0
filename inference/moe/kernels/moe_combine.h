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
  static constexpr uint32_t kElements = 16 / sizeof(T), kAtOnce = 4;
  struct Parts { T e[kElements]; };

  MSCCLPP_DEVICE Combine(const MoeArgs& args, uint64_t launch) : MoeBlock(args, kCombine, launch, sizeof(T)) {}

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
  MSCCLPP_DEVICE Vec16 rounded(const float* acc) const {
    Parts p;
    MSCCLPP_UNROLL
    for (uint32_t k = 0; k < kElements; ++k) p.e[k] = narrow_element<T>(acc[k]);
    return __builtin_bit_cast(Vec16, p);
  }

  // A part of the sum over this rank's experts of a token of another rank.
  MSCCLPP_DEVICE Vec16 sum(uint32_t to, uint32_t t, uint32_t v, uint32_t n) {
    float acc[kElements] = {};
    const char* record = at.record(to, t);
    for (uint32_t first = 0; first < n; first += kAtOnce) {
      Vec16 about[kAtOnce], x[kAtOnce];
      MSCCLPP_UNROLL
      for (uint32_t j = 0; j < kAtOnce; ++j) about[j] = first + j < n ? load16(record + 16 * (first + j + 1)) : Vec16{};
      MSCCLPP_UNROLL
      for (uint32_t j = 0; j < kAtOnce; ++j) {
        if (first + j < n) x[j] = load16(a.input + ((static_cast<uint64_t>(about[j].x & 0xffffu) * a.slots + about[j].y) * units + v) * 16);
      }
      MSCCLPP_UNROLL
      for (uint32_t j = 0; j < kAtOnce; ++j) {
        if (first + j >= n || !ok) continue;
        uint32_t weight = about[j].z;
        if (!at.has(kMoeWeighted)) ok = flagged(weight, at.weight(to, a.rank, t) + (about[j].x >> 16), kMoeWeights, to);
        add(acc, x[j], moe_float(weight));
      }
    }
    return scrub(rounded(acc));
  }

  MSCCLPP_DEVICE void send(uint32_t first) {
    const uint32_t of_token = a.ranks * parts;
    uint32_t end = 0;
    for (uint32_t r = 0; r < a.ranks; ++r) {
      const uint32_t n = *reinterpret_cast<const uint32_t*>(at.record(r));
      end = end < n ? n : end;
    }
    if (!begin()) return;
    for (uint32_t i = first;; i += a.senders) {
      const uint32_t t = i / of_token;
      if (t >= end || !ok) return;
      const uint32_t turned = a.rank + (i - t * of_token) / parts, to = turned < a.ranks ? turned : turned - a.ranks, v = i % parts * nthreads + tid;
      const uint32_t tokens = *reinterpret_cast<const uint32_t*>(at.record(to));
      const uint32_t n = t < tokens ? *reinterpret_cast<const uint32_t*>(at.record(to, t)) : 0;
      if (n == 0 || v >= units) continue;
      const Vec16 s = sum(to, t, v, n);
      if (ok) store16_packet(at.partial(a.rank, to, t) + 16ull * v, s);
    }
  }

  MSCCLPP_DEVICE void collect(uint32_t first) {
    for (uint32_t i = first; i < a.tokens * parts; i += a.collectors) {
      const uint32_t t = i / parts, v = i % parts * nthreads + tid;
      if (v >= units) continue;
      const uint64_t set = at.ranks_of(t);
      float acc[kElements] = {};
      for (uint32_t first_rank = 0; first_rank < a.ranks; first_rank += kAtOnce) {
        Vec16 got[kAtOnce];
        MSCCLPP_UNROLL
        for (uint32_t k = 0; k < kAtOnce; ++k) {
          const uint32_t r = first_rank + k;
          if (r < a.ranks && (set >> r & 1) != 0) got[k] = load16_packet(at.partial(r, a.rank, t) + 16ull * v);
        }
        MSCCLPP_UNROLL
        for (uint32_t k = 0; k < kAtOnce; ++k) {
          const uint32_t r = first_rank + k;
          if (r < a.ranks && (set >> r & 1) != 0) add(acc, receive(at.partial(r, a.rank, t) + 16ull * v, r, got[k]), 1.0f);
        }
      }
      if (ok) store16(a.output + (static_cast<uint64_t>(t) * units + v) * 16, rounded(acc));
    }
  }
};
#endif

}  // namespace inference
}  // namespace mscclpp
#endif  // MSCCLPP_INFERENCE_MOE_COMBINE_H_
