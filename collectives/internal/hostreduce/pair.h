// Reductions of vectors in memory of the host. Loops are plain, so that compilers
// vectorize them; on x86 they are compiled a second time for AVX2.
#ifndef MSCCLPP_COLLECTIVES_HOSTREDUCE_PAIR_H_
#define MSCCLPP_COLLECTIVES_HOSTREDUCE_PAIR_H_

#include <stdint.h>

// Elements, as package device numbers them. Go compares the numbers.
enum { mscclpp_sum = 0, mscclpp_prod, mscclpp_max, mscclpp_min, mscclpp_scaled, mscclpp_scaled_first };

// to[i] = a[i] op b[i], and divided by `by` if that is not 0. to may be a or b.
// scaled: a + b * scale; scaled_first: a * scale + b * scale. An element of
// 8 bits is divided by a wider number: ranks may be more than it holds.
#define MSCCLPP_PAIR(name, type, divisor) \
  void mscclpp_pair_##name(type* to, const type* a, const type* b, uint64_t n, int op, type scale, divisor by);
MSCCLPP_PAIR(f32, float, float)
MSCCLPP_PAIR(f64, double, double)
MSCCLPP_PAIR(i8, int8_t, int32_t)
MSCCLPP_PAIR(u8, uint8_t, uint32_t)
MSCCLPP_PAIR(i32, int32_t, int32_t)
MSCCLPP_PAIR(u32, uint32_t, uint32_t)
MSCCLPP_PAIR(i64, int64_t, int64_t)
MSCCLPP_PAIR(u64, uint64_t, uint64_t)

// The same of 16-bit floats, computed in 32 bits and rounded once.
void mscclpp_pair_f16(uint16_t* to, const uint16_t* a, const uint16_t* b, uint64_t n, int op, float scale, float by);
void mscclpp_pair_bf16(uint16_t* to, const uint16_t* a, const uint16_t* b, uint64_t n, int op, float scale, float by);

// to[i] = a[i] * scale, in the type that elements are summed in, and rounded to theirs. to may be a.
#define MSCCLPP_SCALE(name, type, factor) void mscclpp_scale_##name(type* to, const type* a, uint64_t n, factor scale);
MSCCLPP_SCALE(f32, float, float)
MSCCLPP_SCALE(f64, double, double)
MSCCLPP_SCALE(f16, uint16_t, float)
MSCCLPP_SCALE(bf16, uint16_t, float)
MSCCLPP_SCALE(u8, uint8_t, uint8_t)
MSCCLPP_SCALE(u32, uint32_t, uint32_t)
MSCCLPP_SCALE(u64, uint64_t, uint64_t)

void mscclpp_widen_f16(float* to, const uint16_t* from, uint64_t n);
void mscclpp_widen_bf16(float* to, const uint16_t* from, uint64_t n);
void mscclpp_narrow_f16(uint16_t* to, const float* from, uint64_t n);
void mscclpp_narrow_bf16(uint16_t* to, const float* from, uint64_t n);
#endif
