// The kernel on a processor: one thread has all rows.
#ifndef MSCCLPP_INFERENCE_NORM_HOST_H_
#define MSCCLPP_INFERENCE_NORM_HOST_H_

#include "norm_places.h"

namespace mscclpp {
namespace inference {

#if MSCCLPP_TARGET_CPU
constexpr uint32_t kPiece = 2048, kLanes = 16;

// complete reports whether packets have arrived.
inline bool complete(const void* packets, size_t bytes) {
  asm volatile("" : : : "memory");
  const uint32_t* w = static_cast<const uint32_t*>(packets);
  for (size_t i = 0; i < bytes / 4; ++i) {
    if (w[i] == kSentinel) return false;
  }
  asm volatile("" : : : "memory");
  return true;
}

template <class T>
struct HostRows {
  static constexpr uint32_t kElements = kPiece / sizeof(T);
  const NormArgs& a;
  Places<kAllFlags> at;
  uint64_t launch;

  HostRows(const NormArgs& args, uint64_t number)
      : a(args), at(args, static_cast<uint64_t>(args.hidden) * sizeof(T)), launch(number) {
    at.set(static_cast<uint32_t>(number));
  }

  char* here(uint64_t place) const { return a.peers[a.rank] + place; }

  bool receive(void* to, char* from, uint32_t peer, uint64_t bytes) const {
    return wait_until(a.control, WaitSite{a.kernel, 0, peer, launch}, [&] { return take(to, from, bytes); });
  }

  void send_input(const Row& r) const {
    if (at.has(kOwnInput)) return;
    for (uint32_t i = 1; i < a.ranks; ++i) {
      const uint32_t to = (a.rank + i) % a.ranks;
      if (!at.two() || r.owner == to) send(a.peers[to] + at.input(a.rank, to, r), at.input_of(r), at.row);
    }
  }

  // The sum of a piece of all ranks, in their order, and the residual.
  bool add(T* sum, const Row& row, uint64_t from, uint64_t bytes) const {
    alignas(64) Accumulator<T> acc[kElements];
    alignas(64) T got[kElements];
    const uint32_t n = static_cast<uint32_t>(bytes / sizeof(T));
    const bool alone = at.has(kOwnInput);
    for (uint32_t r = 0; r < a.ranks; ++r) {
      if (alone && r != a.rank) continue;
      if (r == a.rank) {
        send(got, at.input_of(row) + from, bytes);
      } else if (!receive(got, here(at.input(r, a.rank, row)) + from, r, bytes)) {
        return false;
      }
      if (r == 0 || alone) {
        for (uint32_t e = 0; e < n; ++e) acc[e] = widen_element(got[e]);
      } else {
        for (uint32_t e = 0; e < n; ++e) acc[e] += widen_element(got[e]);
      }
    }
    if (a.residual != nullptr) {
      const T* before = reinterpret_cast<const T*>(a.residual + at.residual_at(row) + from);
      for (uint32_t e = 0; e < n; ++e) acc[e] += widen_element(before[e]);
    }
    for (uint32_t e = 0; e < n; ++e) got[e] = narrow_element<T>(acc[e]);
    send(sum, got, bytes);
    return true;
  }

  void give(const Row& row, uint64_t from, const void* x, uint64_t bytes) const {
    for (uint32_t r = 0; r < a.ranks; ++r) {
      if (r != a.rank) send(a.peers[r] + at.result(r, row) + from, x, bytes);
    }
  }

  // Sums that the caller does not want are where the output comes, or are the input.
  char* sums_of(const Row& row) const {
    if (a.residual_out != nullptr) return a.residual_out + at.residual_at(row);
    if (at.input_is_sum()) return const_cast<char*>(at.input_of(row));
    return a.output + at.output_row(row) * at.row;
  }

