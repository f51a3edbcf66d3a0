package inference

import (
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/device"
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

// The kernel of frequent calls has those whose rows a team has in its threads, and no others.
func TestFrequentCalls(t *testing.T) {
	row := unsafe.Pointer(new([1]byte))
	for _, x := range []struct {
		name string
		call NormCall
		l    device.Launch
		two  bool
		want bool
	}{
		{"a row", NormCall{}, device.Launch{Cluster: 8, Block: 128}, false, true},
		{"e4m3", NormCall{Quantization: E4M3PerToken}, device.Launch{Cluster: 8, Block: 128}, false, true},
		{"a part of a row", NormCall{}, device.Launch{Cluster: 4, Block: 128}, false, false},
		{"two-shot", NormCall{}, device.Launch{Cluster: 8, Block: 128}, true, false},
		{"LayerNorm", NormCall{Norm: LayerNorm}, device.Launch{Cluster: 8, Block: 128}, false, false},
		{"a bias", NormCall{Bias: row}, device.Launch{Cluster: 8, Block: 128}, false, false},
		{"integers", NormCall{Quantization: Int8PerToken}, device.Launch{Cluster: 8, Block: 128}, false, false},
		{"own rows", NormCall{Rows: OwnRows}, device.Launch{Cluster: 8, Block: 128}, true, false},
	} {
		x.call.Tokens, x.call.Hidden, x.call.Type = 1, 8192, kernel.BFloat16
		for ranks := 1; ranks <= 3; ranks++ {
			var a normArgs
			a.prepare(&x.call, 0, ranks, x.two && ranks > 1)
			if got, want := a.frequent(&x.call, x.l), (x.want || x.two && ranks == 1) && ranks < 3; got != want {
				t.Errorf("%s, %d ranks: %v, expected %v", x.name, ranks, got, want)
			}
		}
	}
}
