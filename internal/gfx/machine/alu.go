package machine

import (
	"math/bits"
)

func value(f func(a, b, c uint64) uint64) *alu { return &alu{value: f} }

func test(f func(a, b uint64) bool) *alu { return &alu{compare: f} }

func carry(f func(a, b, c uint64) (uint64, bool)) *alu { return &alu{carry: f} }

func i16(a uint64) int16 { return int16(uint16(a)) }

// i24 is the number in the low 24 bits.
func i24(a uint64) int64 { return int64(a<<40) >> 40 }

func u32(a uint64) uint64 { return uint64(uint32(a)) }

// alus are the operations that each lane does for itself.
var alus = func() map[string]*alu {
	all := map[string]*alu{}
	for _, of := range []map[string]*alu{integers, words, shifts, wides, tests, floatOps} {
		for name, a := range of {
			all[name] = a
		}
	}
	return all
}()

var integers = map[string]*alu{
	"v_mov_b32":        value(func(a, _, _ uint64) uint64 { return a }),
	"v_mov_b64":        value(func(a, _, _ uint64) uint64 { return a }),
	"v_not_b32":        value(func(a, _, _ uint64) uint64 { return ^a }),
	"v_bfrev_b32":      value(func(a, _, _ uint64) uint64 { return uint64(bits.Reverse32(uint32(a))) }),
	"v_and_b32":        value(func(a, b, _ uint64) uint64 { return a & b }),
	"v_or_b32":         value(func(a, b, _ uint64) uint64 { return a | b }),
	"v_xor_b32":        value(func(a, b, _ uint64) uint64 { return a ^ b }),
	"v_or3_b32":        value(func(a, b, c uint64) uint64 { return a | b | c }),
	"v_and_or_b32":     value(func(a, b, c uint64) uint64 { return a&b | c }),
	"v_add_u32":        value(func(a, b, _ uint64) uint64 { return a + b }),
	"v_subrev_u32":     value(func(a, b, _ uint64) uint64 { return b - a }),
	"v_xad_u32":        value(func(a, b, c uint64) uint64 { return (a ^ b) + c }),
	"v_add3_u32":       value(func(a, b, c uint64) uint64 { return a + b + c }),
	"v_mul_lo_u32":     value(func(a, b, _ uint64) uint64 { return a * b }),
	"v_mul_i32_i24":    value(func(a, b, _ uint64) uint64 { return uint64(uint32(i24(a) * i24(b))) }),
	"v_mul_hi_i32_i24": value(func(a, b, _ uint64) uint64 { return uint64(uint32(i24(a) * i24(b) >> 32)) }),
	"v_mul_u32_u24":    value(func(a, b, _ uint64) uint64 { return (a & 0xffffff) * (b & 0xffffff) }),
	"v_mul_hi_u32":     value(func(a, b, _ uint64) uint64 { return u32(a) * u32(b) >> 32 }),
	"v_min_u32":        value(func(a, b, _ uint64) uint64 { return min(a, b) }),
	"v_max_u32":        value(func(a, b, _ uint64) uint64 { return max(a, b) }),
	"v_max3_u32":       value(func(a, b, c uint64) uint64 { return max(a, b, c) }),
	"v_min_i32":        value(func(a, b, _ uint64) uint64 { return uint64(uint32(min(i32(a), i32(b)))) }),
	"v_max_i32":        value(func(a, b, _ uint64) uint64 { return uint64(uint32(max(i32(a), i32(b)))) }),
	"v_cndmask_b32":    value(func(a, b, c uint64) uint64 { return pick(c, b, a) }),

	"v_add_co_u32":     carry(func(a, b, _ uint64) (uint64, bool) { return a + b, a+b > 0xffffffff }),
	"v_sub_co_u32":     carry(func(a, b, _ uint64) (uint64, bool) { return a - b, b > a }),
	"v_subrev_co_u32":  carry(func(a, b, _ uint64) (uint64, bool) { return b - a, a > b }),
	"v_addc_co_u32":    carry(func(a, b, c uint64) (uint64, bool) { return a + b + c, a+b+c > 0xffffffff }),
	"v_subb_co_u32":    carry(func(a, b, c uint64) (uint64, bool) { return a - b - c, b+c > a }),
	"v_subbrev_co_u32": carry(func(a, b, c uint64) (uint64, bool) { return b - a - c, a+c > b }),

	"v_bfe_u32": value(func(a, b, c uint64) uint64 { return a >> (b & 31) & (1<<(c&31) - 1) }),
	"v_perm_b32": value(func(a, b, c uint64) uint64 {
		data, out := a<<32|b, uint64(0)
		for i := range 4 {
			out |= permuted(data, c>>(8*i)&0xff) << (8 * i)
		}
		return out
	}),
}

