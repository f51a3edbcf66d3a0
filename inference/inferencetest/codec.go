package inferencetest

import (
	"encoding/binary"
	"math"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// decode is element i of a buffer.
func decode(b []byte, t kernel.DataType, i int) float64 {
	switch t {
	case kernel.Float32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])))
	case kernel.BFloat16:
		return float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(b[2*i:])) << 16))
	case kernel.Float16:
		return small(uint64(binary.LittleEndian.Uint16(b[2*i:])), 5, 10, 15, true)
	case kernel.Float8E4M3:
		return small(uint64(b[i]), 4, 3, 7, false)
	}
	return float64(int8(b[i]))
}

// small decodes a float of few bits.
func small(bits uint64, exponent, mantissa, bias int, infinite bool) float64 {
	m := float64(bits & (1<<mantissa - 1))
	e := int(bits >> mantissa & (1<<exponent - 1))
	v := math.Ldexp(m+math.Ldexp(1, mantissa), e-bias-mantissa)
	switch {
	case infinite && e == 1<<exponent-1 && m == 0:
		v = math.Inf(1)
	case infinite && e == 1<<exponent-1, !infinite && bits&0x7f == 0x7f:
		v = math.NaN()
	case e == 0:
		v = math.Ldexp(m, 1-bias-mantissa)
	}
	if bits>>(exponent+mantissa) != 0 {
		v = -v
	}
	return v
}

// encode writes element i, cut off: inputs need not be rounded.
func encode(b []byte, t kernel.DataType, i int, v float32) {
	switch t {
	case kernel.Float32:
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(v))
	case kernel.BFloat16:
		binary.LittleEndian.PutUint16(b[2*i:], uint16(math.Float32bits(v)>>16))
	case kernel.Float16:
		binary.LittleEndian.PutUint16(b[2*i:], half(v))
	}
}

// half is an f16 that is near v, which has a magnitude below 65504; what is too small becomes 0.
func half(v float32) uint16 {
	bits := math.Float32bits(v)
	e := int(bits>>23&0xff) - 127 + 15
	if e <= 0 {
		return uint16(bits >> 16 & 0x8000)
	}
	return uint16(bits>>16&0x8000) | uint16(e)<<10 | uint16(bits>>13&0x3ff)
}

// unit is by how much rounding changes a number at most, relative to it.
func unit(t kernel.DataType) float64 {
	switch t {
	case kernel.Float16:
		return 1.0 / (1 << 11)
	case kernel.BFloat16:
		return 1.0 / (1 << 8)
	}
	return 1.0 / (1 << 24)
}
