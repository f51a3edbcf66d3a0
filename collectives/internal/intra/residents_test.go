package intra

import (
	"errors"
	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/internal/streamorder"
)

// Launches that may wait for a peer leave room, for blocks and for launches, whatever else is
// launched. The launches that one has to be behind follow here from the actions of kernels, not
// from the counts.
func TestResidentsLeaveRoom(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		r := residents{most: 128}
		var waiting []uint32 // blocks of launches that no other has ended
		for range 200 {
			l := device.Launch{Grid: 1 + random.Uint32N(128), Block: 32 * (1 + random.Uint32N(16)), Overlap: true}
			var when kernelargs.Release
			switch random.Uint32N(4) {
			case 0: // a barrier
				when, l.Grid, l.Block = kernelargs.ReleaseAtOnce, 1, 32
				r = r.enterAs(&l, when)
			case 1:
				when = kernelargs.ReleaseMet
				r = r.enterAs(&l, when)
			default:
				if random.Uint32N(2) == 0 {
					l.Grid, l.Block = 1+random.Uint32N(16), 32
				}
				r, when = r.enter(&l)
			}
			if !l.Overlap {
				waiting = nil
			}
			waiting = append(waiting, l.Grid)
			sum := uint32(0)
			for _, blocks := range waiting {
				sum += blocks
			}
			if sum > 128 || len(waiting) > 64 {
				t.Fatalf("%+v, released by %d: %d blocks of %d launches may be waiting, expected at most 128 of 64", l, when, sum, len(waiting))
			}
			switch when {
			case kernelargs.ReleaseSent: // it sends when all before it have ended
				waiting = waiting[len(waiting)-1:]
			case kernelargs.ReleaseMet: // and it will end
				waiting = nil
			}
		}
	}
}

