package main

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
)

// Every f16 becomes a number and the same f16 again; halfway between two neighbors
// the even one is taken.
func TestHalf(t *testing.T) {
	for bits := range uint16(0x7c00) {
		v := fromHalf(bits)
		if got := toHalf(v); got != bits {
			t.Fatalf("%#x is %g, and that is %#x", bits, v, got)
		}
		if got := toHalf(-v); got != bits|0x8000 {
			t.Fatalf("-%g is %#x, expected %#x", v, got, bits|0x8000)
		}
		next := bits + 1
		if next == 0x7c00 {
			continue
		}
		even := bits + bits&1
		if got := toHalf((v + fromHalf(next)) / 2); got != even {
			t.Fatalf("between %#x and %#x: %#x, expected %#x", bits, next, got, even)
		}
	}
	for v, want := range map[float64]uint16{1: 0x3c00, -2: 0xc000, 65504: 0x7bff, 65520: 0x7c00, 1e9: 0x7c00, 0x1p-24: 1, 0x1p-26: 0} {
		if got := toHalf(v); got != want {
			t.Errorf("%g is %#x, expected %#x", v, got, want)
		}
	}
	if !math.IsInf(fromHalf(0x7c00), 1) || fromHalf(0xbc00) != -1 {
		t.Errorf("0x7c00 is %g, 0xbc00 is %g: expected +Inf and -1", fromHalf(0x7c00), fromHalf(0xbc00))
	}
}

// The numbers are spread evenly, differ between matrices, and fill writes those that
// at returns.
func TestMatrix(t *testing.T) {
	var count [17]int
	same := 0
	for i := range 100 {
		for j := range 170 {
			v := matrix{1}.at(i, j)
			count[v+8]++
			if v == (matrix{2}).at(i, j) {
				same++
			}
		}
	}
	for v, n := range count {
		if n < 850 || n > 1150 {
			t.Errorf("%d eighths are there %d times in 17000, expected about 1000", v-8, n)
		}
	}
	if same > 1300 {
		t.Errorf("%d of 17000 numbers of two matrices are equal, expected about 1000", same)
	}
	b := make([]byte, 3*20*2)
	matrix{5}.fill(b, 7, 20)
	for range 30 {
		i, j := rand.IntN(3), rand.IntN(20)
		if got, want := fromHalf(binary.LittleEndian.Uint16(b[(i*20+j)*2:])), float64(matrix{5}.at(7+i, j))/8; got != want {
			t.Errorf("element (%d, %d) is %g, expected %g", 7+i, j, got, want)
		}
	}
}

// product against the sum of the f16 in 32-bit floats, as a kernel adds it.
func TestProduct(t *testing.T) {
	const k = 500
	a, b := matrix{1}, matrix{2}
	for i := range 20 {
		var sum float32
		for l := range k {
			sum += float32(a.at(i, l)) / 8 * float32(b.at(2*i, l)) / 8
		}
		if got, want := product(a, b, i, 2*i, k), toHalf(float64(sum)); got != want {
			t.Errorf("element (%d, %d) is %g, expected %g", i, 2*i, fromHalf(got), fromHalf(want))
		}
	}
}
