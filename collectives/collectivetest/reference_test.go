package collectivetest

import (
	"bytes"
	"math"
	"math/bits"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Every pattern of the small floats decodes to a value that encodes to it again.
func TestSmallFloatsRoundTrip(t *testing.T) {
	for dtype := range kernel.DataType(kernel.DataTypes) {
		f := formats[dtype]
		if f.mantissa == 0 {
			continue
		}
		for bits := range uint64(1) << (f.exponent + f.mantissa + 1) {
			v := f.decode(bits)
			if magnitude := bits &^ (1 << (f.exponent + f.mantissa)); math.IsNaN(v) || magnitude > f.largest {
				continue
			}
			if got := f.encode(v); got != bits {
				t.Fatalf("%v: %#x is %v, which encodes to %#x", dtype, bits, v, got)
			}
		}
	}
}

func TestSmallFloatsRound(t *testing.T) {
	for _, x := range []struct {
		dtype kernel.DataType
		value float64
		want  float64
	}{
		{kernel.Float16, 1 + 1.0/2048, 1},                   // a tie goes to the even neighbor
		{kernel.Float16, 1 + 3.0/2048, 1 + 2.0/1024},        // also upwards
		{kernel.Float16, 65519, 65504},                      // the largest
		{kernel.Float16, 65520, math.Inf(1)},                // and what is beyond
		{kernel.BFloat16, -1e39, math.Inf(-1)},              //
		{kernel.BFloat16, 1.00390625, 1},                    //
		{kernel.Float8E4M3, 1000, 448},                      // one byte saturates
		{kernel.Float8E5M2, -1e9, -57344},                   //
		{kernel.Float8E4M3B15, 5, 1.875},                    //
		{kernel.Float8E4M3, math.Ldexp(1, -9), 0.001953125}, // the smallest subnormal
		{kernel.Float8E4M3, math.Ldexp(1, -11), 0},          //
	} {
		b := make([]byte, 8)
		put(b, x.dtype, 0, x.value)
		if got := get(b, x.dtype, 0); got != x.want {
			t.Errorf("%v: %v becomes %v, expected %v", x.dtype, x.value, got, x.want)
		}
	}
}

func reduceOne(t kernel.DataType, op kernel.Op, scale float64, values ...float64) float64 {
	inputs := make([][]byte, len(values))
	for i, v := range values {
		inputs[i] = make([]byte, t.Size())
		put(inputs[i], t, 0, v)
	}
	out := make([]byte, t.Size())
	Reference{}.Reduce(out, inputs, t, op, scale)
	return get(out, t, 0)
}

func TestReduce(t *testing.T) {
	for _, x := range []struct {
		dtype  kernel.DataType
		op     kernel.Op
		values []float64
		want   float64
	}{
		{kernel.Int8, kernel.Sum, []float64{100, 100}, -56}, // integers wrap
		{kernel.Uint8, kernel.Sum, []float64{200, 100}, 44},
		{kernel.Int32, kernel.Avg, []float64{-3, -4}, -3}, // toward zero
		{kernel.Uint8, kernel.Max, []float64{200, 100}, 200},
		{kernel.Uint32, kernel.Min, []float64{4e9, 1}, 1},
		{kernel.Int8, kernel.PreMulSum, []float64{1, 2}, 9},
		{kernel.Float32, kernel.Avg, []float64{1, 2}, 1.5},
		{kernel.Float16, kernel.Sum, []float64{60000, 60000}, math.Inf(1)},
		{kernel.Float8E4M3, kernel.Sum, []float64{400, 400}, 448},
		{kernel.BFloat16, kernel.Prod, []float64{3, -5, 2}, -30},
		{kernel.Float64, kernel.Max, []float64{-1, math.NaN()}, -1},
	} {
		if got := reduceOne(x.dtype, x.op, 3, x.values...); got != x.want {
			t.Errorf("%v of %v %v is %v, expected %v", x.op, x.values, x.dtype, got, x.want)
		}
	}
}

// Wrong elements are found; differences that rounding explains are not.
func TestWrong(t *testing.T) {
	r := Reference{}
	for dtype := range kernel.DataType(kernel.DataTypes) {
		want := make([]byte, 64*dtype.Size())
		r.Fill(want, dtype, kernel.Sum, 7, 1, 0)
		if n := r.Wrong(want, want, dtype, kernel.Sum, 1); n != 0 {
			t.Errorf("%v: %d of equal elements are wrong", dtype, n)
		}
		got := bytes.Clone(want)
		got[len(got)-1] ^= 0x40 // the exponent, or a high bit
		got[0] ^= 1             // the last bit of the first element
		if n := r.Wrong(got, want, dtype, kernel.Sum, 1); n != 2 {
			t.Errorf("%v: %d wrong elements found, expected 2", dtype, n)
		}
		if integer(dtype) {
			continue
		}
		if n := r.Wrong(got, want, dtype, kernel.Sum, 4); n > 1 {
			t.Errorf("%v: a difference of one rounding counts as wrong", dtype)
		}
	}
}

func TestFillVaries(t *testing.T) {
	r := Reference{}
	fill := func(seed uint64, rank, first int) string {
		b := make([]byte, 256)
		r.Fill(b, kernel.Float32, kernel.Sum, seed, rank, first)
		return string(b)
	}
	if a := fill(1, 0, 0); a == fill(2, 0, 0) || a == fill(1, 1, 0) || a == fill(1, 0, 64) {
		t.Error("inputs repeat")
	}
	if fill(1, 0, 1)[:252] != fill(1, 0, 0)[4:] {
		t.Error("an element depends on where filling begins")
	}
}

// Elements that are looked up are those that Fill would make one by one, and all that there can be occur.
func TestFillLooksUpElements(t *testing.T) {
	for dtype := range kernel.DataType(kernel.DataTypes) {
		for op := range kernel.Op(kernel.Ops) {
			n, all := encoded(dtype, op)
			size := dtype.Size()
			if all == nil {
				if size < 4 || integer(dtype) {
					t.Errorf("%v of %v: %d elements are encoded one by one", op, dtype, n)
				}
				continue
			}
			if uint64(len(all)) != n*uint64(size) {
				t.Fatalf("%v of %v: %d bytes for %d elements", op, dtype, len(all), n)
			}
			input, seen := make([]byte, 40*int(n)*size), map[string]bool{}
			Reference{}.Fill(input, dtype, op, 7, 1, 5)
			for i := range 40 * int(n) {
				h, _ := bits.Mul64(mix(7, 1, 5+i), n)
				want := make([]byte, size)
				put(want, dtype, 0, value(h, dtype, op))
				if got := input[i*size:][:size]; !bytes.Equal(got, want) {
					t.Fatalf("%v of %v: element %d is %x, expected %x", op, dtype, i, got, want)
				}
				seen[string(want)] = true
			}
			different := map[string]bool{}
			for i := range int(n) {
				different[string(all[i*size:][:size])] = true
			}
			if len(seen) != len(different) {
				t.Errorf("%v of %v: %d of %d elements occur", op, dtype, len(seen), len(different))
			}
		}
	}
}
