// Values of registers: all have 64 bits, and what a type does not use is zero.
#ifndef EMULATED_PTX_VALUES_H_
#define EMULATED_PTX_VALUES_H_

#include <stdint.h>
#include <string.h>

#include <type_traits>

namespace ptx {

template <class T>
inline T value(uint64_t bits) {
  if constexpr (std::is_same_v<T, float>) {
    const uint32_t low = static_cast<uint32_t>(bits);
    float f;
    memcpy(&f, &low, 4);
    return f;
  } else if constexpr (std::is_same_v<T, double>) {
    double d;
    memcpy(&d, &bits, 8);
    return d;
  } else if constexpr (std::is_same_v<T, bool>) {
    return (bits & 1) != 0;
  } else {
    return static_cast<T>(bits);
  }
}

template <class T>
inline uint64_t bits(T v) {
  if constexpr (std::is_same_v<T, float>) {
    if (v != v) return 0x7fffffff;  // the one NaN that results of instructions have
    uint32_t low;
    memcpy(&low, &v, 4);
    return low;
  } else if constexpr (std::is_same_v<T, double>) {
    uint64_t all;
    memcpy(&all, &v, 8);
    return all;
  } else if constexpr (std::is_same_v<T, bool>) {
    return v;
  } else {
    return static_cast<std::make_unsigned_t<T>>(v);
  }
}

// Small floats, by bits.
double half_value(uint32_t bits);        // f16
double bfloat_value(uint32_t bits);
double e4m3_value(uint32_t bits);
double e5m2_value(uint32_t bits);
uint32_t half_bits(double v);            // to nearest even; exact for a v that is a float
uint32_t bfloat_bits(double v);          // the same
uint32_t e4m3_bits(double v);            // saturating
uint32_t e5m2_bits(double v);

}  // namespace ptx

#endif  // EMULATED_PTX_VALUES_H_
