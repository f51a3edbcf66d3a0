package collectivetest

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Reference computes what collectives should. It has no state.
type Reference struct{}

// mix is a good hash of four numbers.
func mix(seed uint64, rank, i int) uint64 {
	x := seed*0x9e3779b97f4a7c15 ^ uint64(rank)*0xbf58476d1ce4e5b9 ^ uint64(i)*0x94d049bb133111eb
	x ^= x >> 31
	x *= 0xd6e8feb86659fd93
	return x ^ x>>32
}

// Fill writes consecutive elements of a rank's input, from element first on. Values
// are small, so that no reduction of some dozens of them overflows, and differ
// between elements, ranks and seeds.
func (Reference) Fill(dst []byte, t kernel.DataType, op kernel.Op, seed uint64, rank, first int) {
	if n, all := encoded(t, op); all != nil {
		pick(dst, t.Size(), all, n, seed, rank, first)
		return
	}
	n := values(t, op)
	for i := range len(dst) / t.Size() {
		h, _ := bits.Mul64(mix(seed, rank, first+i), n)
		put(dst, t, i, value(h, t, op))
	}
}

// pick fills dst with elements of so many bytes, of which all holds n.
func pick(dst []byte, size int, all []byte, n, seed uint64, rank, first int) {
	for i := range len(dst) / size {
		h, _ := bits.Mul64(mix(seed, rank, first+i), n)
		switch size {
		case 1:
			dst[i] = all[h]
		case 2:
			binary.LittleEndian.PutUint16(dst[2*i:], binary.LittleEndian.Uint16(all[2*h:]))
		default:
			copy(dst[i*size:][:size], all[int(h)*size:])
		}
	}
}

// encoded returns the n elements of which inputs consist, one after the other; nil if they are too many for that. Large
// messages are checked element by element, and to encode a float takes ten times as long as to look it up.
func encoded(t kernel.DataType, op kernel.Op) (n uint64, all []byte) {
	n = values(t, op)
	if n > mostEncoded {
		return n, nil
	}
	known := &elements[t][op]
	known.once.Do(func() {
		known.all = make([]byte, n*uint64(t.Size()))
		for i := range n {
			put(known.all, t, int(i), value(i, t, op))
		}
	})
	return n, known.all
}

const mostEncoded = 4096

var elements [kernel.DataTypes][kernel.Ops]struct {
	once sync.Once
	all  []byte
}

// values is how many different ones an element has.
func values(t kernel.DataType, op kernel.Op) uint64 {
	switch {
	case op == kernel.Prod && integer(t):
		return 3
	case op == kernel.Prod:
		return 8
	case integer(t) && !signed(t):
		return 100
	case integer(t):
		return 121
	case t.Size() == 1:
		return 15
	case t.Size() == 2:
		return 2001
	}
	return 2000001
}

// value is number i of them.
func value(i uint64, t kernel.DataType, op kernel.Op) float64 {
	switch {
	case op == kernel.Prod && integer(t):
		return float64(1 + i)
	case op == kernel.Prod:
		return [...]float64{0.5, 1, 1, 1.25, -0.5, -1, -1, -1.25}[i]
	case integer(t) && !signed(t):
		return float64(i)
	case integer(t):
		return float64(i) - 60
	case t == kernel.Float8E4M3B15:
		return (float64(i) - 7) / 64
	case t.Size() == 1:
		return (float64(i) - 7) / 4
	case t.Size() == 2:
		return (float64(i) - 1000) / 256
	}
	return (float64(i) - 1000000) / 65536
}

// Reduce writes the reduction of the ranks' inputs, in rank order. All ranks have the same scale.
func (Reference) Reduce(dst []byte, inputs [][]byte, t kernel.DataType, op kernel.Op, scale float64) {
	n := len(dst) / t.Size()
	for i := range n {
		switch {
		case integer(t) && signed(t):
			putInt(dst, t, i, reduceInts(inputs, t, op, i, int64(scale)))
		case integer(t):
			putInt(dst, t, i, int64(reduceUints(inputs, t, op, i, uint64(scale))))
		case t == kernel.Float64:
			put(dst, t, i, reduceFloats(inputs, t, op, i, scale))
		default:
			put(dst, t, i, float64(reduceFloats(inputs, t, op, i, float32(scale))))
		}
	}
}