  // The row's sums are made here, or come from their owner.
  bool collect(const Row& row) const {
    const bool mine = !at.two() || row.owner == a.rank;
    if (at.input_is_sum()) return true;
    alignas(64) T sum[kElements];
    for (uint64_t from = 0; from < at.row; from += kPiece) {
      const uint64_t bytes = at.row - from < kPiece ? at.row - from : kPiece;
      if (mine) {
        if (!add(sum, row, from, bytes)) return false;
        if (at.two() && !at.outputs()) give(row, from, sum, bytes);
      } else if (!receive(sum, here(at.result(a.rank, row)) + from, row.owner, bytes)) {
        return false;
      }
      __builtin_memcpy(sums_of(row) + from, sum, bytes);
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
  void normal(T* y, const Row& row, uint32_t from, uint32_t to, float mean, float inverse) const {
    const T* x = reinterpret_cast<const T*>(sums_of(row));
    if (at.has(kNoNorm)) {
      for (uint32_t e = from; e < to; ++e) y[e - from] = x[e];
      return;
    }
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
  void pieces(const Row& row, float mean, float inverse, F f) const {
    alignas(64) T y[kElements];
    for (uint32_t from = 0; from < a.hidden; from += kElements) {
      const uint32_t n = a.hidden - from < kElements ? a.hidden - from : kElements;
      normal(y, row, from, from + n, mean, inverse);
      f(y, from, n);
    }
  }

  void finish(const Row& row) const {
    const T* x = reinterpret_cast<const T*>(sums_of(row));
    const float count = static_cast<float>(a.hidden);
    float mean = 0, squares = 0, inverse = 1;
    if (at.has(kLayerNorm)) {
      mean = total(x, [](float v) { return v; }) / count;
      squares = total(x, [mean](float v) { return (v - mean) * (v - mean); });
    } else if (!at.has(kNoNorm)) {
      squares = total(x, [](float v) { return v * v; });
    }
    if (!at.has(kNoNorm)) inverse = 1.0f / __builtin_sqrtf(squares / count + a.epsilon);
    const bool sends = at.outputs() && !at.has(kOwnOutput);
    if (sends && !sent_small(a.quantized)) {
      pieces(row, mean, inverse, [&](const T* y, uint32_t from, uint32_t n) { give(row, from * sizeof(T), y, n * sizeof(T)); });
    }
    if (a.quantized == kNotQuantized) {
      // The piece between, since the output may be the memory of the input.
      char* out = a.output + at.output_row(row) * at.row;
      pieces(row, mean, inverse, [out](const T* y, uint32_t from, uint32_t n) { __builtin_memcpy(out + from * sizeof(T), y, n * sizeof(T)); });
      return;
    }
    float largest = 0;
    if (per_token(a.quantized)) {
      pieces(row, mean, inverse, [&largest](const T* y, uint32_t, uint32_t n) {
        for (uint32_t e = 0; e < n; ++e) largest = larger(largest, magnitude(widen_element(y[e])));
      });
    }
    const float scale = scale_for(row, largest), by = 1.0f / scale;
    uint8_t* out = reinterpret_cast<uint8_t*>(a.output) + at.output_row(row) * a.hidden;
    const uint32_t kind = a.quantized;
    pieces(row, mean, inverse, [out, by, kind](const T* y, uint32_t from, uint32_t n) {
      for (uint32_t e = 0; e < n; ++e) out[from + e] = quantize(widen_element(y[e]), by, kind);
    });
    if (sends && sent_small(kind)) give_small(row, out, scale);
  }

  float scale_for(const Row& row, float largest) const {
    if (!per_token(a.quantized)) return *a.scale;
    return a.scales[at.output_row(row)] = scale_of(largest, top_of(a.quantized));
  }

  // Bytes, four of which may be the sentinel, too.
  void give_small(const Row& row, const uint8_t* bytes, float scale) const {
    for (uint32_t r = 0; r < a.ranks; ++r) {
      if (r == a.rank) continue;
      char* to = a.peers[r] + at.result(r, row);
      for (uint32_t e = 0; e < a.hidden; e += 4) {
        uint32_t w;
        __builtin_memcpy(&w, bytes + e, 4);
        store_relaxed(reinterpret_cast<uint32_t*>(to + e), w == kSentinel ? kOtherE4M3 : w);
      }
      if (per_token(a.quantized)) send(to + at.row, &scale, sizeof scale);
    }
  }

  // The output of a row that another rank owns.
  bool accept(const Row& row) const {
    char* from = here(at.result(a.rank, row));
    if (sent_small(a.quantized)) {
      if (!receive(a.output + at.output_row(row) * a.hidden, from, row.owner, a.hidden)) return false;
      return !per_token(a.quantized) || receive(&a.scales[at.output_row(row)], from + at.row, row.owner, sizeof(float));
    }
    if (a.quantized == kNotQuantized) return receive(a.output + at.output_row(row) * at.row, from, row.owner, at.row);
    float largest = 0;
    if (!wait_until(a.control, WaitSite{a.kernel, 0, row.owner, launch}, [&] { return complete(from, at.row); })) return false;
    const T* y = reinterpret_cast<const T*>(from);
    for (uint32_t e = 0; e < a.hidden; ++e) largest = larger(largest, magnitude(widen_element(y[e])));
    const float by = 1.0f / scale_for(row, largest);
    uint8_t* out = reinterpret_cast<uint8_t*>(a.output) + at.output_row(row) * a.hidden;
    for (uint32_t e = 0; e < a.hidden; ++e) out[e] = quantize(widen_element(y[e]), by, a.quantized);
    __builtin_memset(from, 0xff, at.row);
    return true;
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
  const uint32_t number = static_cast<uint32_t>(launch), works = Places<kAllFlags>(a, 0).works();
  const HostRows<T> rows(a, launch);
  fence_system();  // the last launch has cleared packets before this one sends
  const auto at = [&a, launch](uint32_t r) { return reinterpret_cast<NormNotice*>(a.peers[r]) + (launch % 2) * a.ranks; };
  for (uint32_t r = 0; r < a.ranks; ++r) store8_packet(&at(r)[a.rank], static_cast<uint64_t>(number) << 32 | a.signature);
  Row row;
  for (uint32_t w = 0; w < works; ++w) {
    if (rows.at.work(w, &row)) rows.send_input(row);
  }
  bool left = false;
  for (uint32_t r = 0; r < a.ranks && !left && s->apart == 0; ++r) s->apart = differs(a, at(a.rank), r, number, left);
  left = left || s->apart != 0;
  // Rows that this rank owns come first: others wait for them.
  for (uint32_t turn = 0; turn < 2; ++turn) {
    for (uint32_t w = 0; w < works && !left; ++w) {
      if (!rows.at.work(w, &row) || (row.owner == a.rank) != (turn == 0)) continue;
      if (turn != 0 && rows.at.outputs()) {
        left = !rows.at.has(kOwnOutput) && !rows.accept(row);
        continue;
      }
      left = !rows.collect(row);
      if (!left) rows.finish(row);
    }
  }
  s->left = left ? 1 : 0;
  s->launches = launch;
}
#endif

}  // namespace inference
}  // namespace mscclpp
#endif  // MSCCLPP_INFERENCE_NORM_HOST_H_
