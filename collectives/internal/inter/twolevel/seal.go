package twolevel

import (
	"encoding/binary"
	"math/bits"
)

// A packet of a kernel has a flag beside each four bytes of data, because eight bytes
// arrive whole in the memory that it polls. No network promises that. A write of
// an adapter is visible in the order of addresses, and by four bytes at least, only where
// the bus has it so; soft-RoCE copies with whatever instruction is the fastest, whose
// stores a processor may reorder; a write that goes over two queue pairs has no order at
// all. So the flag of a packet that crosses a network is made of the epoch and of all of
// the data: it is right once every byte is there, in whatever order and units they came,
// and it takes 16 bytes of a packet and not half of it.
//
// It is wrong with a probability of 2^-64 for each look at a packet that has not arrived as a
// whole, whose first word of two says that it has. The function is no protection from anybody: an
// attacker that can write into a packet can write anything.

// Four words that look random: bits of the square roots of 2, 3, 5 and 7, made odd.
const (
	sealA = 0x6a09e667f3bcc909
	sealB = 0xbb67ae8584caa73b
	sealC = 0x3c6ef372fe94f82b
	sealD = 0xa54ff53a5f1d36f1
)

// fold mixes all bits of two words into one.
func fold(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	return high ^ low
}

// sealOf is a number that depends on the epoch and on each bit of b, whose length is a
// multiple of eight.
func sealOf(epoch uint64, b []byte) uint64 {
	// The length is part of it: zeros at the end are data.
	start := fold(epoch^sealA, uint64(len(b))^sealB)
	w, x, y, z := start^sealA, start^sealB, start^sealC, start^sealD
	for ; len(b) >= 64; b = b[64:] { // four chains, so that no multiplication waits for another
		p := b[:64:64]
		w = fold(w^binary.LittleEndian.Uint64(p), binary.LittleEndian.Uint64(p[8:])^sealB)
		x = fold(x^binary.LittleEndian.Uint64(p[16:]), binary.LittleEndian.Uint64(p[24:])^sealC)
		y = fold(y^binary.LittleEndian.Uint64(p[32:]), binary.LittleEndian.Uint64(p[40:])^sealD)
		z = fold(z^binary.LittleEndian.Uint64(p[48:]), binary.LittleEndian.Uint64(p[56:])^sealA)
	}
	for ; len(b) >= 8; b = b[8:] {
		w = fold(w^binary.LittleEndian.Uint64(b), x^sealC) + y
		x, y, z = y, z, w
	}
	return fold(fold(w^sealB, x^sealD)^sealC, fold(y^sealA, z^sealC)^sealB)
}
