// The work of a team of blocks on its rows.
#ifndef MSCCLPP_INFERENCE_NORM_ROWS_H_
#define MSCCLPP_INFERENCE_NORM_ROWS_H_

#include "norm_places.h"

// Functions that see a thread's registers are part of their caller: registers have no address.
#define MSCCLPP_INLINED __attribute__((always_inline))

namespace mscclpp {
namespace inference {

#if !MSCCLPP_TARGET_CPU

// wait_until as a part of its caller. A thread that waits has much in registers, all of which would be saved before each call.
template <class F>
MSCCLPP_DEVICE bool wait_here(WaitControl* control, const WaitSite& site, F ready) {
#if MSCCLPP_TARGET_GPU
  return detail::wait_patient(control, site, ready, 0);
#else
  return wait_until(control, site, ready);
#endif
}

// packed keeps a compiler from unpacking elements ahead of a loop, or from keeping them so until they are used again: they take more registers.
MSCCLPP_DEVICE Vec16 packed(Vec16 v) {
#if MSCCLPP_TARGET_CUDA
  asm volatile("" : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w));
#endif
  return v;
}

// expect has a cache load what is read later.
MSCCLPP_DEVICE void expect(const char* p) {
#if MSCCLPP_TARGET_CUDA
  uint32_t none;
  asm volatile("ld.global.u32 %0, [%1];" : "=r"(none) : "l"(p) : "memory");
#else
  (void)p;
#endif
}

template <class T>
struct Vector {
  static constexpr uint32_t kElements = 16 / sizeof(T);
  struct Parts { T e[kElements]; };
  static MSCCLPP_DEVICE Parts split(Vec16 v) { return __builtin_bit_cast(Parts, v); }
};

// A vector of a row that became bytes is a packet of 8 or of 4 bytes.
MSCCLPP_DEVICE uint32_t scrub_small(uint32_t w) { return w == kSentinel ? kOtherE4M3 : w; }
MSCCLPP_DEVICE void store_small(char* p, uint64_t v) {
  const uint64_t high = scrub_small(static_cast<uint32_t>(v >> 32));
  store8_packet(p, high << 32 | scrub_small(static_cast<uint32_t>(v)));
}
MSCCLPP_DEVICE void store_small(char* p, uint32_t v) { store_relaxed(reinterpret_cast<uint32_t*>(p), scrub_small(v)); }
MSCCLPP_DEVICE bool load_small(const char* p, uint64_t* v) {
  *v = load8_packet(p);
  return static_cast<uint32_t>(*v) != kSentinel && static_cast<uint32_t>(*v >> 32) != kSentinel;
}
MSCCLPP_DEVICE bool load_small(const char* p, uint32_t* v) { return (*v = load_relaxed(reinterpret_cast<const uint32_t*>(p))) != kSentinel; }
MSCCLPP_DEVICE void clear_small(char* p, uint64_t) { store8_packet(p, ~static_cast<uint64_t>(0)); }
MSCCLPP_DEVICE void clear_small(char* p, uint32_t) { store_relaxed(reinterpret_cast<uint32_t*>(p), kSentinel); }
template <uint32_t N> struct Small { typedef uint64_t Word; };
template <> struct Small<4> { typedef uint32_t Word; };

// A thread has E vectors of a row in registers, of a longer row one chunk of so many after the other: the sums of later
// chunks are read again where they were written. With four vectors in a thread, its team has the whole row.
template <class T, uint32_t E, uint32_t kFlags>
struct Rows {
  using V = Vector<T>;
  using Word = typename Small<V::kElements>::Word;
  // Weights come before packets are waited for, where there are registers for them, and the packets of so many ranks at once.
  static constexpr bool kEarly = E == 1;
  static constexpr uint32_t kPeers = E == 1 ? 4 : 1;
  static constexpr bool kWhole = E == 4;  // a team has all of a row at once

  const NormArgs& a;
  Places<kFlags> at;
  Team& team;
  const uint32_t launch, begin, step, vectors, chunk;
  bool ok = true;
  uint32_t held = ~0u;  // the row whose input is here
  Vec16 mine[E], weight[E], bias[E];
  Vec16 kept[E];        // sums

  MSCCLPP_DEVICE Rows(const NormArgs& args, Team& t)
      : a(args), at(args, static_cast<uint64_t>(args.hidden) * sizeof(T)), team(t), launch(t.launch), begin(t.thread()), step(t.threads()), vectors(args.hidden / V::kElements),
        chunk(E * t.threads()) {
    at.set(launch);
  }

