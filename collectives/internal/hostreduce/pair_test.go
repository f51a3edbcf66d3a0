package hostreduce

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

type number interface {
	~float32 | ~float64 | ~int8 | ~uint8 | ~int32 | ~uint32 | ~int64 | ~uint64
}

func bytesOf[T any](x []T) []byte {
	var one T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(one)))
}

// plain is what Pair has to compute, element by element.
func plain[T number](x, y T, op kernel.Op, scale, by float64, first bool) T {
	switch op {
	case kernel.Prod:
		return x * y
	case kernel.Min:
		if y < x || x != x {
			return y
		}
		return x
	case kernel.Max:
		if x < y || x != x {
			return y
		}
		return x
	case kernel.PreMulSum:
		if first {
			x *= T(scale)
		}
		z := y * T(scale) // rounded by itself
		return x + z
	case kernel.Avg:
		return (x + y) / T(by)
	}
	return x + y
}

func random[T number](r *rand.Rand, n int) []T {
	out := make([]T, n)
	for i := range out {
		switch r.IntN(12) {
		case 0:
			out[i] = 0
		case 1:
			big := math.Inf(1)
			if isFloat[T]() { // a float
				out[i] = T(big)
			}
		case 2:
			out[i] = T(-int64(r.IntN(100)))
		default:
			out[i] = T(r.Int64N(1<<40) - 1<<39)
			if isFloat[T]() {
				part := float64(1 << 20)
				out[i] /= T(part)
			}
		}
	}
	return out
}

func check[T number](t *testing.T, dtype kernel.DataType) {
	r := rand.New(rand.NewPCG(1, uint64(dtype)))
	for _, n := range []int{0, 1, 7, 64, 1003} {
		for _, op := range []kernel.Op{kernel.Sum, kernel.Prod, kernel.Min, kernel.Max, kernel.Avg, kernel.PreMulSum} {
			for _, first := range []bool{true, false} {
				a, b := random[T](r, n), random[T](r, n)
				for i := range min(n, 1) {
					if nan := math.NaN(); isFloat[T]() {
						a[i] = T(nan)
					}
				}
				want := make([]T, n)
				for i := range want {
					want[i] = plain(a[i], b[i], op, 3, 2, first)
				}
				for place, to := range map[string][]T{"apart": make([]T, n), "over the first": append([]T(nil), a...), "over the second": append([]T(nil), b...)} {
					x, y := a, b
					switch place {
					case "over the first":
						x = to
					case "over the second":
						y = to
					}
					if !Pair(bytesOf(to), bytesOf(x), bytesOf(y), dtype, op, 3, 2, first) {
						t.Fatalf("type %v is not known", dtype)
					}
					for i := range to {
						if to[i] != want[i] && (to[i] == to[i] || want[i] == want[i]) {
							t.Fatalf("%v of %d, %s, first %v: element %d of %v and %v is %v: expected %v", op, n, place, first, i, a[i], b[i], to[i], want[i])
						}
					}
				}
			}
		}
	}
}

func TestPair(t *testing.T) {
	for dtype, f := range map[kernel.DataType]func(*testing.T, kernel.DataType){
		kernel.Float32: check[float32], kernel.Float64: check[float64], kernel.Int8: check[int8], kernel.Uint8: check[uint8],
		kernel.Int32: check[int32], kernel.Uint32: check[uint32], kernel.Int64: check[int64], kernel.Uint64: check[uint64],
	} {
		t.Run(fmt.Sprint(dtype), func(t *testing.T) { f(t, dtype) })
	}
}

// A product and a sum are not rounded at once: other machines could not do that.
func TestNothingIsContracted(t *testing.T) {
	x, y := []float32{-1}, []float32{1 + 1.0/(1<<12)}
	scale := float64(float32(1 - 1.0/(1<<12)))
	to := make([]float32, 1)
	Pair(bytesOf(to), bytesOf(x), bytesOf(y), kernel.Float32, kernel.PreMulSum, scale, 0, false)
	product := y[0] * float32(scale)
	if want := x[0] + product; to[0] != want {
		t.Errorf("%v: expected %v", to[0], want)
	}
}

// halfValue is the value of a pattern, by its definition.
func halfValue(h uint16) float64 {
	sign, e, m := 1.0, int(h>>10&31), float64(h&1023)
	if h&0x8000 != 0 {
		sign = -1
	}
	switch {
	case e == 31 && m != 0:
		return math.NaN()
	case e == 31:
		return sign * math.Inf(1)
	case e == 0:
		return sign * math.Ldexp(m, -24)
	}
	return sign * math.Ldexp(1024+m, e-25)
}

