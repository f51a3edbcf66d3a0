// Package collectivetest knows what right results of collectives are: inputs,
// reductions computed in plain Go in the order that the kernels promise, and how
// far a result may be off. Tests, `mscclpp-run check` and `bench --check` use it.
// It also builds the kernel images that tests in one process need.
package collectivetest

import (
	"encoding/binary"
	"math"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// format describes a small binary float.
type format struct {
	exponent, mantissa, bias int
	infinite                 bool   // the highest exponent holds infinities and NaNs
	largest                  uint64 // pattern of the largest finite value
}

var formats = [kernel.DataTypes]format{
	kernel.Float16:       {5, 10, 15, true, 0x7bff},
	kernel.BFloat16:      {8, 7, 127, true, 0x7f7f},
	kernel.Float8E4M3:    {4, 3, 7, false, 0x7e},
	kernel.Float8E5M2:    {5, 2, 15, true, 0x7b},
	kernel.Float8E4M3B15: {4, 3, 15, false, 0x7f},
}

// power is 2 to the n, of the exponents of normal numbers.
func power(n int) float64 { return math.Float64frombits(uint64(n+1023) << 52) }

// decode widens the mantissa and moves the exponent. All that tests fill and compare passes
// here and through encode, so both do without the functions for any float.
func (f *format) decode(bits uint64) float64 {
	m := bits & (1<<f.mantissa - 1)
	e := int(bits >> f.mantissa & (1<<f.exponent - 1))
	sign := bits >> (f.mantissa + f.exponent) & 1 << 63
	switch {
	case f.infinite && e == 1<<f.exponent-1 && m == 0:
		return math.Float64frombits(math.Float64bits(math.Inf(1)) | sign)
	case f.infinite && e == 1<<f.exponent-1:
		return math.NaN()
	case e == 0:
		return math.Float64frombits(math.Float64bits(float64(m)*power(1-f.bias-f.mantissa)) | sign)
	}
	return math.Float64frombits(sign | uint64(e-f.bias+1023)<<52 | m<<(52-f.mantissa))
}

// encode rounds to nearest, ties to even. Too large values saturate when the type
// has one byte, else they become infinite.
func (f *format) encode(v float64) uint64 {
	wide := math.Float64bits(v)
	sign := wide >> 63 << (f.mantissa + f.exponent)
	wide = wide << 1 >> 1
	var bits uint64
	if int(wide>>52)-1023 < 1-f.bias { // a subnormal number, or 0
		bits = uint64(math.RoundToEven(math.Abs(v) * power(f.mantissa+f.bias-1)))
	} else {
		// The carry of a mantissa that is rounded up goes into the exponent by itself.
		dropped := 52 - f.mantissa
		odd := wide >> dropped & 1
		bits = (wide+1<<(dropped-1)-1+odd)>>dropped - uint64(1023-f.bias)<<f.mantissa
	}
	if bits > f.largest {
		bits = f.largest
		if f.mantissa+f.exponent > 7 {
			bits++ // infinity comes next
		}
	}
	return sign | bits
}

// get reads element i as a float. Only for types of at most 32 bits of precision.
func get(b []byte, t kernel.DataType, i int) float64 {
	switch t {
	case kernel.Float32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])))
	case kernel.Float64:
		return math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
	case kernel.Float16, kernel.BFloat16:
		return formats[t].decode(uint64(binary.LittleEndian.Uint16(b[2*i:])))
	case kernel.Float8E4M3, kernel.Float8E5M2, kernel.Float8E4M3B15:
		return formats[t].decode(uint64(b[i]))
	}
	return float64(getInt(b, t, i))
}

// put writes element i.
func put(b []byte, t kernel.DataType, i int, v float64) {
	switch t {
	case kernel.Float32:
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(float32(v)))
	case kernel.Float64:
		binary.LittleEndian.PutUint64(b[8*i:], math.Float64bits(v))
	case kernel.Float16, kernel.BFloat16:
		binary.LittleEndian.PutUint16(b[2*i:], uint16(formats[t].encode(v)))
	case kernel.Float8E4M3, kernel.Float8E5M2, kernel.Float8E4M3B15:
		b[i] = byte(formats[t].encode(v))
	default:
		putInt(b, t, i, int64(v))
	}
}

func integer(t kernel.DataType) bool { return t >= kernel.Int8 && t <= kernel.Uint64 }

// signed reports whether an integer type has negative values.
func signed(t kernel.DataType) bool {
	return t == kernel.Int8 || t == kernel.Int32 || t == kernel.Int64
}

func getInt(b []byte, t kernel.DataType, i int) int64 {
	switch t {
	case kernel.Int8:
		return int64(int8(b[i]))
	case kernel.Uint8:
		return int64(b[i])
	case kernel.Int32:
		return int64(int32(binary.LittleEndian.Uint32(b[4*i:])))
	case kernel.Uint32:
		return int64(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return int64(binary.LittleEndian.Uint64(b[8*i:]))
}

func putInt(b []byte, t kernel.DataType, i int, v int64) {
	switch t.Size() {
	case 1:
		b[i] = byte(v)
	case 4:
		binary.LittleEndian.PutUint32(b[4*i:], uint32(v))
	default:
		binary.LittleEndian.PutUint64(b[8*i:], uint64(v))
	}
}
