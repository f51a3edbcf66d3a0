#include "types.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

static const struct {
  const char* name;
  int size;
} types[ncclNumTypes] = {
    [ncclInt8] = {"ncclInt8", 1},         [ncclUint8] = {"ncclUint8", 1},     [ncclInt32] = {"ncclInt32", 4},
    [ncclUint32] = {"ncclUint32", 4},     [ncclInt64] = {"ncclInt64", 8},     [ncclUint64] = {"ncclUint64", 8},
    [ncclFloat16] = {"ncclFloat16", 2},   [ncclFloat32] = {"ncclFloat32", 4}, [ncclFloat64] = {"ncclFloat64", 8},
    [ncclBfloat16] = {"ncclBfloat16", 2}, [ncclFloat8e4m3] = {"ncclFloat8e4m3", 1},
    [ncclFloat8e5m2] = {"ncclFloat8e5m2", 1},
};

int type_size(ncclDataType_t t) { return (unsigned)t < ncclNumTypes ? types[t].size : 0; }

const char* type_name(ncclDataType_t t) { return (unsigned)t < ncclNumTypes ? types[t].name : "unknown"; }

/* two_to returns 2^e, for exponents of normal numbers. ldexp would be the one function of libm here, and mapping
 * that library costs a preloaded process more than mapping this one. */
static double two_to(int e) {
  uint64_t bits = (uint64_t)(1023 + e) << 52;
  double v;
  memcpy(&v, &bits, sizeof v);
  return v;
}

/* small reads a float of fewer bits: sign, exponent, mantissa. */
static double small(unsigned bits, int exponent, int mantissa, int has_infinity) {
  int sign = bits >> (exponent + mantissa) & 1, e = bits >> mantissa & ((1 << exponent) - 1);
  int m = bits & ((1 << mantissa) - 1), bias = (1 << (exponent - 1)) - 1, top = (1 << exponent) - 1;
  double v;
  if (e == top && has_infinity)
    v = m ? NAN : INFINITY;
  else if (e == top && m == (1 << mantissa) - 1)
    v = NAN; /* e4m3 has no infinity, and one NaN */
  else if (e == 0)
    v = m * two_to(1 - bias - mantissa);
  else
    v = (m + (1 << mantissa)) * two_to(e - bias - mantissa);
  return sign ? -v : v;
}

#define READ(type)                  \
  {                                 \
    type v;                         \
    memcpy(&v, at, sizeof v);       \
    return (double)v;               \
  }

double type_read(ncclDataType_t t, const void* at) {
  switch ((int)t) {
    case ncclInt8: READ(int8_t)
    case ncclUint8: READ(uint8_t)
    case ncclInt32: READ(int32_t)
    case ncclUint32: READ(uint32_t)
    case ncclInt64: READ(int64_t)
    case ncclUint64: READ(uint64_t)
    case ncclFloat32: READ(float)
    case ncclFloat64: READ(double)
    case ncclFloat16: {
      uint16_t v;
      memcpy(&v, at, sizeof v);
      return small(v, 5, 10, 1);
    }
    case ncclBfloat16: {
      uint16_t v;
      memcpy(&v, at, sizeof v);
      return small(v, 8, 7, 1);
    }
    case ncclFloat8e4m3: return small(*(const uint8_t*)at, 4, 3, 0);
    case ncclFloat8e5m2: return small(*(const uint8_t*)at, 5, 2, 1);
  }
  return 0;
}
