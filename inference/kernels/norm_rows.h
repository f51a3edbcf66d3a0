// The work of a block on a row.
#ifndef MSCCLPP_INFERENCE_NORM_ROWS_H_
#define MSCCLPP_INFERENCE_NORM_ROWS_H_

#include "norm_args.h"
#include "sentinel.h"

namespace mscclpp {
namespace inference {

// The largest finite values of quantized elements.
constexpr float kTopE4M3 = 448.0f, kTopInt8 = 127.0f;

MSCCLPP_DEVICE float top_of(uint32_t quantized) { return quantized <= kE4M3PerTensor ? kTopE4M3 : kTopInt8; }
MSCCLPP_DEVICE bool per_token(uint32_t quantized) { return quantized == kE4M3PerToken || quantized == kInt8PerToken; }

// A row of zeros has a scale, too.
MSCCLPP_DEVICE float scale_of(float largest, float top) {
  const float least = 1.0f / (top * 512.0f), scale = largest / top;
  return scale > least ? scale : least;
}

MSCCLPP_DEVICE float magnitude(float x) { return x < 0 ? -x : x; }
MSCCLPP_DEVICE float larger(float a, float b) { return a > b ? a : b; }

MSCCLPP_DEVICE uint8_t quantize(float y, float inverse, uint32_t quantized) {
  const float q = y * inverse;
  if (quantized <= kE4M3PerTensor) return from_float<e4m3>(q).bits;
  const float bounded = q > 127.0f ? 127.0f : q < -128.0f ? -128.0f : q;
  return static_cast<uint8_t>(static_cast<int8_t>(static_cast<int32_t>(__builtin_rintf(bounded))));
}

// Where packets are. Ranks do not send to themselves.
struct Places {
  const NormArgs& a;
  uint64_t row;    // bytes
  uint64_t half;   // where the launch's half begins
  uint32_t owned;  // rows that a rank adds up at most, in two-shot

  MSCCLPP_DEVICE Places(const NormArgs& args, uint64_t launch, uint64_t bytes)
      : a(args), row(bytes), half(args.notices + (launch % 2 == 0 ? args.half : 0)), owned((args.tokens + args.ranks - 1) / args.ranks) {}

  MSCCLPP_DEVICE bool two() const { return (a.flags & kTwoShot) != 0; }
  MSCCLPP_DEVICE uint32_t owner(uint32_t t) const { return t % a.ranks; }
  // Rank `to` has the input of rank `from` there.
  MSCCLPP_DEVICE char* input(uint32_t from, uint32_t to, uint32_t t) const {
    const uint64_t slot = from < to ? from : from - 1;
    const uint64_t rows = two() ? owned : a.tokens, local = two() ? t / a.ranks : t;
    return a.peers[to] + half + (slot * rows + local) * row;
  }
  // Rank `to` has the sum there that the row's owner made.
  MSCCLPP_DEVICE char* sum(uint32_t to, uint32_t t) const {
    return a.peers[to] + half + (static_cast<uint64_t>(a.ranks - 1) * owned + t) * row;
  }
};

MSCCLPP_DEVICE uint32_t number_of(uint64_t launch) { return static_cast<uint32_t>((launch - 1) % 0xffffffffu) + 1; }

#if !MSCCLPP_TARGET_CPU

template <class T>
struct Vector {
  static constexpr uint32_t kElements = 16 / sizeof(T);
  struct Parts { T e[kElements]; };
  static MSCCLPP_DEVICE Parts split(Vec16 v) { return __builtin_bit_cast(Parts, v); }
  static MSCCLPP_DEVICE Vec16 join(Parts p) { return __builtin_bit_cast(Vec16, p); }
};

// combine reduces a value over the threads of a block; all get the result. Another barrier has to follow before the next one.
template <class F>
MSCCLPP_DEVICE float combine(float v, float* room, F f) {
#if MSCCLPP_TARGET_CUDA
  (void)room;
  static __attribute__((shared)) float warps[32];
  const uint32_t tid = thread_id(), lane = tid % MSCCLPP_WARP, count = (block_dim() + MSCCLPP_WARP - 1) / MSCCLPP_WARP;
  MSCCLPP_UNROLL
  for (int i = 16; i > 0; i /= 2) {
    float other;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, -1;" : "=f"(other) : "f"(v), "r"(i));
    v = f(v, other);
  }
  if (lane == 0) warps[tid / MSCCLPP_WARP] = v;
  block_sync();
  v = warps[0];
  for (uint32_t w = 1; w < count; ++w) v = f(v, warps[w]);
  block_sync();
  return v;
#else
  room[thread_id()] = v;
  block_sync();
  v = room[0];
  for (uint32_t t = 1; t < block_dim(); ++t) v = f(v, room[t]);
  block_sync();
  return v;
#endif
}

// Normalizes rows whose sums are in registers, as far as there are enough; the others are where the residual is written.
template <class T>
struct Rows {
  using V = Vector<T>;
  const NormArgs& a;
  Places at;
  uint64_t launch;
  uint32_t tid, nthreads, vectors;
  bool ok;
  Vec16 kept[2];

