// cvt: between integers of all widths, and to and from floats.
#include <math.h>

#include <limits>

#include "forms.h"
#include "machine.h"
#include "values.h"

namespace ptx {
namespace {

// A signed result fills its register, which may be wider.
template <class D>
uint64_t widened(D v, int width) {
  if constexpr (std::is_integral_v<D> && std::is_signed_v<D>) {
    const uint64_t all = static_cast<uint64_t>(static_cast<int64_t>(v));
    return width >= 64 ? all : all & ((1ull << width) - 1);
  } else {
    return bits(v);
  }
}

// To integers: towards zero, into the range of the type, NaN to 0.
template <class D, class S>
D converted(S v) {
  if constexpr (std::is_floating_point_v<S> && std::is_integral_v<D>) {
    if (v != v) return 0;
    const double t = trunc(static_cast<double>(v));
    if (t <= static_cast<double>(std::numeric_limits<D>::min())) return std::numeric_limits<D>::min();
    if (t >= static_cast<double>(std::numeric_limits<D>::max())) return std::numeric_limits<D>::max();
    return static_cast<D>(t);
  } else {
    return static_cast<D>(v);
  }
}

template <class D, class S>
void convert(Warp& w, const Instruction& i, uint32_t lanes) {
  const Source a = source(w, i.a);
  uint64_t* d = target(w, i.d);
  const uint32_t u = undefined(w, i.a);
  each_lane(lanes, [&](uint32_t l) { d[l] = widened(converted<D>(value<S>(a[l])), i.width); });
  define(w, i.d, lanes, u);
}

template <class F>
void by_value(Warp& w, const Instruction& i, uint32_t lanes, F f) {
  const Source a = source(w, i.a);
  uint64_t* d = target(w, i.d);
  const uint32_t u = undefined(w, i.a);
  each_lane(lanes, [&](uint32_t l) { d[l] = f(a[l]); });
  define(w, i.d, lanes, u);
}

void half_to_float(Warp& w, const Instruction& i, uint32_t lanes) {
  by_value(w, i, lanes, [](uint64_t v) { return bits(static_cast<float>(half_value(static_cast<uint32_t>(v)))); });
}
void float_to_half(Warp& w, const Instruction& i, uint32_t lanes) {
  by_value(w, i, lanes, [](uint64_t v) -> uint64_t { return half_bits(value<float>(v)); });
}
void to_whole(Warp& w, const Instruction& i, uint32_t lanes) {
  by_value(w, i, lanes, [](uint64_t v) { return bits(rintf(value<float>(v))); });
}
template <double (*kValue)(uint32_t)>
void bytes_to_halves(Warp& w, const Instruction& i, uint32_t lanes) {
  by_value(w, i, lanes, [](uint64_t v) -> uint64_t {
    return half_bits(kValue(v & 255)) | static_cast<uint64_t>(half_bits(kValue((v >> 8) & 255))) << 16;
  });
}
// The first operand is the upper half.
template <uint32_t (*kBits)(double), int kWidth>
void floats_to_pair(Warp& w, const Instruction& i, uint32_t lanes) {
  const Source a = source(w, i.a), b = source(w, i.b);
  uint64_t* d = target(w, i.d);
  const uint32_t u = undefined(w, i.a) | undefined(w, i.b);
  each_lane(lanes, [&](uint32_t l) { d[l] = static_cast<uint64_t>(kBits(value<float>(a[l]))) << kWidth | kBits(value<float>(b[l])); });
  define(w, i.d, lanes, u);
}

template <class D, class S>
void put(Forms& f, const char* name) { f[std::string("cvt.") + name] = {convert<D, S>, Kind::kPlain, Type::kNone, Type::kB8}; }

}  // namespace

void add_conversions(Forms* forms) {
  Forms& f = *forms;
  put<uint64_t, uint32_t>(f, "u64.u32"), put<uint32_t, uint64_t>(f, "u32.u64"), put<uint16_t, uint32_t>(f, "u16.u32");
  put<uint32_t, uint16_t>(f, "u32.u16"), put<uint64_t, uint16_t>(f, "u64.u16"), put<uint16_t, uint64_t>(f, "u16.u64");
  put<int16_t, int8_t>(f, "s16.s8"), put<int32_t, int8_t>(f, "s32.s8"), put<int8_t, int32_t>(f, "s8.s32");
  put<int64_t, int32_t>(f, "s64.s32"), put<int32_t, int16_t>(f, "s32.s16"), put<int64_t, int16_t>(f, "s64.s16");
  put<float, uint32_t>(f, "rn.f32.u32"), put<float, uint16_t>(f, "rn.f32.u16"), put<float, int32_t>(f, "rn.f32.s32");
  put<double, uint16_t>(f, "rn.f64.u16"), put<double, uint32_t>(f, "rn.f64.u32"), put<double, int32_t>(f, "rn.f64.s32"), put<double, uint64_t>(f, "rn.f64.u64");
  put<float, double>(f, "rn.f32.f64"), put<double, float>(f, "f64.f32");
  put<int32_t, float>(f, "rzi.s32.f32");
  put<int16_t, double>(f, "rzi.s16.f64"), put<int32_t, double>(f, "rzi.s32.f64"), put<int64_t, double>(f, "rzi.s64.f64");
  put<uint16_t, double>(f, "rzi.u16.f64"), put<uint32_t, double>(f, "rzi.u32.f64"), put<uint64_t, double>(f, "rzi.u64.f64");
  const auto special = [&f](const char* name, Handler run) { f[std::string("cvt.") + name] = {run, Kind::kPlain, Type::kNone, Type::kB8}; };
  special("f32.f16", half_to_float), special("rn.f16.f32", float_to_half);
  special("rn.f16x2.e4m3x2", bytes_to_halves<e4m3_value>), special("rn.f16x2.e5m2x2", bytes_to_halves<e5m2_value>);
  special("rn.satfinite.e4m3x2.f32", floats_to_pair<e4m3_bits, 8>), special("rn.satfinite.e5m2x2.f32", floats_to_pair<e5m2_bits, 8>);
  special("rni.f32.f32", to_whole), special("rn.f16x2.f32", floats_to_pair<half_bits, 16>);
  special("rn.bf16x2.f32", floats_to_pair<bfloat_bits, 16>);
}

}  // namespace ptx
