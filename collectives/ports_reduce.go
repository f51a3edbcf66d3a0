package collectives

import (
	"math"
	"sync"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/device"
)

// accumulator reduces pieces one after another. Floats of 8 and 16 bits are added up
// as those of 32, and rounded once, as kernels do it.
type accumulator struct {
	dtype device.DataType
	op    device.Op
	scale float64 // for PreMulSum
	bytes []byte
	wide  []float32
	next  []float32 // a piece, converted
	count int       // pieces so far
	by    float64   // what an average divides by; 0: count
}

func (a *accumulator) start(t device.DataType, op device.Op, scale float64, bytes uint64) {
	a.dtype, a.op, a.scale, a.count, a.by = t, op, scale, 0, 0
	n := int(bytes)
	if a.small() {
		n /= t.Size()
		if cap(a.wide) < n {
			a.wide = make([]float32, n)
		}
		a.wide = a.wide[:n]
		return
	}
	if cap(a.bytes) < n {
		a.bytes = unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(make([]uint64, (n+7)/8)))), n) // aligned for all types
	}
	a.bytes = a.bytes[:n]
}

func (a *accumulator) small() bool {
	switch a.dtype {
	case device.Float16, device.BFloat16, device.Float8E4M3, device.Float8E5M2, device.Float8E4M3B15:
		return true
	}
	return false
}

// add takes one more piece, which need not be aligned.
func (a *accumulator) add(b []byte) {
	a.count++
	switch {
	case a.small():
		a.addSmall(b)
	case a.count == 1 && a.op != device.PreMulSum:
		copy(a.bytes, b)
	default:
		if a.count == 1 {
			clear(a.bytes)
		}
		a.combine(b)
	}
}

func (a *accumulator) combine(b []byte) {
	switch a.dtype {
	case device.Float32:
		combine[float32](a.bytes, b, a.op, a.scale)
	case device.Float64:
		combine[float64](a.bytes, b, a.op, a.scale)
	case device.Int8:
		combine[int8](a.bytes, b, a.op, a.scale)
	case device.Uint8:
		combine[uint8](a.bytes, b, a.op, a.scale)
	case device.Int32:
		combine[int32](a.bytes, b, a.op, a.scale)
	case device.Uint32:
		combine[uint32](a.bytes, b, a.op, a.scale)
	case device.Int64:
		combine[int64](a.bytes, b, a.op, a.scale)
	case device.Uint64:
		combine[uint64](a.bytes, b, a.op, a.scale)
	}
}

// store writes the result.
func (a *accumulator) store(to []byte) {
	if a.small() {
		a.storeSmall(to)
		return
	}
	if a.op == device.Avg {
		by := a.divisor()
		switch a.dtype {
		case device.Float32:
			divide[float32](a.bytes, by)
		case device.Float64:
			divide[float64](a.bytes, by)
		case device.Int8:
			narrow[int8](a.bytes, by)
		case device.Uint8:
			narrow[uint8](a.bytes, by)
		case device.Int32:
			divide[int32](a.bytes, by)
		case device.Uint32:
			divide[uint32](a.bytes, by)
		case device.Int64:
			divide[int64](a.bytes, by)
		case device.Uint64:
			divide[uint64](a.bytes, by)
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
func combine[T number](a, b []byte, op device.Op, scale float64) {
	combineInto(elements[T](a), elements[T](b), op, scale)
}

func combineInto[T number](x, y []T, op device.Op, scale float64) {
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
	case device.PreMulSum:
		s := T(scale)
		for i := range x {
			x[i] += y[i] * s
		}
	default:
		for i := range x {
			x[i] += y[i]
		}
	}
}

func (a *accumulator) divisor() float64 {
	if a.by != 0 {
		return a.by
	}
	return float64(a.count)
}

func divide[T number](a []byte, by float64) {
	x := elements[T](a)
	for i := range x {
		x[i] /= T(by)
	}
}

// narrow divides bytes, whose type may not hold the divisor.
func narrow[T int8 | uint8](a []byte, by float64) {
	x := elements[T](a)
	for i := range x {
		x[i] = T(int(x[i]) / int(by))
	}
}

func (a *accumulator) addSmall(b []byte) {
	if a.count == 1 && a.op != device.PreMulSum {
		a.widen(a.wide, b)
		return
	}
	if a.count == 1 {
		clear(a.wide)
	}
	if cap(a.next) < len(a.wide) {
		a.next = make([]float32, len(a.wide))
	}
	next := a.next[:len(a.wide)]
	a.widen(next, b)
	combineInto(a.wide, next, a.op, a.scale)
}

// widen converts the elements of b.
func (a *accumulator) widen(to []float32, b []byte) {
	switch a.dtype {
	case device.Float16:
		table := halves()
		for i, h := range elements16(b)[:len(to)] {
			to[i] = table[h]
		}
	case device.BFloat16:
		for i, h := range elements16(b)[:len(to)] {
			to[i] = math.Float32frombits(uint32(h) << 16)
		}
	default:
		table := bytes8()[a.dtype]
		for i, x := range b[:len(to)] {
			to[i] = table[x]
		}
	}
}

// halves and bytes8 are the values of all patterns, which are faster looked up than
// computed.
var halves = sync.OnceValue(func() *[1 << 16]float32 {
	t := new([1 << 16]float32)
	for i := range t {
		t[i] = fromHalf(uint16(i))
	}
	return t
})

var bytes8 = sync.OnceValue(func() map[device.DataType]*[256]float32 {
	all := map[device.DataType]*[256]float32{}
	for dtype, f := range floats8 {
		t := new([256]float32)
		for i := range t {
			t[i] = f.decode(byte(i))
		}
		all[dtype] = t
	}
	return all
})

func (a *accumulator) storeSmall(to []byte) {
	if a.op == device.Avg {
		by := float32(a.divisor())
		for i := range a.wide {
			a.wide[i] /= by
		}
	}
	switch a.dtype {
	case device.Float16:
		out := elements16(to)[:len(a.wide)]
		for i, x := range a.wide {
			out[i] = toHalf(x)
		}
	case device.BFloat16:
		out := elements16(to)[:len(a.wide)]
		for i, x := range a.wide {
			out[i] = toBFloat(x)
		}
	default:
		f := floats8[a.dtype]
		for i, x := range a.wide {
			to[i] = f.encode(x)
		}
	}
}

// float8 describes a format of one byte.
type float8 struct {
	mantissa, bias int
	largest        byte // pattern of the largest finite value
	special        bool // the highest exponent holds infinity and what is no number
	nan            byte // 0: there is none
}

var floats8 = map[device.DataType]float8{
	device.Float8E4M3:    {mantissa: 3, bias: 7, largest: 0x7e, nan: 0x7f},
	device.Float8E5M2:    {mantissa: 2, bias: 15, largest: 0x7b, special: true, nan: 0x7f},
	device.Float8E4M3B15: {mantissa: 3, bias: 15, largest: 0x7f},
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

// encode rounds to nearest, ties to even. What is too large becomes the largest.
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

func elements16(b []byte) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/2)
}

func fromHalf(h uint16) float32 {
	sign, e, m := uint32(h>>15)<<31, uint32(h>>10&0x1f), uint32(h&0x3ff)
	switch e {
	case 0x1f:
		return math.Float32frombits(sign | 0xff<<23 | m<<13)
	case 0: // a small number without the leading one
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