  MSCCLPP_DEVICE void fetch(const Row& r) {
    if (at.has(kOwnInput) && r.owner != a.rank) return;
    load(at.input_of(r), 0, mine);
    held = r.token;
  }

  template <class F>
  MSCCLPP_DEVICE void each(uint32_t from, F f) const {
    MSCCLPP_UNROLL
    for (uint32_t i = 0; i < E; ++i) {
      const uint32_t v = from + begin + i * step;
      if (v < vectors) f(i, v);
    }
  }
  template <class F>
  MSCCLPP_DEVICE void chunks(F f) const {
    if (kWhole) return f(0u);
    for (uint32_t from = 0; from < vectors; from += chunk) f(from);
  }

  MSCCLPP_DEVICE void load(const char* row, uint32_t from, Vec16 (&to)[E]) const {
    each(from, [&](uint32_t i, uint32_t v) MSCCLPP_INLINED { to[i] = load16(row + 16ull * v); });
  }

  // The input of a row for its owner, or in one-shot for all.
  MSCCLPP_DEVICE void send_input(const Row& r) {
    if (at.has(kOwnInput) || (at.two() && r.owner == a.rank)) return;
    chunks([&](uint32_t from) MSCCLPP_INLINED {
      Vec16 x[E];
      take_input(r, from, x);
      for (uint32_t i = 1; i < a.ranks; ++i) {
        const uint32_t to = a.rank + i < a.ranks ? a.rank + i : a.rank + i - a.ranks;
        if (at.two() && to != r.owner) continue;
        char* p = team.peer(to) + at.input(a.rank, to, r);
        each(from, [&](uint32_t k, uint32_t v) MSCCLPP_INLINED { store16_packet(p + 16ull * v, scrub(x[k])); });
      }
    });
  }
  MSCCLPP_DEVICE void take_input(const Row& r, uint32_t from, Vec16 (&x)[E]) const {
    if (from != 0 || held != r.token) return load(at.input_of(r), from, x);
    MSCCLPP_UNROLL
    for (uint32_t i = 0; i < E; ++i) x[i] = mine[i];
  }

  // It loads the values that are the same in all rows, and holds up no packets. Where there are no registers for them the cache has them early.
  MSCCLPP_DEVICE void load_weights() {
    if (at.has(kNoNorm)) return;
    if (!kEarly) {
      each(0, [&](uint32_t, uint32_t v) MSCCLPP_INLINED { expect(a.weight + 16ull * v); });
      return;
    }
    load(a.weight, 0, weight);
    if (at.biased()) load(a.bias, 0, bias);
  }

  // receive polls for the packets of several ranks, and puts the sentinel back.
  MSCCLPP_DEVICE void receive(const Row& r, uint32_t first, uint32_t from, Vec16 (&got)[kPeers][E]) {
    const char* own = team.peer(a.rank);
    const auto missing = [&](uint32_t k) MSCCLPP_INLINED { return first + k < a.ranks && first + k != a.rank; };
    WaitSite site{a.kernel, 0, a.rank, launch, &a.state->left};
    ok = ok && wait_here(a.control, site, [&]() MSCCLPP_INLINED {
      bool all = true;
      MSCCLPP_UNROLL
      for (uint32_t k = 0; k < kPeers; ++k) {
        if (!missing(k)) continue;
        const char* p = own + at.input(first + k, a.rank, r);
        each(from, [&](uint32_t i, uint32_t v) MSCCLPP_INLINED { got[k][i] = load16_packet(p + 16ull * v); });
      }
      MSCCLPP_UNROLL
      for (uint32_t k = 0; k < kPeers; ++k) {
        if (!missing(k)) continue;
        each(from, [&](uint32_t i, uint32_t) MSCCLPP_INLINED {
          if (whole(got[k][i])) return;
          all = false;
          site.peer = first + k;
        });
      }
      return all;
    });
    if (!ok) return;
    MSCCLPP_UNROLL
    for (uint32_t k = 0; k < kPeers; ++k) {
      if (!missing(k)) continue;
      char* p = team.peer(a.rank) + at.input(first + k, a.rank, r);
      each(from, [&](uint32_t, uint32_t v) MSCCLPP_INLINED { clear(p + 16ull * v); });
    }
  }

