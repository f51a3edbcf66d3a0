// Where rows and packets are, and what their elements become.
#ifndef MSCCLPP_INFERENCE_NORM_PLACES_H_
#define MSCCLPP_INFERENCE_NORM_PLACES_H_

#include "norm_args.h"
#include "rounded.h"
#include "sentinel.h"
#include "team.h"

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
#if MSCCLPP_TARGET_CPU
inline float larger(float a, float b) { return a > b ? a : b; }
#endif

MSCCLPP_DEVICE uint8_t rounded_int8(float q) {
  const float bounded = q > 127.0f ? 127.0f : q < -128.0f ? -128.0f : q;
  return static_cast<uint8_t>(static_cast<int8_t>(static_cast<int32_t>(__builtin_rintf(bounded))));
}
MSCCLPP_DEVICE uint8_t quantize(float y, float inverse, uint32_t quantized) {
  return quantized <= kE4M3PerTensor ? from_float<e4m3>(y * inverse).bits : rounded_int8(y * inverse);
}
// Four elements at once, which are divided by their scale already.
MSCCLPP_DEVICE uint32_t quantized_four(const float* q, uint32_t quantized) {
  if (quantized <= kE4M3PerTensor) return rounded_e4m3(q[0], q[1], q[2], q[3]);
  return static_cast<uint32_t>(rounded_int8(q[3])) << 24 | static_cast<uint32_t>(rounded_int8(q[2])) << 16 | static_cast<uint32_t>(rounded_int8(q[1])) << 8 | rounded_int8(q[0]);
}

// Four elements of e4m3 that are a NaN, instead of those that look like the sentinel.
constexpr uint32_t kOtherE4M3 = 0x7f7f7f7fu;

// A row: its number, that of its owner, and how many rows the owner has before it.
struct Row {
  uint32_t token, owner, local;
};

// The flags of calls whose output has all rows: not quantized, or quantized to e4m3 per token behind RMSNorm without a bias. Code for those
// alone takes fewer registers and instructions.
constexpr uint32_t kOfE4M3 = 1u << 31, kWholeRows = kTwoShot | kLayerNorm | kNoNorm, kE4M3Rows = kTwoShot | kOfE4M3, kAllFlags = ~0u;

// Where packets are. Ranks do not send to themselves.
template <uint32_t kFlags>
struct Places {
  const NormArgs& a;
  uint64_t row;       // bytes
  uint64_t half = 0;  // where the launch's half begins

  MSCCLPP_DEVICE Places(const NormArgs& args, uint64_t bytes) : a(args), row(bytes) {}
  MSCCLPP_DEVICE void set(uint32_t launch) { half = a.notices + (launch % 2 == 0 ? a.half : 0); }

  MSCCLPP_DEVICE bool has(uint32_t flag) const { return (a.flags & kFlags & flag) != 0; }
  MSCCLPP_DEVICE uint32_t quantized() const {
    return kFlags == kAllFlags ? a.quantized : static_cast<uint32_t>(kFlags == kE4M3Rows ? kE4M3PerToken : kNotQuantized);
  }
  MSCCLPP_DEVICE bool biased() const { return kFlags != kE4M3Rows && a.bias != nullptr; }
  MSCCLPP_DEVICE bool two() const { return has(kTwoShot); }
  // The caller does not want the sums, which are the input.
  MSCCLPP_DEVICE bool input_is_sum() const { return has(kOwnInput) && a.residual == nullptr && a.residual_out == nullptr; }
  // Owners send outputs, and not sums.
  MSCCLPP_DEVICE bool outputs() const { return has(kOwnResidual); }

  // Work of a launch: rows, those of the rank and of other owners by turns.
  MSCCLPP_DEVICE uint32_t works() const { return two() ? a.count * a.ranks : a.count; }
  MSCCLPP_DEVICE bool work(uint32_t w, Row* out) const {
    if (!two()) {
      *out = Row{a.first + w, a.rank, a.first + w};
      return true;
    }
    uint32_t owner = a.rank + w % a.ranks;
    if (owner >= a.ranks) owner -= a.ranks;
    const uint32_t local = a.first + w / a.ranks;
    *out = Row{owner * a.share + local, owner, local};
    return local < a.share && out->token < a.tokens;
  }

  // Rank `to` has the input of rank `from` there.
  MSCCLPP_DEVICE uint64_t input(uint32_t from, uint32_t to, const Row& r) const {
    const uint64_t slot = from < to ? from : from - 1;
    return half + (slot * a.count + (r.local - a.first)) * row;
  }
  // Rank `to` has there what the row's owner sends: a row, and a packet for a scale.
  MSCCLPP_DEVICE uint64_t result(uint32_t to, const Row& r) const {
    const uint64_t slot = r.owner < to ? r.owner : r.owner - 1, inputs = static_cast<uint64_t>(a.ranks - 1) * a.count;
    return half + inputs * row + (slot * a.count + (r.local - a.first)) * (row + 16);
  }

  MSCCLPP_DEVICE const char* input_of(const Row& r) const { return a.input + (has(kOwnInput) ? r.local : r.token) * row; }
  MSCCLPP_DEVICE uint64_t residual_at(const Row& r) const { return (has(kOwnResidual) ? r.local : r.token) * row; }
  MSCCLPP_DEVICE uint64_t output_row(const Row& r) const { return has(kOwnOutput) ? r.local : r.token; }
};

// A quantized row is sent as it is. Integers may be anything, also the sentinel: they are made of the row by its receivers.
MSCCLPP_DEVICE bool sent_small(uint32_t quantized) { return quantized == kE4M3PerToken || quantized == kE4M3PerTensor; }

}  // namespace inference
}  // namespace mscclpp
#endif  // MSCCLPP_INFERENCE_NORM_PLACES_H_