  MSCCLPP_DEVICE Rows(const NormArgs& args, uint64_t number)
      : a(args), at(args, number, static_cast<uint64_t>(args.hidden) * sizeof(T)), launch(number), tid(thread_id()), nthreads(block_dim()),
        vectors(static_cast<uint32_t>(static_cast<uint64_t>(args.hidden) * sizeof(T) / 16)), ok(true) {}

  MSCCLPP_DEVICE float* room() const { return a.room + static_cast<uint64_t>(block_id()) * nthreads; }

  MSCCLPP_DEVICE Vec16 own(uint32_t t, uint32_t v) const { return scrub(load16(a.input + t * at.row + 16ull * v)); }

  // receive polls, and puts the sentinel back.
  MSCCLPP_DEVICE Vec16 receive(char* p, uint32_t peer, Vec16 got) {
    if (!whole(got) && ok) {
      const WaitSite site{a.kernel, 0, peer, launch, &a.state->left};
      Vec16 seen = got;
      ok = wait_brief(a.control, site, [p, &seen] {
        seen = load16_packet(p);
        return whole(seen);
      });
      got = seen;
    }
    clear(p);
    return got;
  }

  MSCCLPP_DEVICE void send_input(uint32_t t) const {
    if (at.two() && at.owner(t) == a.rank) return;
    for (uint32_t v = tid; v < vectors; v += nthreads) {
      const Vec16 x = own(t, v);
      if (at.two()) {
        store16_packet(at.input(a.rank, at.owner(t), t) + 16ull * v, x);
        continue;
      }
      for (uint32_t i = 1; i < a.ranks; ++i) {
        const uint32_t r = a.rank + i < a.ranks ? a.rank + i : a.rank + i - a.ranks;
        store16_packet(at.input(a.rank, r, t) + 16ull * v, x);
      }
    }
  }

  // The sum of all ranks, in their order, and the residual.
  MSCCLPP_DEVICE Vec16 add(uint32_t t, uint32_t v) {
    float acc[V::kElements];
    const Vec16 mine = own(t, v);
    Vec16 before{};
    if (a.residual != nullptr) before = load16(a.residual + t * at.row + 16ull * v);
    for (uint32_t first = 0; first < a.ranks; first += 4) {
      Vec16 got[4];
      MSCCLPP_UNROLL
      for (uint32_t k = 0; k < 4; ++k) {
        const uint32_t r = first + k;
        if (r < a.ranks && r != a.rank) got[k] = load16_packet(at.input(r, a.rank, t) + 16ull * v);
      }
      MSCCLPP_UNROLL
      for (uint32_t k = 0; k < 4; ++k) {
        const uint32_t r = first + k;
        if (r >= a.ranks) continue;
        const auto x = V::split(r == a.rank ? mine : receive(at.input(r, a.rank, t) + 16ull * v, r, got[k]));
        MSCCLPP_UNROLL
        for (uint32_t e = 0; e < V::kElements; ++e) acc[e] = r == 0 ? widen_element(x.e[e]) : acc[e] + widen_element(x.e[e]);
      }
    }
    typename V::Parts sum;
    const auto r = V::split(before);
    MSCCLPP_UNROLL
    for (uint32_t e = 0; e < V::kElements; ++e) {
      sum.e[e] = narrow_element<T>(a.residual != nullptr ? acc[e] + widen_element(r.e[e]) : acc[e]);
    }
    return scrub(V::join(sum));
  }