// Every pattern is widened to its value, and comes back.
func TestHalves(t *testing.T) {
	all := make([]byte, 0, 1<<17)
	for h := range 1 << 16 {
		all = binary.LittleEndian.AppendUint16(all, uint16(h))
	}
	wide, back := make([]float32, 1<<16), make([]byte, 1<<17)
	if !Widen(wide, all, kernel.Float16) || !Narrow(back, wide, kernel.Float16) {
		t.Fatal("f16 is not known")
	}
	for h := range 1 << 16 {
		want, got := halfValue(uint16(h)), float64(wide[h])
		again := binary.LittleEndian.Uint16(back[2*h:])
		switch {
		case math.IsNaN(want):
			if !math.IsNaN(got) || again != uint16(h)&0x8000|0x7e00 {
				t.Fatalf("%#x: %v, and back %#x: expected no number", h, got, again)
			}
		case got != want || math.Signbit(got) != math.Signbit(want) || again != uint16(h):
			t.Fatalf("%#x: %v, and back %#x: expected %v", h, got, again, want)
		}
	}
}

// Between two halves the nearest one is taken, in the middle the even one.
func TestRoundingOfHalves(t *testing.T) {
	for h := range uint16(0x7bff) {
		low, high := float32(halfValue(h)), float32(halfValue(h+1))
		middle := low + (high-low)/2
		even := h + h&1
		in := []float32{math.Nextafter32(middle, low), middle, math.Nextafter32(middle, high), -middle}
		out := make([]byte, 8)
		Narrow(out, in, kernel.Float16)
		for i, want := range []uint16{h, even, h + 1, even | 0x8000} {
			if got := binary.LittleEndian.Uint16(out[2*i:]); got != want {
				t.Fatalf("%v, between %#x and its next: %#x: expected %#x", in[i], h, got, want)
			}
		}
	}
	in, out := []float32{65519.99, 65520, 1e30, float32(math.Inf(1)), 1e-30, 2.98e-8, 2.99e-8}, make([]byte, 14)
	Narrow(out, in, kernel.Float16)
	for i, want := range []uint16{0x7bff, 0x7c00, 0x7c00, 0x7c00, 0, 0, 1} {
		if got := binary.LittleEndian.Uint16(out[2*i:]); got != want {
			t.Errorf("%v: %#x: expected %#x", in[i], got, want)
		}
	}
}

func TestBFloat(t *testing.T) {
	bits := []uint32{0, 0x3f800000, 0x3f808000, 0x3f818000, 0x3f808001, 0x7f7fffff, 0x7f800000, 0x7f800001, 0xff800001, 0x80000001}
	in, out := make([]float32, len(bits)), make([]byte, 2*len(bits))
	for i, b := range bits {
		in[i] = math.Float32frombits(b)
	}
	Narrow(out, in, kernel.BFloat16)
	for i, want := range []uint16{0, 0x3f80, 0x3f80, 0x3f82, 0x3f81, 0x7f80, 0x7f80, 0x7fc0, 0xffc0, 0x8000} {
		if got := binary.LittleEndian.Uint16(out[2*i:]); got != want {
			t.Errorf("%#x: %#x: expected %#x", bits[i], got, want)
		}
	}
	wide := make([]float32, len(bits))
	Widen(wide, out, kernel.BFloat16)
	for i := range wide {
		if got, want := math.Float32bits(wide[i]), uint32(binary.LittleEndian.Uint16(out[2*i:]))<<16; got != want {
			t.Errorf("pattern %d: %#x: expected %#x", i, got, want)
		}
	}
}

// A pair of 16-bit floats is what widening, computing and narrowing gives.
func TestPairOfHalves(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 3))
	const n = 4096
	for _, dtype := range []kernel.DataType{kernel.Float16, kernel.BFloat16} {
		for _, op := range []kernel.Op{kernel.Sum, kernel.Prod, kernel.Min, kernel.Max, kernel.Avg, kernel.PreMulSum} {
			a, b := make([]uint16, n), make([]uint16, n)
			for i := range a {
				a[i], b[i] = uint16(r.Uint32()), uint16(r.Uint32())
			}
			x, y, want := make([]float32, n), make([]float32, n), make([]uint16, n)
			Widen(x, bytesOf(a), dtype)
			Widen(y, bytesOf(b), dtype)
			Pair(bytesOf(x), bytesOf(x), bytesOf(y), kernel.Float32, op, 1.5, 2, true)
			Narrow(bytesOf(want), x, dtype)
			Pair(bytesOf(a), bytesOf(a), bytesOf(b), dtype, op, 1.5, 2, true)
			for i := range a {
				if a[i] != want[i] {
					t.Fatalf("%v of %v: element %d is %#x: expected %#x", op, dtype, i, a[i], want[i])
				}
			}
		}
	}
}