// Calls of one size overlap, whatever it is, and small ones release each other at once, some
// of them later.
func TestCallsOfOneSizeOverlap(t *testing.T) {
	for _, x := range []struct {
		grid, block uint32
		releases    map[kernelargs.Release]int // of 128
	}{
		{1, 128, map[kernelargs.Release]int{kernelargs.ReleaseAtOnce: 125, kernelargs.ReleaseSent: 3}},
		{16, 64, map[kernelargs.Release]int{kernelargs.ReleaseAtOnce: 97, kernelargs.ReleaseSent: 31}},
		{64, 64, map[kernelargs.Release]int{kernelargs.ReleaseAtOnce: 1, kernelargs.ReleaseSent: 127}},
		{64, 512, map[kernelargs.Release]int{kernelargs.ReleaseSent: 128}},
		{72, 512, map[kernelargs.Release]int{kernelargs.ReleaseMet: 128}},
		{128, 512, map[kernelargs.Release]int{kernelargs.ReleaseMet: 128}},
	} {
		r, got := residents{most: 128}, map[kernelargs.Release]int{}
		for range 128 {
			l := device.Launch{Grid: x.grid, Block: x.block, Overlap: true}
			var when kernelargs.Release
			r, when = r.enter(&l)
			got[when]++
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

// 64 blocks have only sent when 128 come, which therefore wait for their end; those have met when
// 128 more come.
func TestLaunchesWithoutRoomDoNotOverlap(t *testing.T) {
	r := residents{most: 128}
	for i, x := range []struct {
		grid    uint32
		overlap bool
		when    kernelargs.Release
	}{{64, true, kernelargs.ReleaseSent}, {128, false, kernelargs.ReleaseMet}, {128, true, kernelargs.ReleaseMet}, {64, true, kernelargs.ReleaseSent}, {72, false, kernelargs.ReleaseMet}} {
		l := device.Launch{Grid: x.grid, Block: 512, Overlap: true}
		var when kernelargs.Release
		if r, when = r.enter(&l); l.Overlap != x.overlap || when != x.when {
			t.Errorf("launch %d: overlap %v, release %d: expected %+v", i, l.Overlap, when, x)
		}
	}
	l := device.Launch{Grid: 1, Block: 32, Overlap: true}
	if _, when := (residents{}).enter(&l); l.Overlap || when == kernelargs.ReleaseAtOnce {
		t.Errorf("without room: overlap %v, release %d", l.Overlap, when)
	}
}

func TestSpareMultiprocessors(t *testing.T) {
	for n, want := range map[uint32]uint32{132: 4, 114: 3, 108: 3, 33: 2, 16: 2, 4: 1, 1: 0} {
		if got := spare(n); got != want {
			t.Errorf("%d of %d: expected %d", got, n, want)
		}
	}
}

// refusing is a kernel whose launches fail.
type refusing struct{}

func (refusing) Launch(device.Launch, unsafe.Pointer, uintptr) error { return errors.New("refused") }

// A launch that fails is not there, and waits for nobody: what was counted stays.
func TestFailedLaunchesAreNotCounted(t *testing.T) {
	c := onGPU(t, 2, Options{}, nil, allReduces...)
	c.args.Element, c.args.Count = 4, 1
	c.residents.waiting = 64
	p := choose.TraitsOf("oneshot_ll128", collective.AllReduce).Protocol
	if err := c.ll.launch(refusing{}, p, device.Launch{Grid: 72, Block: 512, Overlap: true}); err == nil || c.residents.waiting != 64 {
		t.Errorf("%v, %d blocks are waiting: expected an error, and 64", err, c.residents.waiting)
	}
}

// Ranks that share a GPU share its multiprocessors, and their kernels do not overlap:
// what waits on the device would keep out what it waits for.
func TestBlocksOfRanksThatShare(t *testing.T) {
	c := onGPU(t, 4, Options{Sharing: 4}, nil, allReduces...)
	r := request(collective.AllReduce, 512<<10, 4)
	if _, l, err := c.choose(&r, ""); err != nil || l.Grid > 31 || l.Overlap {
		t.Errorf("%+v %v: want at most 31 blocks, without overlap", l, err)
	}
}

// partly is a device whose streams have some of its processors.
type partly struct {
	device.Device
	device.Engine
	processors map[device.Stream]int
	numbers    map[device.Stream]uint64
	asked      int
}

func (d *partly) Info() device.Info                       { return device.Info{SMs: 132} }
func (d *partly) StreamOpen(device.Stream) bool           { return false }
func (d *partly) StreamID(s device.Stream) uint64         { return d.numbers[s] }
func (d *partly) Capturing(s device.Stream) (bool, error) { return s == 9, nil }
func (d *partly) NewMark() (device.Mark, error)           { return anyMark{}, nil }
func (d *partly) StreamProcessors(s device.Stream) int    { d.asked++; return d.processors[s] }

type anyMark struct{ device.Mark }

func (anyMark) RecordAll() error           { return nil }
func (anyMark) Record(device.Stream) error { return nil }
func (anyMark) Wait(device.Stream) error   { return nil }

// Launches on a stream that has some of the processors leave some of these free, whichever stream came before.
func TestResidentsOfStreams(t *testing.T) {
	d := &partly{processors: map[device.Stream]int{8: 8, 16: 16}, numbers: map[device.Stream]uint64{8: 1, 16: 2, 32: 3}}
	var r residents
	var order streamorder.Order
	for i, c := range []struct {
		stream device.Stream
		most   uint32
		asked  int // in all
	}{
		{8, 6, 1}, {8, 6, 1}, {9, 128, 2}, {8, 6, 3}, {8, 6, 3}, {32, 128, 4}, {16, 14, 5},
	} {
		if _, err := order.Follow(d, c.stream); err != nil {
			t.Fatal(err)
		}
		r.fit(d, c.stream, &order, &Options{})
		if r.most != c.most || d.asked != c.asked {
			t.Errorf("call %d, on stream %d: at most %d blocks, asked %d times: expected %d and %d", i, c.stream, r.most, d.asked, c.most, c.asked)
		}
		if order.One(r.stream) != (i < 5 && c.stream == 8) {
			t.Errorf("call %d: C repeats calls on stream %d, although it is not the only one", i, r.stream)
		}
	}
	// Another stream has got the handle.
	r, order = residents{}, streamorder.Order{}
	for _, most := range []uint32{6, 128} {
		if _, err := order.Follow(d, 8); err != nil {
			t.Fatal(err)
		}
		if r.fit(d, 8, &order, &Options{}); r.most != most {
			t.Errorf("at most %d blocks: expected %d", r.most, most)
		}
		d.processors[8], d.numbers[8] = 0, 5
	}
	// The user allows 16 blocks, and the stream has 8 processors.
	d.processors[8] = 8
	r = residents{}
	if r.fit(d, 8, &order, &Options{MaxBlocks: 16}); r.most != 6 {
		t.Errorf("at most %d blocks: expected 6", r.most)
	}
}