  // The sum of all ranks, in their order, and the residual.
  MSCCLPP_DEVICE void add(const Row& r, uint32_t from, Vec16 (&sum)[E]) {
    Vec16 x[E], before[E];
    take_input(r, from, x);
    if (a.residual != nullptr) load(a.residual + at.residual_at(r), from, before);
    float acc[E][V::kElements];
    MSCCLPP_UNROLL
    for (uint32_t i = 0; i < E; ++i) {
      MSCCLPP_UNROLL
      for (uint32_t e = 0; e < V::kElements; ++e) acc[i][e] = -0.0f;
    }
    const auto plus = [&](const Vec16(&y)[E]) MSCCLPP_INLINED {
      each(from, [&](uint32_t i, uint32_t) MSCCLPP_INLINED {
        const auto p = V::split(packed(y[i]));
        MSCCLPP_UNROLL
        for (uint32_t e = 0; e < V::kElements; ++e) acc[i][e] += widen_element(p.e[e]);
      });
    };
    if (at.has(kOwnInput)) {
      plus(x);
    } else {
      for (uint32_t first = 0; first < a.ranks; first += kPeers) {
        Vec16 got[kPeers][E] = {};
        receive(r, first, from, got);
        MSCCLPP_UNROLL
        for (uint32_t k = 0; k < kPeers; ++k) {
          if (first + k >= a.ranks) continue;
          if (first + k == a.rank) plus(x);
          else plus(got[k]);
        }
      }
    }
    if (a.residual != nullptr) plus(before);
    each(from, [&](uint32_t i, uint32_t) MSCCLPP_INLINED { sum[i] = scrub(rounded<T>(acc[i])); });
  }

  // Packets of a row that its owner has sent. Those that are not cleared are taken once more.
  MSCCLPP_DEVICE void take(const Row& r, uint32_t from, Vec16 (&to)[E], bool clears = true) {
    char* p = team.peer(a.rank) + at.result(a.rank, r);
    const WaitSite site{a.kernel, 0, r.owner, launch, &a.state->left};
    ok = ok && wait_here(a.control, site, [&]() MSCCLPP_INLINED {
      bool all = true;
      each(from, [&](uint32_t i, uint32_t v) MSCCLPP_INLINED { to[i] = load16_packet(p + 16ull * v); });
      each(from, [&](uint32_t i, uint32_t) MSCCLPP_INLINED { all = all && whole(to[i]); });
      return all;
    });
    if (ok && clears) each(from, [&](uint32_t, uint32_t v) MSCCLPP_INLINED { clear(p + 16ull * v); });
  }

  MSCCLPP_DEVICE void give(const Row& r, uint32_t from, const Vec16 (&x)[E]) {
    for (uint32_t i = 1; i < a.ranks; ++i) {
      const uint32_t to = a.rank + i < a.ranks ? a.rank + i : a.rank + i - a.ranks;
      char* p = team.peer(to) + at.result(to, r);
      each(from, [&](uint32_t k, uint32_t v) MSCCLPP_INLINED { store16_packet(p + 16ull * v, x[k]); });
    }
  }

  // Where the sums of later chunks are, if the caller does not want them.
  MSCCLPP_DEVICE char* sums_of(const Row& r) const {
    return a.residual_out != nullptr ? a.residual_out + at.residual_at(r) : a.output + at.output_row(r) * at.row;
  }

  MSCCLPP_DEVICE void sums(const Row& r, uint32_t from, Vec16 (&to)[E]) const {
    if (from != 0) return load(at.input_is_sum() ? at.input_of(r) : sums_of(r), from, to);
    MSCCLPP_UNROLL
    for (uint32_t i = 0; i < E; ++i) to[i] = packed(kept[i]);
  }

  // f gets the elements of sums and of weights.
  template <class F>
  MSCCLPP_DEVICE void elements(const Vec16 (&x)[E], uint32_t from, F f) const {
    each(from, [&](uint32_t i, uint32_t) MSCCLPP_INLINED {
      const auto p = V::split(packed(x[i]));
      MSCCLPP_UNROLL
      for (uint32_t e = 0; e < V::kElements; ++e) f(i, e, widen_element(p.e[e]));
    });
  }

  MSCCLPP_DEVICE void weights(uint32_t from, Vec16 (&w)[E]) const {
    if (!kEarly || from != 0) return load(a.weight, from, w);
    MSCCLPP_UNROLL
    for (uint32_t i = 0; i < E; ++i) w[i] = packed(weight[i]);
  }
  MSCCLPP_DEVICE void biases(uint32_t from, Vec16 (&b)[E]) const {
    if (!at.biased()) return;
    if (!kEarly || from != 0) return load(a.bias, from, b);
    MSCCLPP_UNROLL
    for (uint32_t i = 0; i < E; ++i) b[i] = packed(bias[i]);
  }

  struct Normal { float mean, inverse; };

