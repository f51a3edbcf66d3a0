package inference_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated/interpret"
	"github.com/mscclpp-go/mscclpp/inference"
	"github.com/mscclpp-go/mscclpp/inference/image"
	"github.com/mscclpp-go/mscclpp/inference/inferencetest"
)

// interpreted is memory of a rank in the interpreter.
type interpreted struct {
	session *interpret.Session
	base    uint64
}

func (m interpreted) Pointer(at int) unsafe.Pointer {
	addr := uintptr(m.base) + uintptr(at)
	return *(*unsafe.Pointer)(unsafe.Pointer(&addr))
}
func (m interpreted) Write(p []byte, at int) error {
	if len(p) == 0 {
		return nil
	}
	return m.session.Write(m.base+uint64(at), p)
}
func (m interpreted) Read(p []byte, at int) error {
	if len(p) == 0 {
		return nil
	}
	b, err := m.session.Read(m.base+uint64(at), len(p))
	copy(p, b)
	return err
}

const (
	interpretedHalf    = 64 << 10
	interpretedNotices = 256
	interpretedRoom    = 256 << 10 // of a call's buffers
	mostInstructions   = 200e6     // of threads, in one schedule
)

// shapeOfTeams is a launch: so many teams with rows at most, of blocks of threads.
type shapeOfTeams struct {
	teams, cluster, block uint32
	vectors               int // of a thread
}

// enqueue maps the memory of ranks, and enqueues calls of all behind each other, each of which may begin before the one before it ends.
func enqueue(t *testing.T, s *interpret.Session, arch string, ranks int, trials []inferencetest.Trial, x shapeOfTeams) (at func(rank, call int) interpreted) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.Reset())
	address := func(rank int, what uint64) uint64 { return uint64(rank+1)<<36 + what<<30 }
	at = func(rank, call int) interpreted {
		return interpreted{s, address(rank, 3) + uint64(call)*interpretedRoom}
	}
	for r := range ranks {
		must(s.Memory(r, "packets", address(r, 0), interpretedNotices+2*interpretedHalf))
		must(s.Write(address(r, 0)+interpretedNotices, bytes.Repeat([]byte{0xff}, 2*interpretedHalf)))
		must(s.Memory(r, "state", address(r, 1), uint64(inference.StateBytes)))
		must(s.Memory(r, "peers", address(r, 2), uint64(8*ranks)))
		var peers []byte
		for p := range ranks {
			peers = binary.LittleEndian.AppendUint64(peers, address(p, 0))
		}
		must(s.Write(address(r, 2), peers))
		must(s.Memory(r, "buffers", address(r, 3), uint64(len(trials))*interpretedRoom))
	}
	for i, trial := range trials {
		for r := range ranks {
			call, err := trial.Call(at(r, i), r, ranks, uint64(i))
			must(err)
			rank := inference.Interpreted{Rank: r, Ranks: ranks, State: address(r, 1), Peers: address(r, 2), Notices: interpretedNotices, Half: interpretedHalf, Vectors: x.vectors}
			args, works, entry, err := rank.Arguments(call, uint8(x.cluster), x.block)
			must(err)
			if i%2 == 1 { // both kernels take turns in one memory
				entry = inference.SymbolOfNorms
			}
			must(s.Launch(&interpret.Launch{Image: fmt.Sprintf("inference-%v-%s", trial.Type, arch), Entry: entry, Rank: r,
				Grid: (min(works, x.teams) + 1) * x.cluster, Block: x.block, Overlap: i > 0, Cluster: x.cluster, Arguments: args}))
		}
	}
	must(s.Save())
	return at
}

// load decodes the images for an architecture.
func load(t *testing.T, arch string) *interpret.Session {
	t.Helper()
	s, err := interpret.Start(t.Context(), emulated.BuildInterpreter(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	set, err := image.Images()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range set.Infos() {
		if i.Arch != arch {
			continue
		}
		text, err := set.Read(i.ID)
		if err == nil {
			_, _, err = s.Image(i.ID, text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// settled has each schedule end as the first one did: with right results, and with memory into which packets may come.
func settled(t *testing.T, s *interpret.Session, ranks int, trials []inferencetest.Trial, at func(rank, call int) interpreted) {
	t.Helper()
	for i, trial := range trials {
		var first uint64
		for r := range ranks {
			sum, err := trial.Check(at(r, i), r, ranks, uint64(i))
			if err != nil {
				t.Fatalf("rank %d: %v", r, err)
			}
			if r == 0 {
				first = sum
			}
			if sum != first {
				t.Fatalf("%v: rank %d has other bits than rank 0", trial, r)
			}
			if err := s.Expect(at(r, i).base, interpretedRoom); err != nil {
				t.Fatal(err)
			}
		}
	}
	for r := range ranks {
		packets := uint64(r+1)<<36 + interpretedNotices
		b, err := s.Read(packets, 2*interpretedHalf)
		if err != nil {
			t.Fatal(err)
		}
		if i := len(bytes.TrimLeft(b, "\xff")); i != 0 {
			t.Fatalf("rank %d: a packet is left at %d", r, len(b)-i)
		}
		if err := s.Expect(packets, len(b)); err != nil {
			t.Fatal(err)
		}
	}
}

// The committed PTX is right for all types, norms, quantizations and rows, with clusters and without, on schedules of which some have a rank, a
// block or a warp lag; calls begin before those before them have ended. Nothing that it does is without an order.
func TestCommittedPTX(t *testing.T) {
	for _, x := range []struct {
		arch  string
		ranks int
		shape shapeOfTeams
		some  int // trials of all
	}{
		{"sm_90", 2, shapeOfTeams{2, 4, 32, 1}, 29}, {"sm_90", 3, shapeOfTeams{2, 2, 32, 1}, 29}, {"sm_90", 2, shapeOfTeams{2, 1, 64, 1}, 53}, {"sm_80", 2, shapeOfTeams{2, 1, 32, 1}, 53},
		{"sm_90", 3, shapeOfTeams{2, 2, 32, 2}, 19}, {"sm_90", 2, shapeOfTeams{1, 4, 32, 2}, 29}, {"sm_90", 3, shapeOfTeams{2, 4, 32, 4}, 19}, {"sm_90", 2, shapeOfTeams{1, 1, 96, 4}, 29},
	} {
		t.Run(fmt.Sprintf("%s/%d ranks/%v", x.arch, x.ranks, x.shape), func(t *testing.T) {
			s := load(t, x.arch)
			var some []inferencetest.Trial
			most := 168
			if x.shape.vectors > 1 {
				most = 1032
			}
			for i, trial := range inferencetest.Trials() {
				// Local calls count in a state of their own.
				if i%x.some == x.ranks%x.some && trial.Rows != inference.Local {
					trial.Tokens, trial.Hidden = min(trial.Tokens, 5), min(trial.Hidden, most)
					some = append(some, trial)
				}
			}
			for len(some) > 0 {
				trials := some[:min(len(some), 3)]
				some = some[len(trials):]
				at := enqueue(t, s, x.arch, x.ranks, trials, x.shape)
				if _, err := s.Run(1, 1, false, mostInstructions); err != nil {
					t.Fatalf("%v: %v", trials, err)
				}
				settled(t, s, x.ranks, trials, at)
				for first, races := range []bool{false, true} {
					if _, err := s.Run(uint64(2+first), 1, races, mostInstructions); err != nil {
						t.Fatalf("%v: %v", trials, err)
					}
				}
			}
		})
	}
}
