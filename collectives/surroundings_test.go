package collectives

import "testing"

func TestRanksThatShareAGPU(t *testing.T) {
	for name, x := range map[string]struct {
		ranks   []surroundings
		sharing int
		noLines bool
	}{
		"each its own":     {[]surroundings{{Device: "a"}, {Device: "b"}}, 1, false},
		"two of three":     {[]surroundings{{Device: "a"}, {Device: "b"}, {Device: "a"}}, 2, false},
		"unknown devices":  {[]surroundings{{}, {}, {}}, 1, false},
		"one says more":    {[]surroundings{{Device: "a"}, {Device: "b", Sharing: 4}}, 4, false},
		"one without line": {[]surroundings{{Device: "a"}, {Device: "b", NoLines: true}}, 1, true},
	} {
		sharing, noLines := inCommon(x.ranks)
		if sharing != x.sharing || noLines != x.noLines {
			t.Errorf("%s: %d ranks share, no lines: %v: want %d, %v", name, sharing, noLines, x.sharing, x.noLines)
		}
	}
}

// Ranks that share a GPU share its multiprocessors, and their kernels do not overlap:
// what waits on the device would keep out what it waits for.
func TestBlocksOfRanksThatShare(t *testing.T) {
	c := onGPU(t, 4, Options{Sharing: 4}, allReduces...)
	c.blocks, c.overlap = 33, false
	r := request(AllReduce, 512<<10, 4)
	r.slot, r.lineSlot = c.near[0].Slot, c.near[1].Slot
	if _, l, err := c.choose(&r, ""); err != nil || l.Grid > 33 || l.Overlap {
		t.Errorf("%+v %v: want at most 33 blocks, without overlap", l, err)
	}
}
