package machine

import (
	"math"
)

func f32(a uint64) float32 { return math.Float32frombits(uint32(a)) }

// f16 is a number of 16 bits, which all fit into 32.
func f16(a uint64) float32 { return f32(f16ToF32(a & 0xffff)) }

func f64(a uint64) float64 { return math.Float64frombits(a) }

func from32(f float32) uint64 { return uint64(math.Float32bits(f)) }

func from64(f float64) uint64 { return math.Float64bits(f) }

func addF32(a, b, _ uint64) uint64 { return from32(f32(a) + f32(b)) }

func mulF32(a, b, _ uint64) uint64 { return from32(f32(a) * f32(b)) }

// maxF32 is the other number where one is none, but for one that signals: that becomes quiet. Of two zeros it is the one without a sign.
func maxF32(a, b, _ uint64) uint64 {
	const quiet = 1 << 22
	x, y := f32(a), f32(b)
	switch {
	case x != x && a&quiet == 0:
		return a | quiet
	case y != y && b&quiet == 0:
		return b | quiet
	case x != x:
		return b
	case y != y:
		return a
	}
	return from32(max(x, y))
}

// fmaF32 rounds once. The product is exact in 64 bits, and their sum is rounded to odd, so that the second rounding
// does not see a tie that there was none of.
func fmaF32(a, b, c uint64) uint64 {
	p, x := float64(f32(a))*float64(f32(b)), float64(f32(c))
	s := p + x
	if math.IsInf(s, 0) || math.IsNaN(s) {
		return from32(float32(s))
	}
	v := s - p
	lost := (p - (s - v)) + (x - v)
	if r := math.Float64bits(s); lost != 0 && r&1 == 0 {
		if (lost > 0) == (s > 0) {
			r++
		} else {
			r--
		}
		s = math.Float64frombits(r)
	}
	return from32(float32(s))
}

func fmaF64(a, b, c uint64) uint64 { return from64(math.FMA(f64(a), f64(b), f64(c))) }

// flushed is a number as the instructions of gfx90a see it that know no denormals.
func flushed(f float32) float32 {
	if math.Abs(float64(f)) < 0x1p-126 {
		return float32(math.Copysign(0, float64(f)))
	}
	return f
}

// madF32 rounds twice, and knows no denormals.
func madF32(a, b, c uint64) uint64 {
	p := flushed(float32(flushed(f32(a)) * flushed(f32(b))))
	return from32(flushed(p + flushed(f32(c))))
}

