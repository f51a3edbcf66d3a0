package inference

import (
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// The choice is that of the measurements in docs/inference.md.
func TestChoiceOfShots(t *testing.T) {
	for _, x := range []struct {
		ranks  int
		bytes  uint64
		wanted Shots
		two    bool
	}{
		{1, 64 << 20, TwoShot, false}, {2, 1 << 20, Automatic, false}, {2, 4 << 20, Automatic, false}, {2, 8 << 20, Automatic, true}, {2, 64, TwoShot, true}, {2, 8 << 20, OneShot, false},
		{4, 256 << 10, Automatic, false}, {4, 512 << 10, Automatic, true}, {8, 128 << 10, Automatic, false}, {8, 256 << 10, Automatic, true},
	} {
		if got := (&NormCall{Shots: x.wanted}).inTwoShots(x.ranks, x.bytes); got != x.two {
			t.Errorf("%+v: two-shot is %v", x, got)
		}
	}
}

// A team of blocks has the whole row where a thread has four vectors, and threads have as many as one round of blocks needs.
func TestVectorsOfAThread(t *testing.T) {
	for _, x := range []struct {
		tokens, hidden int
		clusters       bool
		want           uint32
	}{
		{1, 8192, true, 0}, {32, 8192, true, 0}, {33, 8192, true, pairs}, {128, 8192, true, pairs}, {129, 8192, true, quads}, {256, 8192, false, pairs},
		{256, 4096, true, pairs}, {300, 4096, true, quads}, {64, 65536, true, quads}, {64, 65544, true, pairs},
	} {
		c := NormCall{Tokens: x.tokens, Hidden: x.hidden, Type: kernel.BFloat16}
		if got := c.vectors(x.clusters); got != x.want {
			t.Errorf("%+v: the flag is %d", x, got)
		}
	}
}