  // The output of a chunk, before quantization.
  MSCCLPP_DEVICE void normal(const Row& r, uint32_t from, Normal n, Vec16 (&y)[E]) const {
    Vec16 x[E];
    sums(r, from, x);
    if (at.has(kNoNorm)) {
      MSCCLPP_UNROLL
      for (uint32_t i = 0; i < E; ++i) y[i] = x[i];
      return;
    }
    Vec16 w[E], b[E] = {};
    weights(from, w);
    biases(from, b);
    each(from, [&](uint32_t i, uint32_t) MSCCLPP_INLINED {
      const auto p = V::split(x[i]), q = V::split(w[i]), s = V::split(b[i]);
      float out[V::kElements];
      MSCCLPP_UNROLL
      for (uint32_t e = 0; e < V::kElements; ++e) {
        out[e] = (widen_element(p.e[e]) - n.mean) * n.inverse * widen_element(q.e[e]);
        if (at.biased()) out[e] += widen_element(s.e[e]);
      }
      y[i] = rounded<T>(out);
    });
  }

  // The row's sums are made here, or come from their owner. `part` is the thread's part of the first sum over the row, `most` is the
  // largest magnitude of its elements times weights.
  MSCCLPP_DEVICE void collect(const Row& r, float& part, float& most) {
    const bool here = !at.two() || r.owner == a.rank;
    chunks([&](uint32_t from) MSCCLPP_INLINED {
      Vec16 h[E] = {};
      if (here) {
        add(r, from, h);
        if (at.two() && !at.outputs()) give(r, from, h);
      } else {
        take(r, from, h);
      }
      if (a.residual_out != nullptr || (from != 0 && !at.input_is_sum())) {
        char* to = sums_of(r);
        each(from, [&](uint32_t i, uint32_t v) MSCCLPP_INLINED { store16(to + 16ull * v, h[i]); });
      }
      if (from == 0) {
        MSCCLPP_UNROLL
        for (uint32_t i = 0; i < E; ++i) kept[i] = h[i];
      }
      elements(h, from, [&](uint32_t, uint32_t, float f) MSCCLPP_INLINED { part += at.has(kLayerNorm) ? f : f * f; });
      if (!per_token(at.quantized())) return;
      Vec16 w[E];
      if (!at.has(kNoNorm)) weights(from, w);
      elements(h, from, [&](uint32_t i, uint32_t e, float f) MSCCLPP_INLINED {
        if (!at.has(kNoNorm)) f *= widen_element(V::split(w[i]).e[e]);
        most = larger(most, magnitude(f));
      });
    });
  }

  MSCCLPP_DEVICE void finish(const Row& r) {
    float part = 0, most = 0;
    collect(r, part, most);
    Normal n{0, 1};
    const bool scaled = per_token(at.quantized());
    const float count = static_cast<float>(a.hidden);
    if (scaled) team.combine<true>(part, most);
    else if (!at.has(kNoNorm)) team.combine<false>(part, most);
    if (at.has(kLayerNorm)) {
      n.mean = part / count;
      part = 0;
      chunks([&](uint32_t from) MSCCLPP_INLINED {
        Vec16 x[E];
        sums(r, from, x);
        elements(x, from, [&](uint32_t, uint32_t, float f) MSCCLPP_INLINED { part += (f - n.mean) * (f - n.mean); });
      });
      float none = 0;
      team.combine<false>(part, none);
    }
    if (!at.has(kNoNorm)) n.inverse = 1.0f / __builtin_sqrtf(part / count + a.epsilon);
    // Ranks that receive the output before it is quantized know no more than that.
    const bool sent = at.outputs() && !at.has(kOwnOutput) && !sent_small(at.quantized());
    if (scaled && (at.has(kLayerNorm) || at.biased() || sent)) {
      most = 0;
      chunks([&](uint32_t from) MSCCLPP_INLINED {
        Vec16 y[E];
        normal(r, from, n, y);
        elements(y, from, [&](uint32_t, uint32_t, float f) MSCCLPP_INLINED { most = larger(most, magnitude(f)); });
      });
      float none = 0;
      team.combine<true>(none, most);
    } else {
      most *= n.inverse;
    }
    write(r, n, most);
  }

  MSCCLPP_DEVICE void write(const Row& r, Normal n, float most) {
    const bool sends = at.outputs() && !at.has(kOwnOutput);
    const float scale = scale_for(r, most, sends);
    chunks([&](uint32_t from) MSCCLPP_INLINED {
      Vec16 y[E] = {};
      normal(r, from, n, y);
      if (sends && !sent_small(at.quantized())) {
        each(from, [&](uint32_t i, uint32_t) MSCCLPP_INLINED { y[i] = scrub(y[i]); });
        give(r, from, y);
      }
      store(r, from, y, scale, sends);
    });
  }

