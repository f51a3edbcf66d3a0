package hostreduce

import (
	"math"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// EightBits reports whether elements are floats of 8 bits, which are reduced through tables.
func EightBits(t kernel.DataType) bool { return t.Size() == 1 && t != kernel.Int8 && t != kernel.Uint8 }

// bytes8 are the values of all patterns, which are faster looked up than computed.
var bytes8 = sync.OnceValue(func() map[kernel.DataType]*[256]float32 {
	all := map[kernel.DataType]*[256]float32{}
	for dtype, f := range floats8 {
		t := new([256]float32)
		for i := range t {
			t[i] = f.decode(byte(i))
		}
		all[dtype] = t
	}
	return all
})

// float8 describes a format of one byte.
type float8 struct {
	mantissa, bias int
	largest        byte // pattern of the largest finite value
	special        bool // the highest exponent holds infinity and what is no number
	nan            byte // without one, the largest finite value
}

var floats8 = map[kernel.DataType]float8{
	kernel.Float8E4M3:    {mantissa: 3, bias: 7, largest: 0x7e, nan: 0x7f},
	kernel.Float8E5M2:    {mantissa: 2, bias: 15, largest: 0x7b, special: true, nan: 0x7f},
	kernel.Float8E4M3B15: {mantissa: 3, bias: 15, largest: 0x7f, nan: 0x7f},
}

func (f float8) decode(b byte) float32 {
	abs := b & 0x7f
	m, e := int(abs)&(1<<f.mantissa-1), int(abs)>>f.mantissa
	v := math.Ldexp(float64(m|1<<f.mantissa), e-f.bias-f.mantissa)
	switch {
	case f.special && abs == f.largest+1:
		v = math.Inf(1)
	case abs > f.largest:
		v = math.NaN()
	case e == 0:
		v = math.Ldexp(float64(m), 1-f.bias-f.mantissa)
	}
	if b&0x80 != 0 {
		v = -v
	}
	return float32(v)
}

// encode rounds to nearest, ties to even. A value that is too large becomes the largest.
func (f float8) encode(x float32) byte {
	sign := byte(math.Float32bits(x) >> 24 & 0x80)
	v := math.Abs(float64(x))
	if v != v {
		return sign | f.nan
	}
	if v >= float64(f.decode(f.largest)) {
		return sign | f.largest
	}
	// Patterns of one sign are in the order of their values: steps of the exponent
	// of v, counted from its smallest pattern.
	e := max(math.Ilogb(max(v, math.SmallestNonzeroFloat64)), 1-f.bias)
	steps := int(math.RoundToEven(math.Ldexp(v, f.mantissa-e)))
	return sign | byte(steps+(e+f.bias-1)<<f.mantissa)
}
