package topo

import (
	"errors"
	"slices"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

func TestPairsOfRecordedMachines(t *testing.T) {
	for machine, want := range map[string]struct {
		pairs int
		first Pair
	}{
		"h200":        {7, Pair{Count: 18, Version: 4, Switch: true}},
		"a100-direct": {3, Pair{Count: 4, Version: 3}},
		"a10":         {},
	} {
		h := readMachine(t, machine)
		pairs := h.GPUs[0].Pairs(h.GPUs)
		if len(pairs) != want.pairs {
			t.Fatalf("%s: %+v: want %d", machine, pairs, want.pairs)
		}
		if len(pairs) > 0 {
			want.first.Peer = h.GPUs[1].PCI
			if pairs[0] != want.first {
				t.Errorf("%s: %+v, want %+v", machine, pairs[0], want.first)
			}
		}
		again, err := ParsePairs(FormatPairs(pairs))
		if err != nil || !slices.Equal(again, pairs) {
			t.Errorf("%s: %+v came back as %+v, %v", machine, pairs, again, err)
		}
	}
}

func TestPairsThatAreNone(t *testing.T) {
	for _, text := range []string{"", "0000:19:00.0", "0000:19:00.0 0", "0000:19:00.0 x", "0000:19:00.0 2 4", "0000:19:00.0 2 v0",
		"0000:19:00.0 2 v4 bridge", "0000:19:00.0 2 v4 switch switch", "0000:19:00.0 2,", "0000:19:00.0 2, ", "18 between every pair, through switches"} {
		if pairs, err := ParsePairs(text); !errors.Is(err, framework.ErrInvalid) {
			t.Errorf("%q: %+v, %v: want ErrInvalid", text, pairs, err)
		}
	}
}

// Whatever is read is written again as what it was read as.
func FuzzPairs(f *testing.F) {
	for _, text := range []string{"none", "0000:19:00.0 18 v4 switch, 0000:3b:00.0 4", "a 1 switch"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		pairs, err := ParsePairs(text)
		if err != nil {
			return
		}
		again, err := ParsePairs(FormatPairs(pairs))
		if err != nil || !slices.Equal(again, pairs) {
			t.Errorf("%q: %+v, then %+v, %v", text, pairs, again, err)
		}
	})
}
