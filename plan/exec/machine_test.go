package exec

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/kernel/check"
	"github.com/mscclpp-go/mscclpp/framework/kernel/check/checktest"
	"github.com/mscclpp-go/mscclpp/plan/library"
	"github.com/mscclpp-go/mscclpp/plan/schema"
	"github.com/mscclpp-go/mscclpp/plan/verify"
)

// tableFile collects plans for the program of plan/kernels/testdata.
type tableFile struct{ bytes []byte }

func (f *tableFile) numbers(list ...uint64) {
	for _, n := range list {
		f.bytes = binary.LittleEndian.AppendUint64(f.bytes, n)
	}
}

func table[T any](f *tableFile, list []T) {
	f.numbers(uint64(len(list)))
	for i := range list {
		f.bytes = append(f.bytes, unsafe.Slice((*byte)(unsafe.Pointer(&list[i])), unsafe.Sizeof(list[i]))...)
	}
}

// add appends a plan as the executor decodes it, for chunks of so many bytes.
// With direct, buffers are reached where notices say.
func (f *tableFile) add(t *testing.T, p *schema.Plan, chunk uint64, packet Packet, direct bool, op kernel.Op) {
	t.Helper()
	u, all, err := inspect(p)
	if err != nil {
		t.Fatal(err)
	}
	s := newShape(p, &u, chunk, true)
	result := map[string]uint64{"allreduce": 0, "alltoall": 1, "allgather": 3}
	code, known := result[p.Collective]
	if !known || u.alias {
		code = 2
	}
	f.numbers(uint64(len(p.GPUs)), chunk, min(chunk, s.scratchChunk), s.half, s.scratch, uint64(packet), code, uint64(p.Alignment), map[bool]uint64{true: 1}[direct], uint64(op), map[bool]uint64{true: 1}[u.chunks])
	for r, x := range all {
		if op == kernel.Avg {
			totals, err := verify.Totals(p)
			if err != nil {
				t.Fatal(err)
			}
			x.divide(totals)
		}
		b := buffersOf(&p.GPUs[r], chunk)
		f.numbers(s.in[r], s.out[r], s.bytes[r], b.in, b.out)
		table(f, x.blocks)
		table(f, x.ops)
		table(f, x.operands)
		table(f, x.ids)
		semaphores := make([]uint32, len(p.GPUs[r].Semaphores))
		for i := range semaphores {
			semaphores[i] = uint32(p.GPUs[r].Semaphores[i].Init)
		}
		table(f, semaphores)
		var ends []uint64
		for k := range links(&p.GPUs[r]) {
			peer, other, ok := opposite(p, r, k)
			if !ok {
				other = -1
			}
			ends = append(ends, uint64(peer), uint64(other))
		}
		table(f, ends)
		f.numbers(uint64(x.meetings))
	}
}

// The kernel in the emulator, with all reductions, and blocks of several threads as on a GPU: under seeded schedules, and with ThreadSanitizer.
func TestMachineWithThreads(t *testing.T) {
	f := &tableFile{}
	var plans []*schema.Plan
	for _, name := range []string{"allreduce-1pa", "allreduce-2pa-packets", "allreduce-2pa-chunks", "allreduce-pipelined", "alltoall", "allgather-chunks"} {
		p, err := library.Compile(name, library.Shape{Ranks: 3, Blocks: 2})
		if err != nil {
			t.Fatal(err)
		}
		plans = append(plans, p)
	}
	ours := len(plans)
	for _, name := range []string{"groups_with_barrier", "alltoall_semaphore", "allreduce_switch", "allgather_packet_ring"} {
		p, err := schema.ReadFile("../verify/testdata/right/" + name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		plans = append(plans, p)
	}
	f.numbers(uint64(2*len(plans) + 4))
	for i, p := range plans {
		first, second := kernel.Sum, kernel.Sum
		if p.Collective == "allreduce" && i < ours {
			first, second = kernel.Op(i), kernel.Avg
		}
		f.add(t, p, 48, LL16, i%2 == 0, first)
		f.add(t, p, 16*uint64(p.Alignment)/4, LL8, i%2 == 1, second)
	}
	for _, name := range []string{"allreduce-2pa-chunks", "allgather-chunks"} { // blocks have whole rounds of loads of pairs, and a rest
		p := compiled(t, name, library.Shape{Ranks: 2, Blocks: 2})
		f.add(t, p, 2*16*77, LL16, true, kernel.Sum)
		f.add(t, p, 2*16*77, LL16, false, kernel.Sum)
	}
	file := filepath.Join(t.TempDir(), "tables")
	if err := os.WriteFile(file, f.bytes, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PLAN_TABLES", file)
	program := check.Program{Source: filepath.Join("..", "kernels", "testdata", "machine.cc")}
	checktest.Run(t, program, 4, check.Seeds, check.Races)
}