// floatOps compute with numbers of floating point.
var floatOps = map[string]*alu{
	"v_add_f32":       value(addF32),
	"v_sub_f32":       value(func(a, b, _ uint64) uint64 { return from32(f32(a) - f32(b)) }),
	"v_mul_f32":       value(mulF32),
	"v_max_f32":       value(maxF32),
	"v_fma_f32":       value(fmaF32),
	"v_fmac_f32":      {value: fmaF32, accumulates: true},
	"v_fmamk_f32":     value(fmaF32),
	"v_mad_f32":       value(madF32),
	"v_mac_f32":       {value: madF32, accumulates: true},
	"v_madmk_f32":     value(madF32),
	"v_add_f64":       value(func(a, b, _ uint64) uint64 { return from64(f64(a) + f64(b)) }),
	"v_mul_f64":       value(func(a, b, _ uint64) uint64 { return from64(f64(a) * f64(b)) }),
	"v_fma_f64":       value(fmaF64),
	"v_fmac_f64":      {value: fmaF64, accumulates: true},
	"v_ldexp_f64":     value(func(a, b, _ uint64) uint64 { return from64(math.Ldexp(f64(a), int(i32(b)))) }),
	"v_trunc_f32":     value(func(a, _, _ uint64) uint64 { return from32(float32(math.Trunc(float64(f32(a))))) }),
	"v_trunc_f64":     value(func(a, _, _ uint64) uint64 { return from64(math.Trunc(f64(a))) }),
	"v_floor_f64":     value(func(a, _, _ uint64) uint64 { return from64(math.Floor(f64(a))) }),
	"v_rcp_f32":       value(reciprocal),
	"v_rcp_iflag_f32": value(reciprocal),
	"v_rcp_f64":       value(func(a, _, _ uint64) uint64 { return from64(1 / f64(a)) }),

	"v_cvt_f32_i32":    value(func(a, _, _ uint64) uint64 { return from32(float32(i32(a))) }),
	"v_cvt_f32_u32":    value(func(a, _, _ uint64) uint64 { return from32(float32(uint32(a))) }),
	"v_cvt_f32_ubyte0": value(func(a, _, _ uint64) uint64 { return from32(float32(a & 0xff)) }),
	"v_cvt_f64_u32":    value(func(a, _, _ uint64) uint64 { return from64(float64(uint32(a))) }),
	"v_cvt_f32_f64":    value(func(a, _, _ uint64) uint64 { return from32(float32(f64(a))) }),
	"v_cvt_f64_f32":    value(func(a, _, _ uint64) uint64 { return from64(float64(f32(a))) }),
	"v_cvt_u32_f32":    value(func(a, _, _ uint64) uint64 { return uint64(uint32(within(float64(f32(a)), 0, math.MaxUint32))) }),
	"v_cvt_u32_f64":    value(func(a, _, _ uint64) uint64 { return uint64(uint32(within(f64(a), 0, math.MaxUint32))) }),
	"v_cvt_i32_f32": value(func(a, _, _ uint64) uint64 {
		return uint64(uint32(int32(within(float64(f32(a)), math.MinInt32, math.MaxInt32))))
	}),
	"v_cvt_i32_f64": value(func(a, _, _ uint64) uint64 {
		return uint64(uint32(int32(within(f64(a), math.MinInt32, math.MaxInt32))))
	}),
	"v_cvt_f16_f32":  value(func(a, _, _ uint64) uint64 { return f32ToF16(a) }),
	"v_cvt_f32_f16":  value(func(a, _, _ uint64) uint64 { return f16ToF32(a & 0xffff) }),
	"v_pack_b32_f16": value(func(a, b, _ uint64) uint64 { return a&0xffff | b&0xffff<<16 }),

	"v_rndne_f32": value(func(a, _, _ uint64) uint64 { return from32(float32(math.RoundToEven(float64(f32(a))))) }),
	"v_sqrt_f32":  value(func(a, _, _ uint64) uint64 { return from32(float32(math.Sqrt(float64(f32(a))))) }),

	"v_div_scale_f32": carry(single.scale),
	"v_div_scale_f64": carry(double.scale),
	"v_div_fixup_f32": value(single.fixup),
	"v_div_fixup_f64": value(double.fixup),
	"v_cmp_class_f32": test(func(a, b uint64) bool { return single.classes(a)&b != 0 }),
}

// reciprocal is rounded correctly. The hardware's may be off by a unit in the last place; results must not depend
// on that.
func reciprocal(a, _, _ uint64) uint64 { return from32(1 / f32(a)) }

// within converts to an integer as the hardware does: toward 0, to an end of the range, and to 0 if it is no number.
func within(f, low, high float64) int64 {
	if math.IsNaN(f) {
		return 0
	}
	return int64(max(low, min(high, math.Trunc(f))))
}

// addF16 rounds once: sums of numbers of 11 bits in 24 bits are as good as exact for a result of 11.
func addF16(a, b uint64) uint64 { return f32ToF16(from32(f16(a) + f16(b))) }

// f16ToF32 converts a number of 16 bits, exactly.
func f16ToF32(h uint64) uint64 {
	s, e, m := h>>15<<31, h>>10&0x1f, h&0x3ff
	switch {
	case e == 0x1f:
		quiet := uint64(0)
		if m != 0 {
			quiet = 1 << 22
		}
		return s | 0x7f800000 | m<<13 | quiet
	case e != 0:
		return s | (e+112)<<23 | m<<13
	case m == 0:
		return s
	}
	return s | from32(float32(m)*0x1p-24)
}

// f32ToF16 rounds to nearest, ties to even.
func f32ToF16(a uint64) uint64 {
	f := f32(a)
	s := a >> 16 & 0x8000
	abs := math.Abs(float64(f))
	switch {
	case abs != abs:
		return s | 0x7e00 | a>>13&0x1ff
	case abs >= 65520:
		return s | 0x7c00
	case abs < 0x1p-14:
		return s | uint64(math.RoundToEven(abs*0x1p24))
	}
	x := uint64(math.Float32bits(float32(abs)))
	x += 0xfff + x>>13&1
	return s | (x>>13 - 112<<10)
}

