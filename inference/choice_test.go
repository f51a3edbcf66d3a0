package inference

import "testing"

// The choice is that of the measurements in docs/inference.md.
func TestChoiceOfShots(t *testing.T) {
	for _, x := range []struct {
		ranks  int
		bytes  uint64
		wanted Shots
		two    bool
	}{
		{1, 64 << 20, TwoShot, false}, {2, 1 << 20, Automatic, false}, {2, 2 << 20, Automatic, true}, {2, 64, TwoShot, true}, {2, 8 << 20, OneShot, false},
		{4, 256 << 10, Automatic, false}, {4, 512 << 10, Automatic, true}, {8, 128 << 10, Automatic, false}, {8, 256 << 10, Automatic, true},
	} {
		if got := (&NormCall{Shots: x.wanted}).inTwoShots(x.ranks, x.bytes); got != x.two {
			t.Errorf("%+v: two-shot is %v", x, got)
		}
	}
}
