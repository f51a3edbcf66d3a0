package main

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// The kernel works on whole tiles, and on whole steps through k: see kernel/tensor.h.
const (
	tile     = 128
	step     = 32
	threads  = 256
	maxPeers = 7
	maxRanks = maxPeers + 1
)

// args mirrors FusedArgs in kernel/fused.h.
type args struct {
	A, B, C, Done     uintptr
	First             uint64
	Rows, N, K, Peers uint32
	Tiles, Ready      [maxPeers]kernel.MemoryChannelHandle
}

// shape is the size of a multiplication: C, m x n, is A, m x k, times B, which is
// stored transposed, n x k. The rows of A are divided among the ranks.
type shape struct {
	m, n, k, ranks int
}

// check says what the kernel cannot do, and what it expects.
func (s shape) check() error {
	switch {
	case s.ranks > maxRanks:
		return fmt.Errorf("%d ranks: expected at most %d", s.ranks, maxRanks)
	case s.m <= 0 || s.m%(s.ranks*tile) != 0:
		return fmt.Errorf("-m %d: expected a multiple of %d: tiles of %d rows for each of %d ranks", s.m, s.ranks*tile, tile, s.ranks)
	case s.n <= 0 || s.n%tile != 0:
		return fmt.Errorf("-n %d: expected a multiple of %d, the columns of a tile", s.n, tile)
	case s.k <= 0 || s.k%step != 0:
		return fmt.Errorf("-k %d: expected a multiple of %d", s.k, step)
	case s.m > math.MaxInt32 || s.n > math.MaxInt32 || s.k > math.MaxInt32:
		return fmt.Errorf("-m %d -n %d -k %d: expected numbers of 31 bits", s.m, s.n, s.k)
	}
	return nil
}

// rows is the part of each rank.
func (s shape) rows() int { return s.m / s.ranks }

// tiles is how many of them each rank makes.
func (s shape) tiles() int { return s.rows() / tile * (s.n / tile) }

// flops is the number of operations of each rank.
func (s shape) flops() float64 { return 2 * float64(s.rows()) * float64(s.n) * float64(s.k) }

// matrix is a matrix of numbers that are known without being stored: multiples of 1/8
// between -1 and 1. Sums of up to 2^18 of their products are exact in 32-bit floats, in
// whatever order they are added, so results can be compared bit by bit.
type matrix struct{ seed uint64 }

// at returns element j of row i, in eighths.
func (m matrix) at(i, j int) int {
	x := m.seed*0x9e3779b97f4a7c15 + uint64(i)*0xbf58476d1ce4e5b9 + uint64(j)*0x94d049bb133111eb
	x ^= x >> 31
	x *= 0xd6e8feb86659fd93
	return int(x>>32%17) - 8
}

// half are the f16 bits of the seventeen numbers that matrix.at returns.
var half = func() (bits [17]uint16) {
	for i := range bits {
		bits[i] = toHalf(float64(i-8) / 8)
	}
	return bits
}()

// fill writes the f16 of some rows.
func (m matrix) fill(b []byte, first, columns int) {
	for i := 0; 2*i < len(b); i++ {
		binary.LittleEndian.PutUint16(b[2*i:], half[m.at(first+i/columns, i%columns)+8])
	}
}

// product returns the f16 bits of one element of a times the transposed b.
func product(a, b matrix, i, j, k int) uint16 {
	sum := 0
	for l := range k {
		sum += a.at(i, l) * b.at(j, l)
	}
	return toHalf(float64(sum) / 64)
}

// toHalf rounds to the nearest f16, to even if there are two. Numbers of half precision
// are those of float64 with ten bits after the leading one.
func toHalf(v float64) uint16 {
	sign := uint16(0)
	if math.Signbit(v) {
		sign, v = 0x8000, -v
	}
	if v == 0 {
		return sign
	}
	exponent := math.Ilogb(v)
	exponent = max(exponent, -14) // below are the subnormal numbers, with the last place of the smallest normal ones
	units := uint64(math.RoundToEven(math.Ldexp(v, 10-exponent)))
	// The leading one of a normal number adds one to the exponent, as does a carry.
	bits := uint64(exponent+14)<<10 + units
	if bits > 0x7c00 {
		bits = 0x7c00
	}
	return sign | uint16(bits)
}

func fromHalf(bits uint16) float64 {
	exponent, fraction := int(bits>>10&31), float64(bits&0x3ff)
	v := math.Ldexp(fraction, -24)
	switch {
	case exponent == 31:
		v = math.Inf(1)
	case exponent > 0:
		v = math.Ldexp(1024+fraction, exponent-25)
	}
	if bits&0x8000 != 0 {
		v = -v
	}
	return v
}
