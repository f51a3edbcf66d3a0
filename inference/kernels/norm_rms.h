// The most frequent calls: RMSNorm without a bias, not quantized or to e4m3 per token, of one rank or two in one shot, where a team has all of
// a row at once. With one row, such a launch takes little but the time until data and instructions come. So nothing is waited for that is not
// needed yet, addresses are known before the launches before have ended, and the code is short.
#ifndef MSCCLPP_INFERENCE_NORM_RMS_H_
#define MSCCLPP_INFERENCE_NORM_RMS_H_

#include "norm_rows.h"

namespace mscclpp {
namespace inference {

#if !MSCCLPP_TARGET_CPU

// ready keeps a compiler from computing an address where it is used.
template <class P>
MSCCLPP_DEVICE P* ready(P* p) {
#if MSCCLPP_TARGET_CUDA
  asm volatile("" : "+l"(p));
#endif
  return p;
}

// E vectors of a row in each thread. kTwo: there is another rank.
template <class T, uint32_t E, bool kBytes, bool kTwo>
struct RmsRows {
  using V = Vector<T>;
  using Word = typename Small<V::kElements>::Word;
  static constexpr bool kKeeps = E < 4;  // weights are in registers from the first row on

  const NormArgs& a;
  Team& team;
  const uint32_t begin, step, vectors;
  const uint64_t row, first;  // bytes; the first row's place in the input
  const float share;          // of an element in the mean
  const char *input, *residual;
  char *here, *there;  // its packets
  bool ok = true;      // else a wait was left: the thread goes on, as others of the team wait for its part

  MSCCLPP_DEVICE RmsRows(const NormArgs& args, Team& t)
      : a(args), team(t), begin(t.thread()), step(t.threads()), vectors(args.hidden / V::kElements), row(static_cast<uint64_t>(args.hidden) * sizeof(T)),
        first((args.first + t.index) * row + 16ull * begin), share(1.0f / static_cast<float>(args.hidden)), input(ready(args.input + first)), residual(args.residual) {
    if (residual != nullptr) residual = ready(residual + first);
    if (!kTwo) return;
    const uint64_t at = a.notices + (team.launch % 2 == 0 ? a.half : 0) + team.index * row + 16ull * begin;
    here = ready(team.peer(a.rank) + at), there = ready(team.peer(1 - a.rank) + at);
  }

  template <class F>
  MSCCLPP_DEVICE void each(F f) const {
    MSCCLPP_UNROLL
    for (uint32_t i = 0; i < E; ++i) {
      if (begin + i * step < vectors) f(i, 16ull * i * step);
    }
  }
  MSCCLPP_DEVICE void load(const char* from, Vec16 (&to)[E]) const {
    each([&](uint32_t i, uint64_t at) MSCCLPP_INLINED { to[i] = packed(load16(from + at)); });
  }
  MSCCLPP_DEVICE static void add(float (&acc)[V::kElements], Vec16 v) {
    const auto p = V::split(packed(v));
    MSCCLPP_UNROLL
    for (uint32_t e = 0; e < V::kElements; ++e) acc[e] += widen_element(p.e[e]);
  }
  MSCCLPP_DEVICE Vec16 weight_of(const Vec16 (&weight)[E], uint32_t i, uint64_t v) const { return packed(kKeeps ? weight[i] : load16(a.weight + 16ull * begin + v)); }
  MSCCLPP_DEVICE void receive(Vec16 (&got)[E]) {
    const char* packets = here;
    ok = ok && wait_brief(a.control, WaitSite{a.kernel, 0, 1 - a.rank, team.launch, &a.state->left}, [&]() MSCCLPP_INLINED {
      bool all = true;
      each([&](uint32_t i, uint64_t at) MSCCLPP_INLINED { got[i] = load16_packet(packets + at); });
      each([&](uint32_t i, uint64_t) MSCCLPP_INLINED { all = all && whole(packed(got[i])); });
      return all;
    });
    if (ok) each([&](uint32_t, uint64_t at) MSCCLPP_INLINED { clear(here + at); });
  }

