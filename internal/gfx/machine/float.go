package machine

import (
	"math"
	"math/bits"
)

func f32(a uint64) float32 { return math.Float32frombits(uint32(a)) }

// f16 is a number of 16 bits, which all fit into 32.
func f16(a uint64) float32 { return f32(f16ToF32(a & 0xffff)) }

func f64(a uint64) float64 { return math.Float64frombits(a) }

func from32(f float32) uint64 { return uint64(math.Float32bits(f)) }

func from64(f float64) uint64 { return math.Float64bits(f) }

func addF32(a, b, _ uint64) uint64 { return from32(f32(a) + f32(b)) }

func mulF32(a, b, _ uint64) uint64 { return from32(f32(a) * f32(b)) }

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
	"v_mul_f32":       value(mulF32),
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

	"v_div_scale_f64": carry(divScale),
	"v_div_fixup_f64": value(divFixup),
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

func exponent(a uint64) int { return int(a >> 52 & 0x7ff) }

func denormal(f float64) bool { return f != 0 && math.Abs(f) < 0x1p-1022 }

// divScale scales the numerator or the denominator of a division, a, so that the quotient c / b can be computed, and
// says whether the quotient has to be scaled back.
func divScale(a, b, c uint64) (uint64, bool) {
	s0, s1, s2 := f64(a), f64(b), f64(c)
	scaled := func(when bool, by int) uint64 {
		if when {
			return from64(math.Ldexp(s0, by))
		}
		return a
	}
	switch {
	case s1 == 0 || s2 == 0:
		return from64(math.NaN()), false
	case exponent(c)-exponent(b) >= 768:
		return scaled(a == b, 128), true
	case denormal(s1):
		return scaled(true, 128), false
	case denormal(1/s1) && denormal(s2/s1):
		return scaled(a == b, 128), true
	case denormal(1 / s1):
		return scaled(true, -128), false
	case denormal(s2 / s1):
		return scaled(a == c, 128), true
	case exponent(c) <= 53:
		return scaled(true, 128), false
	}
	return a, false
}

// divFmas multiplies and adds, and scales back in the lanes of VCC.
func (w *wave) divFmas(o *op) error {
	const vcc = 106
	mask := w.pair(vcc)
	w.fetch(&o.Src[0], &w.a)
	w.fetch(&o.Src[1], &w.b)
	w.fetch(&o.Src[2], &w.c)
	for m := w.exec(); m != 0; m &= m - 1 {
		l := bits.TrailingZeros64(m) & 63
		r := math.FMA(f64(w.a[l]), f64(w.b[l]), f64(w.c[l]))
		if mask>>l&1 != 0 {
			by := -128
			if exponent(w.c[l]) > 1023 {
				by = 128
			}
			r = math.Ldexp(r, by)
		}
		w.a[l] = from64(r)
	}
	w.store(o, w.exec())
	return nil
}

// divFixup sees to the quotients that the steps before cannot compute: a is the quotient, b the denominator and c the
// numerator.
func divFixup(a, b, c uint64) uint64 {
	q, d, n := f64(a), f64(b), f64(c)
	negative := math.Signbit(d) != math.Signbit(n)
	signed := func(f float64) uint64 {
		if negative {
			return from64(-f)
		}
		return from64(f)
	}
	switch {
	case n != n:
		return c | 1<<51
	case d != d:
		return b | 1<<51
	case d == 0 && n == 0, math.IsInf(d, 0) && math.IsInf(n, 0):
		return from64(math.NaN())
	case d == 0, math.IsInf(n, 0):
		return signed(math.Inf(1))
	case math.IsInf(d, 0), n == 0:
		return signed(0)
	}
	return signed(math.Abs(q))
}