// permuted is the byte that v_perm_b32 selects.
func permuted(data, selector uint64) uint64 {
	switch {
	case selector < 8:
		return data >> (8 * selector) & 0xff
	case selector < 12: // the sign of a half
		return (data >> (16*(selector-8) + 15) & 1) * 0xff
	case selector == 12:
		return 0
	}
	return 0xff
}

func pick(c, yes, no uint64) uint64 {
	if c != 0 {
		return yes
	}
	return no
}

// words are operations on 16 bits, which set the other half of the result to 0.
var words = map[string]*alu{
	"v_add_u16":     value(func(a, b, _ uint64) uint64 { return (a + b) & 0xffff }),
	"v_sub_u16":     value(func(a, b, _ uint64) uint64 { return (a - b) & 0xffff }),
	"v_mul_lo_u16":  value(func(a, b, _ uint64) uint64 { return a * b & 0xffff }),
	"v_lshlrev_b16": value(func(a, b, _ uint64) uint64 { return b << (a & 15) & 0xffff }),
	"v_lshrrev_b16": value(func(a, b, _ uint64) uint64 { return b >> (a & 15) & 0xffff }),
	"v_min_u16":     value(func(a, b, _ uint64) uint64 { return min(a, b) }),
	"v_max_u16":     value(func(a, b, _ uint64) uint64 { return max(a, b) }),
	"v_min_i16":     value(func(a, b, _ uint64) uint64 { return uint64(uint16(min(i16(a), i16(b)))) }),
	"v_max_i16":     value(func(a, b, _ uint64) uint64 { return uint64(uint16(max(i16(a), i16(b)))) }),
}

var shifts = map[string]*alu{
	"v_lshlrev_b32":  value(func(a, b, _ uint64) uint64 { return b << (a & 31) }),
	"v_lshrrev_b32":  value(func(a, b, _ uint64) uint64 { return u32(b) >> (a & 31) }),
	"v_ashrrev_i32":  value(func(a, b, _ uint64) uint64 { return uint64(uint32(i32(b) >> (a & 31))) }),
	"v_lshlrev_b64":  value(func(a, b, _ uint64) uint64 { return b << (a & 63) }),
	"v_lshrrev_b64":  value(func(a, b, _ uint64) uint64 { return b >> (a & 63) }),
	"v_lshl_add_u32": value(func(a, b, c uint64) uint64 { return a<<(b&31) + c }),
	"v_add_lshl_u32": value(func(a, b, c uint64) uint64 { return (a + b) << (c & 31) }),
	"v_lshl_or_b32":  value(func(a, b, c uint64) uint64 { return a<<(b&31) | c }),
	"v_lshl_add_u64": value(func(a, b, c uint64) uint64 { return a<<(b&7) + c }),
	"v_alignbit_b32": value(func(a, b, c uint64) uint64 { return (a<<32 | b) >> (c & 31) }),
}