  MSCCLPP_DEVICE void work(uint32_t token, uint64_t at, bool loads, Vec16 (&weight)[E]) {
    Vec16 x[E] = {}, before[E] = {}, got[E] = {};
    load(input, x);
    if (residual != nullptr) load(residual, before);
    if (kTwo) each([&](uint32_t i, uint64_t v) MSCCLPP_INLINED { store16_packet(there + v, scrub(packed(x[i]))); });
    if (kKeeps && loads) load(a.weight + 16ull * begin, weight);
    if (!kKeeps && loads) each([&](uint32_t, uint64_t v) MSCCLPP_INLINED { expect(a.weight + 16ull * begin + v); });
    if (kTwo) receive(got);
    float part = 0, most = 0;
    each([&](uint32_t i, uint64_t v) MSCCLPP_INLINED {
      float acc[V::kElements];
      MSCCLPP_UNROLL
      for (uint32_t e = 0; e < V::kElements; ++e) acc[e] = -0.0f;
      add(acc, x[i]);
      if (kTwo) add(acc, got[i]);
      if (residual != nullptr) add(acc, before[i]);
      x[i] = packed(scrub(rounded<T>(acc)));
      if (a.residual_out != nullptr) store16(a.residual_out + at + v, x[i]);
      const auto p = V::split(packed(x[i]));
      MSCCLPP_UNROLL
      for (uint32_t e = 0; e < V::kElements; ++e) part += widen_element(p.e[e]) * widen_element(p.e[e]);
      if (!kBytes) return;
      const auto w = V::split(weight_of(weight, i, v));
      MSCCLPP_UNROLL
      for (uint32_t e = 0; e < V::kElements; ++e) most = larger(most, magnitude(widen_element(p.e[e]) * widen_element(w.e[e])));
    });
    team.combine<kBytes>(part, most);
    const float inverse = 1.0f / __builtin_sqrtf(part * share + a.epsilon);
    const float scale = kBytes ? scale_of(most * inverse, kTopE4M3) : 1.0f, by = 1.0f / scale;
    if (kBytes && begin == 0) a.scales[token] = scale;
    each([&](uint32_t i, uint64_t v) MSCCLPP_INLINED {
      const auto p = V::split(packed(x[i])), w = V::split(weight_of(weight, i, v));
      float out[V::kElements];
      MSCCLPP_UNROLL
      for (uint32_t e = 0; e < V::kElements; ++e) out[e] = widen_element(p.e[e]) * inverse * widen_element(w.e[e]);
      const Vec16 y = rounded<T>(out);
      if (!kBytes) return store16(a.output + at + v, y);
      const auto q = V::split(y);
      MSCCLPP_UNROLL
      for (uint32_t e = 0; e < V::kElements; ++e) out[e] = widen_element(q.e[e]) * by;
      Word word = 0;
      MSCCLPP_UNROLL
      for (uint32_t e = 0; e < V::kElements; e += 4) word |= static_cast<Word>(rounded_e4m3(out[e], out[e + 1], out[e + 2], out[e + 3])) << (8 * e);
      *reinterpret_cast<Word*>(a.output + (at + v) / sizeof(T)) = word;
    });
  }

  MSCCLPP_DEVICE void run() {
    Vec16 weight[E] = {};
    const uint32_t teams = team.count - 1;
    const uint64_t further = teams * row;
    uint64_t at = first;
    for (uint32_t w = team.index; w < a.count; w += teams, at += further) {
      work(a.first + w, at, w == team.index, weight);
      input += further;
      if (residual != nullptr) residual += further;
      if (kTwo) here += further, there += further;
    }
  }
};
#endif

}  // namespace inference
}  // namespace mscclpp
#endif  // MSCCLPP_INFERENCE_NORM_RMS_H_