func reduceFloats[A float32 | float64](inputs [][]byte, t kernel.DataType, op kernel.Op, i int, scale A) A {
	var acc A
	var product [8]byte
	for r, in := range inputs {
		x := A(get(in, t, i))
		if op == kernel.PreMulSum { // products are elements: each rank makes its own
			put(product[:], t, 0, float64(x*scale))
			x = A(get(product[:], t, 0))
		}
		if r == 0 {
			acc = x
		} else {
			acc = combine(acc, x, op)
		}
	}
	if op == kernel.Avg {
		acc /= A(len(inputs))
	}
	return acc
}

// reduceInts works in 64 bits and narrows after each step, as the type would wrap.
func reduceInts(inputs [][]byte, t kernel.DataType, op kernel.Op, i int, scale int64) int64 {
	var acc int64
	wrap := func(v int64) int64 {
		switch t.Size() {
		case 1:
			return int64(int8(v))
		case 4:
			return int64(int32(v))
		}
		return v
	}
	for r, in := range inputs {
		x := getInt(in, t, i)
		if op == kernel.PreMulSum {
			x = wrap(x * wrap(scale))
		}
		if r == 0 {
			acc = x
		} else {
			acc = wrap(combine(acc, x, op))
		}
	}
	if op == kernel.Avg {
		acc /= int64(len(inputs))
	}
	return acc
}

func reduceUints(inputs [][]byte, t kernel.DataType, op kernel.Op, i int, scale uint64) uint64 {
	mask := uint64(math.MaxUint64) >> (64 - 8*t.Size())
	var acc uint64
	for r, in := range inputs {
		x := uint64(getInt(in, t, i)) & mask
		if op == kernel.PreMulSum {
			x = x * scale & mask
		}
		if r == 0 {
			acc = x
		} else {
			acc = combine(acc, x, op) & mask
		}
	}
	if op == kernel.Avg {
		acc /= uint64(len(inputs))
	}
	return acc
}

func combine[A float32 | float64 | int64 | uint64](a, b A, op kernel.Op) A {
	switch op {
	case kernel.Prod:
		return a * b
	case kernel.Min:
		if b < a || a != a {
			return b
		}
		return a
	case kernel.Max:
		if a < b || a != a {
			return b
		}
		return a
	}
	return a + b
}

// Wrong counts the elements of got that are further from want than rounding
// explains when that many ranks reduce in another order, or round on the way. With
// one rank, and for integers, minima and maxima, nothing may differ.
func (Reference) Wrong(got, want []byte, t kernel.DataType, op kernel.Op, ranks int) (n int64) {
	const most = 4096 // compared at once: nearly all is equal
	for at := 0; at < len(want); at += most {
		end := min(at+most, len(want))
		if !bytes.Equal(got[at:end], want[at:end]) {
			n += wrong(got[at:end], want[at:end], t, op, ranks)
		}
	}
	return n
}

func wrong(got, want []byte, t kernel.DataType, op kernel.Op, ranks int) (n int64) {
	size := t.Size()
	for i := range len(want) / size {
		if string(got[i*size:(i+1)*size]) == string(want[i*size:(i+1)*size]) {
			continue
		}
		if ranks == 1 || integer(t) || op == kernel.Min || op == kernel.Max || !withinRounding(get(got, t, i), get(want, t, i), t, op, ranks) {
			n++
		}
	}
	return n
}

// withinRounding allows one rounding of the largest partial result a rank.
func withinRounding(got, want float64, t kernel.DataType, op kernel.Op, ranks int) bool {
	if got == want || math.IsNaN(got) && math.IsNaN(want) {
		return true
	}
	mantissa := formats[t].mantissa
	switch t {
	case kernel.Float32:
		mantissa = 23
	case kernel.Float64:
		mantissa = 52
	}
	largest := math.Abs(want)
	if op != kernel.Prod {
		largest = max(largest, 16*float64(ranks))
		if t.Size() == 1 {
			largest = max(math.Abs(want), 2*float64(ranks))
		}
	}
	return math.Abs(got-want) <= float64(ranks)*math.Ldexp(largest, -mantissa)
}