func TestUnknownTypes(t *testing.T) {
	b := make([]byte, 64)
	if Pair(b, b, b, kernel.Float8E4M3, kernel.Sum, 0, 0, false) || Widen(make([]float32, 8), b, kernel.Float32) || Narrow(b, make([]float32, 8), kernel.Int8) {
		t.Error("a type that is not known was reduced")
	}
}

func BenchmarkPair(b *testing.B) {
	for _, dtype := range []kernel.DataType{kernel.Float32, kernel.Float16, kernel.BFloat16, kernel.Float64, kernel.Int8} {
		b.Run(fmt.Sprint(dtype), func(b *testing.B) {
			x, y := make([]byte, 256<<10), make([]byte, 256<<10)
			b.SetBytes(256 << 10)
			for b.Loop() {
				Pair(x, x, y, dtype, kernel.Sum, 0, 0, false)
			}
		})
	}
}

func isFloat[T number]() bool {
	half := 0.5
	return T(half) != 0
}

// Averages over more ranks than the type holds, of Pair and of the accumulator.
func TestAveragesOfManyBytes(t *testing.T) {
	for ranks := range 400 {
		if ranks < 2 {
			continue
		}
		for _, dtype := range []kernel.DataType{kernel.Int8, kernel.Uint8} {
			var a Accumulator
			a.Start(dtype, kernel.Avg, 0, 1)
			for r := range ranks {
				a.Add([]byte{byte(min(r, 100) / 100)}) // no sum overflows up to 227 ranks
			}
			got := []byte{0xaa}
			a.Store(got)
			if want := wrapped(dtype, ranks-100) / ranks; ranks > 100 && int(signedOf(dtype, got[0])) != want {
				t.Errorf("%v over %d ranks: %d, expected %d", dtype, ranks, signedOf(dtype, got[0]), want)
			}
			if Pair(got, []byte{60}, []byte{60}, dtype, kernel.Avg, 0, float64(ranks), true); int(got[0]) != 120/ranks {
				t.Errorf("%v, 120 / %d: %d", dtype, ranks, got[0])
			}
		}
	}
}

func wrapped(t kernel.DataType, sum int) int { return int(signedOf(t, byte(sum))) }

func signedOf(t kernel.DataType, b byte) int16 {
	if t == kernel.Int8 {
		return int16(int8(b))
	}
	return int16(b)
}

// A sum of what was multiplied is -0 if all of it is, as in kernels.
func TestNegativeZeros(t *testing.T) {
	negative := math.Copysign(0, -1)
	for dtype, bits := range map[kernel.DataType][]byte{
		kernel.Float32: {0, 0, 0, 0x80}, kernel.Float64: {0, 0, 0, 0, 0, 0, 0, 0x80}, kernel.Float16: {0, 0x80}, kernel.BFloat16: {0, 0x80},
		kernel.Float8E4M3: {0x80}, kernel.Float8E5M2: {0x80}, kernel.Float8E4M3B15: {0x80},
	} {
		for _, op := range []kernel.Op{kernel.Sum, kernel.PreMulSum, kernel.Avg, kernel.Min, kernel.Max} {
			var a Accumulator
			a.Start(dtype, op, 2, uint64(len(bits)))
			for range 3 {
				a.Add(bits)
			}
			got := make([]byte, len(bits))
			a.Store(got)
			if string(got) != string(bits) {
				t.Errorf("%v of %v, the accumulator: %x, expected %x, which is %v", op, dtype, got, bits, negative)
			}
			by := 0.0
			if op == kernel.Avg {
				by = 2
			}
			if Pair(got, bits, bits, dtype, op, 2, by, true) && string(got) != string(bits) {
				t.Errorf("%v of %v, a pair: %x, expected %x", op, dtype, got, bits)
			}
		}
	}
}
