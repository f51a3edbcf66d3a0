// The kernel on a processor: one thread has all rows.
#ifndef MSCCLPP_INFERENCE_NORM_HOST_H_
#define MSCCLPP_INFERENCE_NORM_HOST_H_

#include "norm_rows.h"

namespace mscclpp {
namespace inference {

#if MSCCLPP_TARGET_CPU
constexpr uint32_t kPiece = 2048, kLanes = 16;

template <class T>
struct HostRows {
  static constexpr uint32_t kElements = kPiece / sizeof(T);
  const NormArgs& a;
  Places at;
  uint64_t launch;

  HostRows(const NormArgs& args, uint64_t number) : a(args), at(args, number, static_cast<uint64_t>(args.hidden) * sizeof(T)), launch(number) {}

  const char* own(uint32_t t) const { return a.input + t * at.row; }

  bool receive(T* to, char* from, uint32_t peer, uint64_t bytes) const {
    return wait_until(a.control, WaitSite{a.kernel, 0, peer, launch}, [&] { return take(to, from, bytes); });
  }

  void send_input(uint32_t t) const {
    for (uint32_t i = 1; i < a.ranks; ++i) {
      const uint32_t r = (a.rank + i) % a.ranks;
      if (!at.two() || at.owner(t) == r) send(at.input(a.rank, r, t), own(t), at.row);
    }
  }

  // The sum of a piece of all ranks, in their order, and the residual.
  bool add(T* sum, uint32_t t, uint64_t from, uint64_t bytes) const {
    alignas(64) Accumulator<T> acc[kElements];
    alignas(64) T got[kElements];
    const uint32_t n = static_cast<uint32_t>(bytes / sizeof(T));
    for (uint32_t r = 0; r < a.ranks; ++r) {
      if (r == a.rank) {
        send(got, own(t) + from, bytes);
      } else if (!receive(got, at.input(r, a.rank, t) + from, r, bytes)) {
        return false;
      }
      if (r == 0) {
        for (uint32_t e = 0; e < n; ++e) acc[e] = widen_element(got[e]);
      } else {
        for (uint32_t e = 0; e < n; ++e) acc[e] += widen_element(got[e]);
      }
    }
    if (a.residual != nullptr) {
      const T* before = reinterpret_cast<const T*>(a.residual + t * at.row + from);
      for (uint32_t e = 0; e < n; ++e) acc[e] += widen_element(before[e]);
    }
    for (uint32_t e = 0; e < n; ++e) got[e] = narrow_element<T>(acc[e]);
    send(sum, got, bytes);
    return true;
  }

  // The row's sums are made here, or come from their owner.
  bool collect(uint32_t t) const {
    const bool here = !at.two() || at.owner(t) == a.rank;
    alignas(64) T sum[kElements];
    for (uint64_t from = 0; from < at.row; from += kPiece) {
      const uint64_t bytes = at.row - from < kPiece ? at.row - from : kPiece;
      if (here) {
        if (!add(sum, t, from, bytes)) return false;
        for (uint32_t r = 0; at.two() && r < a.ranks; ++r) {
          if (r != a.rank) send(at.sum(r, t) + from, sum, bytes);
        }
      } else if (!receive(sum, at.sum(a.rank, t) + from, at.owner(t), bytes)) {
        return false;
      }
      __builtin_memcpy(a.residual_out + t * at.row + from, sum, bytes);
    }
    return true;
  }

  // total adds up over a row in an order that does not depend on the processor: lane by lane.
  template <class F>
  float total(const T* x, F f) const {
    float lanes[kLanes] = {};
    uint32_t e = 0;
    for (; e + kLanes <= a.hidden; e += kLanes) {
      for (uint32_t k = 0; k < kLanes; ++k) lanes[k] += f(static_cast<float>(widen_element(x[e + k])));
    }
    for (; e < a.hidden; ++e) lanes[e % kLanes] += f(static_cast<float>(widen_element(x[e])));
    float sum = 0;
    for (uint32_t k = 0; k < kLanes; ++k) sum += lanes[k];
    return sum;
  }

  // normal writes elements from..to of a row, before quantization.
  void normal(T* y, uint32_t t, uint32_t from, uint32_t to, float mean, float inverse) const {
    const T* x = reinterpret_cast<const T*>(a.residual_out + t * at.row);
    const T* w = reinterpret_cast<const T*>(a.weight);
    const T* b = reinterpret_cast<const T*>(a.bias);
    if (b == nullptr) {
      for (uint32_t e = from; e < to; ++e) y[e - from] = narrow_element<T>((widen_element(x[e]) - mean) * inverse * widen_element(w[e]));
      return;
    }
    for (uint32_t e = from; e < to; ++e) {
      y[e - from] = narrow_element<T>((widen_element(x[e]) - mean) * inverse * widen_element(w[e]) + widen_element(b[e]));
    }
  }

