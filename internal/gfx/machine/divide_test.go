package machine

import (
	"math"
	"math/rand/v2"
	"testing"
)

// divide is the sequence of instructions that compilers make of a quotient of 32 bits.
func divide(n, d float32) float32 {
	den, _ := single.scale(from32(d), from32(d), from32(n))
	num, back := single.scale(from32(n), from32(d), from32(n))
	minus := func(a uint64) uint64 { return a ^ 1<<31 }
	r := reciprocal(den, 0, 0)
	e := fmaF32(minus(den), r, from32(1))
	r = fmaF32(e, r, r)
	q := mulF32(num, r, 0)
	q = fmaF32(fmaF32(minus(den), q, num), r, q)
	q = fmas32(fmaF32(minus(den), q, num), r, q, back)
	return f32(single.fixup(q, from32(d), from32(n)))
}

// Quotients are rounded once, those of very large and very small numbers too.
func TestDivide(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	number := func() float32 {
		switch random.IntN(8) {
		case 0:
			return []float32{0, 1, -1, math.MaxFloat32, 0x1p-126, float32(math.Inf(-1)), float32(math.Inf(1)), 3}[random.IntN(8)]
		case 1:
			return math.Float32frombits(uint32(random.IntN(1<<24)) | uint32(random.IntN(2))<<31)
		}
		return math.Float32frombits(random.Uint32())
	}
	for range 200_000 {
		n, d := number(), number()
		want := n / d
		if math.IsInf(float64(want), 0) && d != 0 && !math.IsInf(float64(n), 0) {
			continue // manuals differ about quotients that are too large, and no kernel has them
		}
		if got := divide(n, d); got != want && (got == got || want == want) && (math.Abs(float64(want)) >= 0x1p-126 || math.Abs(float64(got-want)) > 0x1p-149) {
			t.Fatalf("%g / %g: %g, expected %g", n, d, got, want)
		}
	}
}

func TestClasses(t *testing.T) {
	for a, bit := range map[uint32]int{
		0x7f800001: 0, 0xffc00000: 1, 0xff800000: 2, 0xbf800000: 3, 0x80000001: 4, 0x80000000: 5, 0: 6, 0x007fffff: 7, 0x00800000: 8, 0x7f800000: 9,
	} {
		if got := single.classes(uint64(a)); got != 1<<bit {
			t.Errorf("%#08x: classes %#x, expected %#x", a, got, 1<<bit)
		}
	}
}
