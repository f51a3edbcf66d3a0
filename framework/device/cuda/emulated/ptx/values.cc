#include "values.h"

#include <math.h>

namespace ptx {
namespace {

// A float of so many bits; the largest exponent has numbers too where finite says so.
double decode(uint32_t bits, int exponent_bits, int mantissa_bits, bool finite) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const uint32_t mantissa = bits & ((1u << mantissa_bits) - 1);
  const int exponent = static_cast<int>(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const double sign = (bits >> (mantissa_bits + exponent_bits)) & 1 ? -1 : 1;
  if (!finite && exponent == (1 << exponent_bits) - 1) return mantissa != 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * ldexp(mantissa + (1u << mantissa_bits), exponent - bias - mantissa_bits);
}

// The bits of the magnitude nearest to v >= 0, without regard to its range.
uint32_t encode(double v, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  int exponent = v == 0 ? 1 - bias : ilogb(v);
  if (exponent < 1 - bias) exponent = 1 - bias;
  const double units = nearbyint(ldexp(v, mantissa_bits - exponent));
  // A carry into the exponent, and the step from subnormal to normal, come out by themselves.
  return static_cast<uint32_t>(units) + (static_cast<uint32_t>(exponent + bias - 1) << mantissa_bits);
}

}  // namespace

double half_value(uint32_t bits) { return decode(bits & 0xffff, 5, 10, false); }
double bfloat_value(uint32_t bits) { return decode(bits & 0xffff, 8, 7, false); }
double e5m2_value(uint32_t bits) { return decode(bits & 0xff, 5, 2, false); }
double e4m3_value(uint32_t bits) { return (bits & 0x7f) == 0x7f ? NAN : decode(bits & 0xff, 4, 3, true); }

uint32_t half_bits(double v) {
  if (v != v) return 0x7fff;
  const uint32_t sign = signbit(v) ? 0x8000 : 0;
  v = fabs(v);
  if (v >= 65520) return sign | 0x7c00;
  return sign | encode(v, 5, 10);
}

uint32_t bfloat_bits(double v) {
  if (v != v) return 0x7fff;
  const uint32_t x = static_cast<uint32_t>(bits(static_cast<float>(v)));
  return (x + 0x7fff + (x >> 16 & 1)) >> 16;
}

uint32_t e4m3_bits(double v) {
  if (v != v) return 0x7f;
  const uint32_t sign = signbit(v) ? 0x80 : 0;
  v = fabs(v);
  return sign | (v >= 448 ? 0x7e : encode(v, 4, 3));
}

uint32_t e5m2_bits(double v) {
  if (v != v) return 0x7f;
  const uint32_t sign = signbit(v) ? 0x80 : 0;
  v = fabs(v);
  return sign | (v >= 57344 ? 0x7b : encode(v, 5, 2));
}

}  // namespace ptx
