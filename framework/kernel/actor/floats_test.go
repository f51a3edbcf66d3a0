package actor_test

import (
	"math"
	"slices"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// format describes a small float by its definition; the reference rounds by looking
// for the nearest value in a table of all values.
type format struct {
	exponent, mantissa, bias int
	specials                 bool // the highest exponent is for infinities and NaNs
	nan                      int  // pattern of the only NaN, if there are no specials; 0: none
	saturates                bool
	values                   []float64 // of the patterns 0, 1, … up to the largest finite one
}

var formats = map[kernel.DataType]*format{
	kernel.Float16:       newFormat(5, 10, 15, true, 0, false),
	kernel.BFloat16:      newFormat(8, 7, 127, true, 0, false),
	kernel.Float8E4M3:    newFormat(4, 3, 7, false, 0x7f, true),
	kernel.Float8E5M2:    newFormat(5, 2, 15, true, 0, true),
	kernel.Float8E4M3B15: newFormat(4, 3, 15, false, 0, true),
}

func newFormat(exponent, mantissa, bias int, specials bool, nan int, saturates bool) *format {
	f := &format{exponent: exponent, mantissa: mantissa, bias: bias, specials: specials, nan: nan, saturates: saturates}
	last := 1<<(exponent+mantissa) - 1
	switch {
	case specials:
		last -= 1 << mantissa
	case nan != 0:
		last--
	}
	for bits := 0; bits <= last; bits++ {
		e, m := bits>>mantissa, bits&(1<<mantissa-1)
		if e == 0 {
			f.values = append(f.values, math.Ldexp(float64(m), 1-bias-mantissa))
		} else {
			f.values = append(f.values, math.Ldexp(float64(1<<mantissa+m), e-bias-mantissa))
		}
	}
	return f
}

func (f *format) sign() int { return 1 << (f.exponent + f.mantissa) }

func (f *format) decode(bits int) float32 {
	magnitude := bits &^ f.sign()
	v := math.NaN()
	switch {
	case magnitude < len(f.values):
		v = f.values[magnitude]
	case f.specials && magnitude == len(f.values):
		v = math.Inf(1)
	}
	if bits&f.sign() != 0 {
		v = -v
	}
	return float32(v)
}

// encode returns the pattern, or -1 for any NaN.
func (f *format) encode(x float32) int {
	v, sign := math.Abs(float64(x)), 0
	if math.Signbit(float64(x)) {
		sign = f.sign()
	}
	last := len(f.values) - 1
	if math.IsNaN(v) {
		if f.specials || f.nan != 0 {
			return -1
		}
		return sign | last
	}
	i, exact := slices.BinarySearch(f.values, v)
	if exact {
		return sign | i
	}
	var above float64
	switch {
	case i <= last:
		above = f.values[i]
	case f.saturates:
		return sign | last
	default:
		above = 2*f.values[last] - f.values[last-1] // where the next value would be
	}
	below := f.values[i-1]
	if v-below > above-v || (v-below == above-v && (i-1)&1 == 1) {
		return sign | i // one past the last is infinity
	}
	return sign | (i - 1)
}
