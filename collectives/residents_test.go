package collectives

import (
	"math/rand/v2"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/gpu"
)

// Whatever is launched, blocks that may wait for a peer leave room, and a launch that waits for
// the end of all before it has only itself.
func TestResidentsLeaveRoom(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		r := residents{most: 128}
		waiting := uint32(0)
		for range 200 {
			l := gpu.Launch{Grid: 1 + random.Uint32N(128), Block: 32 * (1 + random.Uint32N(16)), Overlap: true}
			when := release(random.Uint32N(3))
			switch when {
			case releaseSent:
				when = r.enter(&l)
			case releaseAtOnce: // a barrier
				l.Grid, l.Block = 1, 32
				r.enterAs(&l, when)
			default:
				r.enterAs(&l, when)
			}
			if !l.Overlap {
				waiting = 0
			}
			waiting += l.Grid
			if waiting > r.most {
				t.Fatalf("%+v, released by %d: %d blocks may be waiting, expected at most %d", l, when, waiting, r.most)
			}
			switch when {
			case releaseSent:
				waiting = l.Grid
			case releaseMet:
				waiting = 0
			}
		}
	}
}

// Calls of one size overlap, whatever it is, and small ones release each other at once, some
// of them later.
func TestCallsOfOneSizeOverlap(t *testing.T) {
	for _, x := range []struct {
		grid, block uint32
		releases    map[release]int // of 128
	}{
		{1, 128, map[release]int{releaseAtOnce: 127, releaseSent: 1}},
		{16, 64, map[release]int{releaseAtOnce: 97, releaseSent: 31}},
		{64, 64, map[release]int{releaseAtOnce: 1, releaseSent: 127}},
		{64, 512, map[release]int{releaseSent: 128}},
		{72, 512, map[release]int{releaseMet: 128}},
		{128, 512, map[release]int{releaseMet: 128}},
	} {
		r, got := residents{most: 128}, map[release]int{}
		for range 128 {
			l := gpu.Launch{Grid: x.grid, Block: x.block, Overlap: true}
			got[r.enter(&l)]++
			if !l.Overlap {
				t.Errorf("%d x %d: a launch does not overlap", x.grid, x.block)
			}
		}
		for when, n := range x.releases {
			if got[when] != n {
				t.Errorf("%d x %d: %v, expected %v", x.grid, x.block, got, x.releases)
				break
			}
		}
	}
}

// A kernel that waits for all before it leaves nothing behind it, and ranks that share a
// device overlap nothing.
func TestNoRoomNoOverlap(t *testing.T) {
	r := residents{most: 128}
	for i, want := range []bool{true, false, false} { // 64 have only sent when 128 come, and those have met
		l := gpu.Launch{Grid: []uint32{64, 128, 128}[i], Block: 512, Overlap: true}
		if i == 2 {
			r.waiting = 1
		}
		r.enter(&l)
		if l.Overlap != want {
			t.Errorf("launch %d overlaps: %v", i, l.Overlap)
		}
	}
	var none residents
	l := gpu.Launch{Grid: 1, Block: 32, Overlap: true}
	if when := none.enter(&l); l.Overlap || when == releaseAtOnce {
		t.Errorf("without room: overlap %v, release %v", l.Overlap, when)
	}
}
