package collectives

import (
	"math"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/device"
)

// reducible reports whether the host can reduce what a call asks for.
func reducible(r Request) bool {
	if !r.Collective.reduces() {
		return true
	}
	switch r.Type {
	case device.Float8E4M3, device.Float8E5M2, device.Float8E4M3B15:
		return false
	}
	return r.Op != device.PreMulSum
}

// accumulator reduces pieces one after another. Floats of 16 bits are added up as
// those of 32, and rounded once, as kernels do it.
type accumulator struct {
	dtype device.DataType
	op    device.Op
	bytes []byte
	wide  []float32
	count int // pieces so far
}

func (a *accumulator) start(t device.DataType, op device.Op, bytes uint64) {
	a.dtype, a.op, a.count = t, op, 0
	n := int(bytes)
	if a.half() {
		if cap(a.wide) < n/2 {
			a.wide = make([]float32, n/2)
		}
		a.wide = a.wide[:n/2]
		return
	}
	if cap(a.bytes) < n {
		a.bytes = unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(make([]uint64, (n+7)/8)))), n) // aligned for all types
	}
	a.bytes = a.bytes[:n]
}

func (a *accumulator) half() bool { return a.dtype == device.Float16 || a.dtype == device.BFloat16 }

// add takes one more piece, which need not be aligned.
func (a *accumulator) add(b []byte) {
	a.count++
	switch {
	case a.half():
		a.addHalf(b)
	case a.count == 1:
		copy(a.bytes, b)
	default:
		a.combine(b)
	}
}

func (a *accumulator) combine(b []byte) {
	switch a.dtype {
	case device.Float32:
		combine[float32](a.bytes, b, a.op)
	case device.Float64:
		combine[float64](a.bytes, b, a.op)
	case device.Int8:
		combine[int8](a.bytes, b, a.op)
	case device.Uint8:
		combine[uint8](a.bytes, b, a.op)
	case device.Int32:
		combine[int32](a.bytes, b, a.op)
	case device.Uint32:
		combine[uint32](a.bytes, b, a.op)
	case device.Int64:
		combine[int64](a.bytes, b, a.op)
	case device.Uint64:
		combine[uint64](a.bytes, b, a.op)
	}
}

// store writes the result.
func (a *accumulator) store(to []byte) {
	if a.half() {
		a.storeHalf(to)
		return
	}
	if a.op == device.Avg {
		switch a.dtype {
		case device.Float32:
			divide[float32](a.bytes, a.count)
		case device.Float64:
			divide[float64](a.bytes, a.count)
		case device.Int8:
			narrow[int8](a.bytes, a.count)
		case device.Uint8:
			narrow[uint8](a.bytes, a.count)
		case device.Int32:
			divide[int32](a.bytes, a.count)
		case device.Uint32:
			divide[uint32](a.bytes, a.count)
		case device.Int64:
			divide[int64](a.bytes, a.count)
		case device.Uint64:
			divide[uint64](a.bytes, a.count)
		}
	}
	copy(to, a.bytes)
}

type number interface {
	float32 | float64 | int8 | uint8 | int32 | uint32 | int64 | uint64
}

func elements[T number](b []byte) []T {
	var x T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(x)))
}

// combine reduces what is in b into what is in a.
func combine[T number](a, b []byte, op device.Op) {
	x, y := elements[T](a), elements[T](b)
	y = y[:len(x)]
	switch op {
	case device.Prod:
		for i := range x {
			x[i] *= y[i]
		}
	case device.Min:
		for i := range x {
			if y[i] < x[i] || x[i] != x[i] {
				x[i] = y[i]
			}
		}
	case device.Max:
		for i := range x {
			if x[i] < y[i] || x[i] != x[i] {
				x[i] = y[i]
			}
		}
	default:
		for i := range x {
			x[i] += y[i]
		}
	}
}

func divide[T number](a []byte, by int) {
	x := elements[T](a)
	for i := range x {
		x[i] /= T(by)
	}
}

// narrow divides bytes, whose type may not hold the divisor.
func narrow[T int8 | uint8](a []byte, by int) {
	x := elements[T](a)
	for i := range x {
		x[i] = T(int(x[i]) / by)
	}
}

func (a *accumulator) addHalf(b []byte) {
	y := elements16(b)[:len(a.wide)]
	widen := fromHalf
	if a.dtype == device.BFloat16 {
		widen = func(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }
	}
	if a.count == 1 {
		for i := range a.wide {
			a.wide[i] = widen(y[i])
		}
		return
	}
	for i := range a.wide {
		x, v := a.wide[i], widen(y[i])
		switch a.op {
		case device.Prod:
			x *= v
		case device.Min:
			if v < x || x != x {
				x = v
			}
		case device.Max:
			if x < v || x != x {
				x = v
			}
		default:
			x += v
		}
		a.wide[i] = x
	}
}

func (a *accumulator) storeHalf(to []byte) {
	out := elements16(to)
	round := toHalf
	if a.dtype == device.BFloat16 {
		round = toBFloat
	}
	for i, x := range a.wide {
		if a.op == device.Avg {
			x /= float32(a.count)
		}
		out[i] = round(x)
	}
}

func elements16(b []byte) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/2)
}

func fromHalf(h uint16) float32 {
	sign, e, m := uint32(h>>15)<<31, uint32(h>>10&0x1f), uint32(h&0x3ff)
	switch {
	case e == 0x1f:
		return math.Float32frombits(sign | 0xff<<23 | m<<13)
	case e == 0: // a small number without the leading one
		v := float32(m) * (1.0 / (1 << 24))
		return math.Float32frombits(math.Float32bits(v) | sign)
	}
	return math.Float32frombits(sign | (e+112)<<23 | m<<13)
}

// toHalf rounds to nearest, ties to even. What is too large becomes infinite.
func toHalf(f float32) uint16 {
	bits := math.Float32bits(f)
	sign, abs := uint16(bits>>16&0x8000), bits&0x7fffffff
	switch {
	case abs > 0x7f800000:
		return sign | 0x7e00
	case abs >= 0x477ff000: // rounds to more than the largest
		return sign | 0x7c00
	case abs < 0x38800000: // below the smallest with a leading one
		return sign | uint16(math.RoundToEven(float64(math.Float32frombits(abs))*(1<<24)))
	}
	abs -= 112 << 23
	return sign | uint16((abs+0xfff+abs>>13&1)>>13)
}

func toBFloat(f float32) uint16 {
	bits := math.Float32bits(f)
	if bits&0x7fffffff > 0x7f800000 {
		return uint16(bits>>16) | 0x40
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}