var wides = map[string]*alu{
	"v_mad_u64_u32": carry(func(a, b, c uint64) (uint64, bool) {
		r := a*b + c
		return r, r < c
	}),
	"v_mad_i64_i32": carry(func(a, b, c uint64) (uint64, bool) {
		p := int64(i32(a)) * int64(i32(b))
		r := p + int64(c)
		return uint64(r), (p < 0) == (int64(c) < 0) && (r < 0) != (p < 0)
	}),
}

var tests = map[string]*alu{
	"v_cmp_lt_u16": test(func(a, b uint64) bool { return a < b }),
	"v_cmp_eq_u16": test(func(a, b uint64) bool { return a == b }),
	"v_cmp_gt_u16": test(func(a, b uint64) bool { return a > b }),
	"v_cmp_ge_u16": test(func(a, b uint64) bool { return a >= b }),
	"v_cmp_lt_i16": test(func(a, b uint64) bool { return i16(a) < i16(b) }),
	"v_cmp_ne_u16": test(func(a, b uint64) bool { return a != b }),

	"v_cmp_lt_i32": test(func(a, b uint64) bool { return i32(a) < i32(b) }),
	"v_cmp_gt_i32": test(func(a, b uint64) bool { return i32(a) > i32(b) }),
	"v_cmp_lt_u32": test(func(a, b uint64) bool { return a < b }),
	"v_cmp_eq_u32": test(func(a, b uint64) bool { return a == b }),
	"v_cmp_le_u32": test(func(a, b uint64) bool { return a <= b }),
	"v_cmp_gt_u32": test(func(a, b uint64) bool { return a > b }),
	"v_cmp_ne_u32": test(func(a, b uint64) bool { return a != b }),
	"v_cmp_ge_u32": test(func(a, b uint64) bool { return a >= b }),

	"v_cmp_lt_i64": test(func(a, b uint64) bool { return int64(a) < int64(b) }),
	"v_cmp_gt_i64": test(func(a, b uint64) bool { return int64(a) > int64(b) }),
	"v_cmp_lt_u64": test(func(a, b uint64) bool { return a < b }),
	"v_cmp_eq_u64": test(func(a, b uint64) bool { return a == b }),
	"v_cmp_le_u64": test(func(a, b uint64) bool { return a <= b }),
	"v_cmp_gt_u64": test(func(a, b uint64) bool { return a > b }),
	"v_cmp_ne_u64": test(func(a, b uint64) bool { return a != b }),
	"v_cmp_ge_u64": test(func(a, b uint64) bool { return a >= b }),

	"v_cmp_lt_f16":  test(func(a, b uint64) bool { return f16(a) < f16(b) }),
	"v_cmp_gt_f16":  test(func(a, b uint64) bool { return f16(a) > f16(b) }),
	"v_cmp_u_f16":   test(func(a, b uint64) bool { return f16(a) != f16(a) || f16(b) != f16(b) }),
	"v_cmp_ge_f32":  test(func(a, b uint64) bool { return f32(a) >= f32(b) }),
	"v_cmp_lt_f32":  test(func(a, b uint64) bool { return f32(a) < f32(b) }),
	"v_cmp_gt_f32":  test(func(a, b uint64) bool { return f32(a) > f32(b) }),
	"v_cmp_u_f32":   test(func(a, b uint64) bool { return f32(a) != f32(a) || f32(b) != f32(b) }),
	"v_cmp_ngt_f32": test(func(a, b uint64) bool { return !(f32(a) > f32(b)) }),
	"v_cmp_nlt_f32": test(func(a, b uint64) bool { return !(f32(a) < f32(b)) }),
	"v_cmp_lt_f64":  test(func(a, b uint64) bool { return f64(a) < f64(b) }),
	"v_cmp_gt_f64":  test(func(a, b uint64) bool { return f64(a) > f64(b) }),
	"v_cmp_u_f64":   test(func(a, b uint64) bool { return f64(a) != f64(a) || f64(b) != f64(b) }),
	"v_cmp_nlg_f64": test(func(a, b uint64) bool { return !(f64(a) < f64(b) || f64(a) > f64(b)) }),
}