  template <class F>
  void pieces(uint32_t t, float mean, float inverse, F f) const {
    alignas(64) T y[kElements];
    for (uint32_t from = 0; from < a.hidden; from += kElements) {
      const uint32_t n = a.hidden - from < kElements ? a.hidden - from : kElements;
      normal(y, t, from, from + n, mean, inverse);
      f(y, from, n);
    }
  }

  void finish(uint32_t t) const {
    const T* x = reinterpret_cast<const T*>(a.residual_out + t * at.row);
    const float count = static_cast<float>(a.hidden);
    float mean = 0, squares;
    if ((a.flags & kLayerNorm) != 0) {
      mean = total(x, [](float v) { return v; }) / count;
      squares = total(x, [mean](float v) { return (v - mean) * (v - mean); });
    } else {
      squares = total(x, [](float v) { return v * v; });
    }
    const float inverse = 1.0f / __builtin_sqrtf(squares / count + a.epsilon);
    if (a.quantized == kNotQuantized) {
      // The piece between, since the output may be the memory of the input.
      char* out = a.output + t * at.row;
      pieces(t, mean, inverse, [out](const T* y, uint32_t from, uint32_t n) { __builtin_memcpy(out + from * sizeof(T), y, n * sizeof(T)); });
      return;
    }
    float scale;
    if (per_token(a.quantized)) {
      float largest = 0;
      pieces(t, mean, inverse, [&largest](const T* y, uint32_t, uint32_t n) {
        for (uint32_t e = 0; e < n; ++e) largest = larger(largest, magnitude(widen_element(y[e])));
      });
      a.scales[t] = scale = scale_of(largest, top_of(a.quantized));
    } else {
      scale = *a.scale;
    }
    const float by = 1.0f / scale;
    uint8_t* out = reinterpret_cast<uint8_t*>(a.output) + static_cast<uint64_t>(t) * a.hidden;
    const uint32_t kind = a.quantized;
    pieces(t, mean, inverse, [out, by, kind](const T* y, uint32_t from, uint32_t n) {
      for (uint32_t e = 0; e < n; ++e) out[from + e] = quantize(widen_element(y[e]), by, kind);
    });
  }
};

// differs compares the notice of a rank. It returns 1 + that rank if it is in another call.
inline uint32_t differs(const NormArgs& a, const NormNotice* notices, uint32_t r, uint32_t number, bool& left) {
  uint64_t got = 0;
  const auto* word = reinterpret_cast<const uint64_t*>(&notices[r]);
  left = !wait_until(a.control, WaitSite{a.kernel, 1, r, number}, [&] { return static_cast<uint32_t>((got = load8_packet(word)) >> 32) == number; });
  return !left && static_cast<uint32_t>(got) != a.signature ? r + 1 : 0;
}

template <class T>
inline void all_reduce_norm(const NormArgs& a) {
  NormState* s = a.state;
  const uint64_t launch = s->launches + 1;
  const uint32_t number = number_of(launch);
  const HostRows<T> rows(a, launch);
  fence_system();  // the last launch has cleared packets before this one sends
  const auto at = [&a, launch](uint32_t r) { return reinterpret_cast<NormNotice*>(a.peers[r]) + (launch % 2) * a.ranks; };
  for (uint32_t r = 0; r < a.ranks; ++r) store8_packet(&at(r)[a.rank], static_cast<uint64_t>(number) << 32 | a.signature);
  for (uint32_t t = 0; t < a.tokens; ++t) rows.send_input(t);
  bool left = false;
  for (uint32_t r = 0; r < a.ranks && !left && s->apart == 0; ++r) s->apart = differs(a, at(a.rank), r, number, left);
  left = left || s->apart != 0;
  // Rows that this rank owns come first: others wait for them.
  for (uint32_t turn = 0; turn < 2; ++turn) {
    for (uint32_t t = 0; t < a.tokens && !left; ++t) {
      if (rows.at.two() ? (rows.at.owner(t) == a.rank) != (turn == 0) : turn != 0) continue;
      left = !rows.collect(t);
      if (!left) rows.finish(t);
    }
  }
  s->left = left ? 1 : 0;
  s->launches = launch;
}
#endif

}  // namespace inference
}  // namespace mscclpp
#endif  // MSCCLPP_INFERENCE_NORM_HOST_H_
