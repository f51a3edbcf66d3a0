package collectives

import (
	"math"
	"sync"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/combine"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// accumulator reduces pieces one after another. Floats of 8 and 16 bits are added up
// as those of 32, and rounded once, as kernels do it.
type accumulator struct {
	dtype kernel.DataType
	op    kernel.Op
	scale float64 // for PreMulSum
	bytes []byte
	wide  []float32
	next  []float32 // a piece, converted
	count int       // pieces so far
	by    float64   // what an average divides by; 0: count
}

func (a *accumulator) start(t kernel.DataType, op kernel.Op, scale float64, bytes uint64) {
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
	case kernel.Float16, kernel.BFloat16, kernel.Float8E4M3, kernel.Float8E5M2, kernel.Float8E4M3B15:
		return true
	}
	return false
}

// eightBits are the types that are reduced through tables.
func eightBits(t kernel.DataType) bool { return t.Size() == 1 && t != kernel.Int8 && t != kernel.Uint8 }

// add takes one more piece, which need not be aligned.
func (a *accumulator) add(b []byte) {
	a.count++
	switch {
	case a.small():
		a.addSmall(b)
	case a.count == 1 && a.op != kernel.PreMulSum:
		copy(a.bytes, b)
	default:
		if a.count == 1 {
			clear(a.bytes)
		}
		a.combine(b)
	}
}

func (a *accumulator) combine(b []byte) {
	combine.Pair(a.bytes, a.bytes, b, a.dtype, sumOf(a.op), a.scale, 0, false)
}

// store writes the result.
func (a *accumulator) store(to []byte) {
	if a.small() {
		a.storeSmall(to)
		return
	}
	if a.op == kernel.Avg {
		by := a.divisor()
		switch a.dtype {
		case kernel.Float32:
			divide[float32](a.bytes, by)
		case kernel.Float64:
			divide[float64](a.bytes, by)
		case kernel.Int8:
			narrow[int8](a.bytes, by)
		case kernel.Uint8:
			narrow[uint8](a.bytes, by)
		case kernel.Int32:
			divide[int32](a.bytes, by)
		case kernel.Uint32:
			divide[uint32](a.bytes, by)
		case kernel.Int64:
			divide[int64](a.bytes, by)
		case kernel.Uint64:
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
	if a.count == 1 && a.op != kernel.PreMulSum {
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
	combine.Pair(floats(a.wide), floats(a.wide), floats(next), kernel.Float32, sumOf(a.op), a.scale, 0, false)
}

// sumOf leaves the division of an average to the end.
func sumOf(op kernel.Op) kernel.Op {
	if op == kernel.Avg {
		return kernel.Sum
	}
	return op
}

func floats(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}

// widen converts the elements of b.
func (a *accumulator) widen(to []float32, b []byte) {
	if !combine.Widen(to, b, a.dtype) {
		table := bytes8()[a.dtype]
		for i, x := range b[:len(to)] {
			to[i] = table[x]
		}
	}
}

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

func (a *accumulator) storeSmall(to []byte) {
	if a.op == kernel.Avg {
		by := float32(a.divisor())
		for i := range a.wide {
			a.wide[i] /= by
		}
	}
	if !combine.Narrow(to, a.wide, a.dtype) {
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

var floats8 = map[kernel.DataType]float8{
	kernel.Float8E4M3:    {mantissa: 3, bias: 7, largest: 0x7e, nan: 0x7f},
	kernel.Float8E5M2:    {mantissa: 2, bias: 15, largest: 0x7b, special: true, nan: 0x7f},
	kernel.Float8E4M3B15: {mantissa: 3, bias: 15, largest: 0x7f},
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
