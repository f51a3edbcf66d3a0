package hostreduce

import (
	"math"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Accumulator reduces pieces one after another. Floats of 8 and 16 bits are added up
// as those of 32, and rounded once, as kernels do it.
type Accumulator struct {
	dtype kernel.DataType
	op    kernel.Op
	scale float64 // for PreMulSum
	bytes []byte
	wide  []float32
	next  []float32 // a piece, converted
	count int       // pieces so far
	By    float64   // set behind Start: what an average divides by; 0: the number of pieces
}

// Start begins a reduction of pieces of so many bytes.
func (a *Accumulator) Start(t kernel.DataType, op kernel.Op, scale float64, bytes uint64) {
	a.dtype, a.op, a.scale, a.count, a.By = t, op, scale, 0, 0
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

func (a *Accumulator) small() bool {
	switch a.dtype {
	case kernel.Float16, kernel.BFloat16, kernel.Float8E4M3, kernel.Float8E5M2, kernel.Float8E4M3B15:
		return true
	}
	return false
}

// Add takes one more piece, which need not be aligned.
func (a *Accumulator) Add(b []byte) {
	a.count++
	switch {
	case a.count > 1:
	case a.op == kernel.PreMulSum:
		a.empty()
	default:
		a.take(b)
		return
	}
	a.combine(b)
}

// take makes the sum one of this piece alone.
func (a *Accumulator) take(b []byte) {
	if a.small() {
		a.widen(a.wide, b)
		return
	}
	copy(a.bytes, b)
}

// nothing is the float that leaves what is added to it as it is: 0 would make 0 of -0.
var nothing = math.Copysign(0, -1)

// empty makes the sum one of no pieces.
func (a *Accumulator) empty() {
	switch {
	case a.small():
		fill(a.wide, float32(nothing))
	case a.dtype == kernel.Float32:
		fill(elements[float32](a.bytes), float32(nothing))
	case a.dtype == kernel.Float64:
		fill(elements[float64](a.bytes), nothing)
	default:
		clear(a.bytes)
	}
}

func fill[T float32 | float64](x []T, v T) {
	for i := range x {
		x[i] = v
	}
}

func (a *Accumulator) combine(b []byte) {
	if a.small() {
		a.combineSmall(b)
		return
	}
	Pair(a.bytes, a.bytes, b, a.dtype, sumOf(a.op), a.scale, 0, false)
}

// Store writes the result.
func (a *Accumulator) Store(to []byte) {
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

type arithmetic interface {
	float32 | float64 | int8 | uint8 | int32 | uint32 | int64 | uint64
}

func elements[T arithmetic](b []byte) []T {
	var x T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(x)))
}

func (a *Accumulator) divisor() float64 {
	if a.By != 0 {
		return a.By
	}
	return float64(a.count)
}

func divide[T arithmetic](a []byte, by float64) {
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

func (a *Accumulator) combineSmall(b []byte) {
	if cap(a.next) < len(a.wide) {
		a.next = make([]float32, len(a.wide))
	}
	next := a.next[:len(a.wide)]
	a.widen(next, b)
	Pair(floats(a.wide), floats(a.wide), floats(next), kernel.Float32, sumOf(a.op), a.scale, 0, false)
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
func (a *Accumulator) widen(to []float32, b []byte) {
	if !Widen(to, b, a.dtype) {
		table := bytes8()[a.dtype]
		for i, x := range b[:len(to)] {
			to[i] = table[x]
		}
	}
}

func (a *Accumulator) storeSmall(to []byte) {
	if a.op == kernel.Avg {
		by := float32(a.divisor())
		for i := range a.wide {
			a.wide[i] /= by
		}
	}
	if !Narrow(to, a.wide, a.dtype) {
		f := floats8[a.dtype]
		for i, x := range a.wide {
			to[i] = f.encode(x)
		}
	}
}