  // The row's sums are made here, or come from their owner. It returns the thread's part of a sum over the row.
  MSCCLPP_DEVICE float collect(uint32_t t) {
    const bool here = !at.two() || at.owner(t) == a.rank;
    float part = 0;
    uint32_t i = 0;
    for (uint32_t v = tid; v < vectors; v += nthreads, ++i) {
      Vec16 h;
      if (here) {
        h = add(t, v);
        if (at.two()) {
          for (uint32_t r = 0; r < a.ranks; ++r) {
            if (r != a.rank) store16_packet(at.sum(r, t) + 16ull * v, h);
          }
        }
      } else {
        char* p = at.sum(a.rank, t) + 16ull * v;
        h = receive(p, at.owner(t), load16_packet(p));
      }
      store16(a.residual_out + t * at.row + 16ull * v, h);
      if (i == 0) kept[0] = h;
      if (i == 1) kept[1] = h;
      const auto x = V::split(h);
      MSCCLPP_UNROLL
      for (uint32_t e = 0; e < V::kElements; ++e) {
        const float f = widen_element(x.e[e]);
        part += (a.flags & kLayerNorm) != 0 ? f : f * f;
      }
    }
    return part;
  }

  MSCCLPP_DEVICE Vec16 sum_of(uint32_t t, uint32_t v, uint32_t i) const {
    return i == 0 ? kept[0] : i == 1 ? kept[1] : load16(a.residual_out + t * at.row + 16ull * v);
  }

  // The output, before quantization.
  MSCCLPP_DEVICE typename V::Parts normal(uint32_t t, uint32_t v, uint32_t i, float mean, float inverse) const {
    const auto x = V::split(sum_of(t, v, i));
    const auto w = V::split(load16(a.weight + 16ull * v));
    const auto b = V::split(a.bias != nullptr ? load16(a.bias + 16ull * v) : Vec16{});
    typename V::Parts y;
    MSCCLPP_UNROLL
    for (uint32_t e = 0; e < V::kElements; ++e) {
      float f = (widen_element(x.e[e]) - mean) * inverse * widen_element(w.e[e]);
      if (a.bias != nullptr) f += widen_element(b.e[e]);
      y.e[e] = narrow_element<T>(f);
    }
    return y;
  }

  MSCCLPP_DEVICE void finish(uint32_t t, float part) {
    const auto plus = [](float x, float y) { return x + y; };
    float total = combine(part, room(), plus), mean = 0;
    if ((a.flags & kLayerNorm) != 0) {
      mean = total / static_cast<float>(a.hidden);
      part = 0;
      uint32_t i = 0;
      for (uint32_t v = tid; v < vectors; v += nthreads, ++i) {
        const auto x = V::split(sum_of(t, v, i));
        MSCCLPP_UNROLL
        for (uint32_t e = 0; e < V::kElements; ++e) {
          const float f = widen_element(x.e[e]) - mean;
          part += f * f;
        }
      }
      total = combine(part, room(), plus);
    }
    const float inverse = 1.0f / __builtin_sqrtf(total / static_cast<float>(a.hidden) + a.epsilon);
    if (a.quantized != kNotQuantized) {
      quantized(t, mean, inverse);
      return;
    }
    uint32_t i = 0;
    for (uint32_t v = tid; v < vectors; v += nthreads, ++i) store16(a.output + t * at.row + 16ull * v, V::join(normal(t, v, i, mean, inverse)));
  }

  MSCCLPP_DEVICE void quantized(uint32_t t, float mean, float inverse) {
    float scale;
    if (per_token(a.quantized)) {
      float largest = 0;
      uint32_t i = 0;
      for (uint32_t v = tid; v < vectors; v += nthreads, ++i) {
        const auto y = normal(t, v, i, mean, inverse);
        MSCCLPP_UNROLL
        for (uint32_t e = 0; e < V::kElements; ++e) largest = larger(largest, magnitude(widen_element(y.e[e])));
      }
      largest = combine(largest, room(), [](float x, float y) { return larger(x, y); });
      scale = scale_of(largest, top_of(a.quantized));
      if (tid == 0) a.scales[t] = scale;
    } else {
      scale = *a.scale;
    }
    const float by = 1.0f / scale;
    struct alignas(V::kElements) Bytes { uint8_t b[V::kElements]; };
    Bytes* out = reinterpret_cast<Bytes*>(a.output + static_cast<uint64_t>(t) * a.hidden);
    uint32_t i = 0;
    for (uint32_t v = tid; v < vectors; v += nthreads, ++i) {
      const auto y = normal(t, v, i, mean, inverse);
      Bytes q;
      MSCCLPP_UNROLL
      for (uint32_t e = 0; e < V::kElements; ++e) q.b[e] = quantize(widen_element(y.e[e]), by, a.quantized);
      out[v] = q;
    }
  }
};
#endif

}  // namespace inference
}  // namespace mscclpp
#endif  // MSCCLPP_INFERENCE_NORM_ROWS_H_