  // The scale of a row, which its first thread writes, and sends where bytes are sent.
  MSCCLPP_DEVICE float scale_for(const Row& r, float most, bool sends) {
    if (at.quantized() == kNotQuantized) return 1;
    if (!per_token(at.quantized())) return *a.scale;
    const float scale = scale_of(most, top_of(at.quantized()));
    if (begin != 0) return scale;
    a.scales[at.output_row(r)] = scale;
    if (!sends || !sent_small(at.quantized())) return scale;
    for (uint32_t to = 0; to < a.ranks; ++to) {
      if (to != a.rank) store_relaxed(reinterpret_cast<uint32_t*>(team.peer(to) + at.result(to, r) + at.row), scrub(__builtin_bit_cast(uint32_t, scale)));
    }
    return scale;
  }

  MSCCLPP_DEVICE void store(const Row& r, uint32_t from, const Vec16 (&y)[E], float scale, bool sends) {
    if (at.quantized() == kNotQuantized) {
      char* out = a.output + at.output_row(r) * at.row;
      each(from, [&](uint32_t i, uint32_t v) MSCCLPP_INLINED { store16(out + 16ull * v, y[i]); });
      return;
    }
    const float by = 1.0f / scale;
    Word* out = reinterpret_cast<Word*>(a.output + at.output_row(r) * a.hidden);
    each(from, [&](uint32_t i, uint32_t v) MSCCLPP_INLINED {
      const auto p = V::split(y[i]);
      float f[V::kElements];
      MSCCLPP_UNROLL
      for (uint32_t e = 0; e < V::kElements; ++e) f[e] = widen_element(p.e[e]) * by;
      Word word = 0;
      MSCCLPP_UNROLL
      for (uint32_t e = 0; e < V::kElements; e += 4) word |= static_cast<Word>(quantized_four(f + e, at.quantized())) << (8 * e);
      out[v] = word;
      if (!sends || !sent_small(at.quantized())) return;
      for (uint32_t to = 0; to < a.ranks; ++to) {
        if (to != a.rank) store_small(team.peer(to) + at.result(to, r) + sizeof(Word) * v, word);
      }
    });
  }

  // The output of a row that another rank owns.
  MSCCLPP_DEVICE void accept(const Row& r) {
    if (sent_small(at.quantized())) return accept_small(r);
    float most = 0, none = 0;
    if (per_token(at.quantized())) {
      chunks([&](uint32_t from) MSCCLPP_INLINED {
        Vec16 y[E] = {};
        take(r, from, y, false);
        elements(y, from, [&](uint32_t, uint32_t, float f) MSCCLPP_INLINED { most = larger(most, magnitude(f)); });
      });
      team.combine<true>(none, most);
    }
    const float scale = scale_for(r, most, false);
    chunks([&](uint32_t from) MSCCLPP_INLINED {
      Vec16 y[E] = {};
      take(r, from, y);
      store(r, from, y, scale, false);
    });
  }

  MSCCLPP_DEVICE void accept_small(const Row& r) {
    char* p = team.peer(a.rank) + at.result(a.rank, r);
    const WaitSite site{a.kernel, 0, r.owner, launch, &a.state->left};
    Word* out = reinterpret_cast<Word*>(a.output + at.output_row(r) * a.hidden);
    chunks([&](uint32_t from) MSCCLPP_INLINED {
      Word got[E] = {};
      ok = ok && wait_here(a.control, site, [&]() MSCCLPP_INLINED {
        bool all = true;
        each(from, [&](uint32_t i, uint32_t v) MSCCLPP_INLINED { all = load_small(p + sizeof(Word) * v, &got[i]) && all; });
        return all;
      });
      if (!ok) return;
      each(from, [&](uint32_t i, uint32_t v) MSCCLPP_INLINED {
        clear_small(p + sizeof(Word) * v, got[i]);
        out[v] = got[i];
      });
    });
    if (begin != 0 || !per_token(at.quantized()) || !ok) return;
    uint32_t scale = 0;
    ok = wait_here(a.control, site, [&]() MSCCLPP_INLINED { return load_small(p + at.row, &scale); });
    if (!ok) return;
    clear_small(p + at.row, scale);
    a.scales[at.output_row(r)] = __builtin_bit_cast(float, scale);
  }
};
#endif

}  // namespace inference
}  // namespace mscclpp
#endif  // MSCCLPP_INFERENCE_NORM_ROWS_H_
