package actor_test

import (
	"encoding/binary"
	"math"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// expected is a reduction element by element, written to be read.
type expected struct {
	typ     kernel.DataType
	op      kernel.Op
	scale   float64
	divisor uint32
	partial int
}

// element reduces the element at byte i of the inputs, and returns its pattern; nan
// says that any NaN is right.
func (e expected) element(inputs [][]byte, i int) (bits uint64, nan bool) {
	switch e.typ {
	case kernel.Float64:
		r := reduceFloat(e, inputs, func(b []byte) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(b[i:])) })
		return math.Float64bits(r), r != r
	case kernel.Float32:
		r := reduceFloat(e, inputs, func(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b[i:])) })
		return uint64(math.Float32bits(r)), r != r
	case kernel.Int8:
		return uint64(uint8(reduceInt(e, inputs, func(b []byte) int8 { return int8(b[i]) }))), false
	case kernel.Uint8:
		return uint64(reduceInt(e, inputs, func(b []byte) uint8 { return b[i] })), false
	case kernel.Int32:
		return uint64(uint32(reduceInt(e, inputs, func(b []byte) int32 { return int32(binary.LittleEndian.Uint32(b[i:])) }))), false
	case kernel.Uint32:
		return uint64(reduceInt(e, inputs, func(b []byte) uint32 { return binary.LittleEndian.Uint32(b[i:]) })), false
	case kernel.Int64:
		return uint64(reduceInt(e, inputs, func(b []byte) int64 { return int64(binary.LittleEndian.Uint64(b[i:])) })), false
	case kernel.Uint64:
		return reduceInt(e, inputs, func(b []byte) uint64 { return binary.LittleEndian.Uint64(b[i:]) }), false
	}
	f := formats[e.typ]
	r := reduceFloat(e, inputs, func(b []byte) float32 { return f.decode(int(pattern(b[i:], e.typ.Size()))) })
	if p := f.encode(r); p >= 0 {
		return uint64(p), false
	}
	return 0, true
}

func pattern(b []byte, size int) uint64 {
	var v uint64
	for k := range size {
		v |= uint64(b[k]) << (8 * k)
	}
	return v
}

func reduceFloat[F float32 | float64](e expected, inputs [][]byte, load func([]byte) F) F {
	var acc F
	for k, in := range inputs {
		x := load(in)
		if e.op == kernel.PreMulSum && k >= e.partial {
			x = F(x * F(e.scale))
		}
		switch {
		case k == 0:
			acc = x
		case e.op == kernel.Prod:
			acc = F(acc * x)
		case e.op == kernel.Min:
			if x < acc || acc != acc {
				acc = x
			}
		case e.op == kernel.Max:
			if x > acc || acc != acc {
				acc = x
			}
		default:
			acc = F(acc + x)
		}
	}
	if e.op == kernel.Avg {
		acc = F(acc / F(e.ranks(inputs)))
	}
	return acc
}

func reduceInt[I int8 | uint8 | int32 | uint32 | int64 | uint64](e expected, inputs [][]byte, load func([]byte) I) I {
	var acc I
	for k, in := range inputs {
		x := load(in)
		if e.op == kernel.PreMulSum && k >= e.partial {
			x *= I(e.scale)
		}
		switch {
		case k == 0:
			acc = x
		case e.op == kernel.Prod:
			acc *= x
		case e.op == kernel.Min:
			acc = min(acc, x)
		case e.op == kernel.Max:
			acc = max(acc, x)
		default:
			acc += x
		}
	}
	if e.op == kernel.Avg {
		return quotient(acc, e.ranks(inputs))
	}
	return acc
}

// quotient divides by a number that may be more than the type holds.
func quotient[I int8 | uint8 | int32 | uint32 | int64 | uint64](sum I, by uint32) I {
	if sum < 0 {
		return I(int64(sum) / int64(by))
	}
	return I(uint64(sum) / uint64(by))
}

func (e expected) ranks(inputs [][]byte) uint32 {
	if e.divisor != 0 {
		return e.divisor
	}
	return uint32(len(inputs))
}

// isNaN reports whether a pattern is one.
func isNaN(typ kernel.DataType, bits uint64) bool {
	switch typ {
	case kernel.Float64:
		return math.IsNaN(math.Float64frombits(bits))
	case kernel.Float32:
		return math.IsNaN(float64(math.Float32frombits(uint32(bits))))
	}
	f := formats[typ]
	return f != nil && math.IsNaN(float64(f.decode(int(bits))))
}
