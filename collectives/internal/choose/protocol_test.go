package choose

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Kernels that cut messages count up to mostOfLaunch bytes right.
func TestLinesAreCounted(t *testing.T) {
	dir := t.TempDir()
	const source = `#include "stream.h"
#include <initializer_list>
int main() {
  using C = mscclpp::collectives::LineCarrier;
  for (uint64_t bytes : {uint64_t(MOST), uint64_t(PART), uint64_t(1), uint64_t(120), uint64_t(121)}) {
    if (C::units(bytes) != (bytes + 119) / 120 * 8) return 1;
  }
}`
	program := filepath.Join(dir, "units")
	build := exec.CommandContext(t.Context(), "g++", "-std=c++17", "-I../../kernels", "-I../../../framework/kernel/include",
		"-DMOST="+strconv.Itoa(mostOfLaunch), "-DPART="+strconv.Itoa(LaunchPart), "-x", "c++", "-", "-o", program)
	in, err := build.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer in.Close()
		_, _ = in.Write([]byte(source))
	}()
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	if err := exec.CommandContext(t.Context(), program).Run(); err != nil {
		t.Error(err)
	}
}

// Data that ranks have in common may have more bytes than a launch counts: then there are several,
// one behind the other. Data that each rank has for each other may not.
func TestMoreThanALaunchIsForOne(t *testing.T) {
	p, _ := llProtocol("stream_ll128")
	for bytes, fits := range map[uint64]bool{mostOfLaunch: true, mostOfLaunch + 1: false} {
		for k, x := range map[collective.Kind]engine.Request{
			collective.AllGather: {Bytes: 2 * bytes}, collective.ReduceScatter: {Bytes: 2 * bytes}, collective.AllToAll: {Bytes: 2 * bytes},
			collective.AllReduce: {Bytes: bytes}, collective.Broadcast: {Bytes: bytes}, collective.Reduce: {Bytes: bytes},
		} {
			x.Collective, x.Count, x.Type, x.Ranks = k, bytes, kernel.Uint8, 2
			slots := Slots{kernelargs.LineArea: 1 << 30}
			if got := p.Room(&x) <= p.Of(slots); got != (fits || !k.Wide()) {
				t.Errorf("%v of %d bytes of each rank: fits %v", k, bytes, got)
			}
		}
	}
}

// Messages in pieces may have any size that their units can count, if a slot holds a
// unit of each thread of the largest launch.
func TestPiecesFitAnySlotThatHoldsARow(t *testing.T) {
	p, ll := llProtocol("stream_ll128")
	if !ll || p.Area != kernelargs.LineArea || !p.Pieces {
		t.Fatalf("%+v, %v", p, ll)
	}
	if chain, ll := llProtocol("chain_ll128"); !ll || chain != p {
		t.Errorf("a chain of lines: %+v, %v", chain, ll)
	}
	if _, ll := llProtocol(Chain); ll {
		t.Error("a chain of chunks has no packets")
	}
	const row = 2 * (streamThreads + lineUnits) / lineUnits * kernelargs.LineRoom
	for _, x := range []struct {
		bytes, slot uint64
		fits        bool
	}{
		{1 << 20, row, true}, {1 << 20, row - 1, false}, {32 << 30, row, true}, {32<<30 + 2, 1 << 40, false},
	} {
		r := engine.Request{Collective: collective.AllReduce, Bytes: x.bytes, Count: x.bytes / 2, Type: kernel.Float16, Ranks: 2}
		slots := Slots{kernelargs.LineArea: x.slot}
		if fits := p.Room(&r) <= p.Of(slots); fits != x.fits {
			t.Errorf("%d bytes, slots of %d: fits %v", x.bytes, x.slot, fits)
		}
	}
}

// A call takes at most those bytes of a slot that its kernel writes.
func TestRoomOfLLKernels(t *testing.T) {
	for _, name := range []string{"oneshot_ll8", "oneshot_ll128", "twoshot_ll128", "direct_ll8", "direct_ll128", "oneshot_lamport", "direct_lamport"} {
		p, ok := llProtocol(name)
		if !ok {
			t.Fatalf("%s: no kernel for LL packets", name)
		}
		for _, ranks := range []int{2, 3, 8} {
			for _, count := range []uint64{1, 59, 60, 61, 1000, 1 << 20} {
				for _, typ := range []kernel.DataType{kernel.Int8, kernel.Float64} {
					r := engine.Request{Collective: collective.AllReduce, Count: count, Type: typ, Ranks: ranks}
					bytes := count * uint64(typ.Size())
					group, wire := uint64(4), uint64(8)
					switch {
					case p.Area == kernelargs.LineArea:
						group, wire = 120, kernelargs.LineRoom
					case p.Area == kernelargs.LamportArea:
						group, wire = 16, 16
					case typ.Size() == 8:
						group, wire = 8, 16
					}
					groups := (bytes + group - 1) / group
					need := groups * wire
					if p.Twice {
						need = 2 * ((groups + uint64(ranks) - 1) / uint64(ranks)) * wire
					}
					if got := p.Room(&r); got < need {
						t.Errorf("%s, %d x %v, %d ranks: room %d: the kernel writes %d", name, count, typ, ranks, got, need)
					}
				}
			}
		}
	}
	if _, ok := llProtocol("zerocopy"); ok {
		t.Error("zerocopy is no kernel for LL packets")
	}
}