// format is a format of numbers, for the steps of a division: scale, reciprocal, multiply and add, fix up.
type format struct {
	mantissa, bias int // bits, and the exponent of 1
	far, by        int // quotients of numbers that are so far apart are scaled, by so many bits
	quiet          uint64
	to             func(f float64) uint64
	from           func(a uint64) float64
}

var (
	single = format{mantissa: 23, bias: 127, far: 96, by: 64, quiet: 1 << 22, to: func(f float64) uint64 { return from32(float32(f)) }, from: func(a uint64) float64 { return float64(f32(a)) }}
	double = format{mantissa: 52, bias: 1023, far: 768, by: 128, quiet: 1 << 51, to: from64, from: f64}
)

func (t format) exponent(a uint64) int { return int(a>>t.mantissa) & (2*t.bias + 1) }

func (t format) denormal(a uint64) bool { return t.exponent(a) == 0 && t.from(a) != 0 }

// scale scales the numerator or the denominator of a division, a, so that the quotient c / b can be computed, and says
// whether the quotient has to be scaled back.
func (t format) scale(a, b, c uint64) (uint64, bool) {
	s0, s1, s2 := t.from(a), t.from(b), t.from(c)
	scaled := func(when bool, by int) uint64 {
		if when {
			return t.to(math.Ldexp(s0, by))
		}
		return a
	}
	inverse, quotient := t.denormal(t.to(1/s1)), t.denormal(t.to(s2/s1))
	switch {
	case s1 == 0 || s2 == 0:
		return t.to(math.NaN()), false
	case t.exponent(c)-t.exponent(b) >= t.far:
		return scaled(a == b, t.by), true
	case t.denormal(b):
		return scaled(true, t.by), false
	case inverse && quotient:
		return scaled(a == b, t.by), true
	case inverse:
		return scaled(true, -t.by), false
	case quotient:
		return scaled(a == c, t.by), true
	case t.exponent(c) <= t.mantissa:
		return scaled(true, t.by), false
	}
	return a, false
}

// back scales a result back.
func (t format) back(r, c uint64) uint64 {
	by := -t.by
	if t.exponent(c) > t.bias {
		by = t.by
	}
	return t.to(math.Ldexp(t.from(r), by))
}

func fmas32(a, b, c uint64, scaled bool) uint64 {
	r := fmaF32(a, b, c)
	if scaled {
		return single.back(r, c)
	}
	return r
}

func fmas64(a, b, c uint64, scaled bool) uint64 {
	r := fmaF64(a, b, c)
	if scaled {
		return double.back(r, c)
	}
	return r
}

// fixup sees to the quotients that the steps before cannot compute: a is the quotient, b the denominator and c the
// numerator.
func (t format) fixup(a, b, c uint64) uint64 {
	q, d, n := t.from(a), t.from(b), t.from(c)
	negative := math.Signbit(d) != math.Signbit(n)
	signed := func(f float64) uint64 {
		if negative {
			return t.to(-f)
		}
		return t.to(f)
	}
	switch {
	case n != n:
		return c | t.quiet
	case d != d:
		return b | t.quiet
	case d == 0 && n == 0, math.IsInf(d, 0) && math.IsInf(n, 0):
		return t.to(math.NaN())
	case d == 0, math.IsInf(n, 0):
		return signed(math.Inf(1))
	case math.IsInf(d, 0), n == 0:
		return signed(0)
	}
	return signed(math.Abs(q))
}

// classes is the bit of v_cmp_class_f32 that a number has.
func (t format) classes(a uint64) uint64 {
	f := t.from(a)
	var bit int
	switch {
	case f != f:
		if a&t.quiet != 0 {
			return 1 << 1
		}
		return 1 << 0
	case math.IsInf(f, 0):
		bit = 0
	case f == 0:
		bit = 3
	case t.denormal(a):
		bit = 2
	default:
		bit = 1
	}
	if math.Signbit(f) {
		return 1 << (2 + bit)
	}
	return 1 << (9 - bit)
}
