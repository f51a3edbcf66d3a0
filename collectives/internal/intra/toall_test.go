package intra

import (
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// long notes the launches of kernels with long arguments.
type long []kernelargs.Args

func (l *long) Launch(_ device.Launch, args unsafe.Pointer, bytes uintptr) error {
	if bytes != unsafe.Sizeof(kernelargs.Args{}) {
		panic(bytes)
	}
	*l = append(*l, *(*kernelargs.Args)(args))
	return nil
}

// A reduce by the kernel of all-reduce goes in pieces. That of the root go to the output; those of other ranks lie in their own scratch,
// in the part that lines would have.
func TestReduceToAllInPieces(t *testing.T) {
	const ranks, root, in, out, scratch = 4, 2, 1 << 40, 1 << 44, 1 << 46
	for _, typ := range []kernel.DataType{kernel.Int8, kernel.Float16, kernel.Float64} {
		element := uint64(typ.Size())
		for rank := range uint32(ranks) {
			g := onAMD(t, ranks)
			at, room := g.memory.geometry.Unlined()
			for _, count := range []uint64{0, 1, room / element, room/element + 1, 5*room/element + 3} {
				a, done := &g.args, long(nil)
				a.Rank, a.Ranks, a.Lanes, a.Element, a.Count, a.Input, a.Output = rank, ranks, 128, uint32(element), count, in, out
				a.Scratch[rank] = scratch
				if err := launchToAll(a, &g.memory.geometry, &g.residents, &done, root, device.Launch{Grid: 128, Block: 512}); err != nil {
					t.Fatal(err)
				}
				sum := uint64(0)
				for _, x := range done {
					where := uintptr(scratch + at)
					if rank == root {
						where = out + uintptr(sum*element)
					}
					if x.Input != in+uintptr(sum*element) || x.Output != where || x.Count*element > room || x.Input%16 != 0 || x.Chunk == 0 {
						t.Errorf("rank %d, %d of %v: a launch of %d from %#x to %#x, %d behind the beginning", rank, count, typ, x.Count, x.Input, x.Output, sum)
					}
					sum += x.Count
				}
				if want := max(1, int((count*element+room-1)/room)); sum != count || len(done) != want {
					t.Errorf("rank %d, %d of %v: %d launches of %d in all, expected %d", rank, count, typ, len(done), sum, want)
				}
			}
		}
	}
}

// onAMD is an engine on MI300X, with the kernels that AMD's GPUs have.
func onAMD(t *testing.T, ranks int) *gpu {
	list := make([]choose.Surroundings, ranks)
	at := func(i int) string { return string(rune('a' + i)) }
	for i := range list {
		list[i] = choose.Surroundings{Device: at(i), Address: at(i), Name: "AMD Instinct MI300X", Major: 9, NoLines: true}
		list[i].Links.Known = true
		for j := range ranks {
			if j != i {
				list[i].Links.NVLinks = append(list[i].Links.NVLinks, choose.NVLink{Peer: at(j), Count: 1})
			}
		}
	}
	var kernels []string
	for _, k := range []string{"allreduce", "reducescatter", "reduce", "allgather", "broadcast", "alltoall"} {
		kernels = append(kernels, k, "zerocopy", k, "chunk")
		if k != "reduce" {
			kernels = append(kernels, k, "shares")
		}
		if k != "allreduce" {
			kernels = append(kernels, k, "direct_ll8")
		}
	}
	kernels = append(kernels, "allreduce", "oneshot_ll8", "allgather", "push", "broadcast", "push", "alltoall", "push")
	return onGPUWith(t, ranks, Options{NoLines: true, Route: choose.Joined(list, true)}, nil, nil, kernels...)
}

// Between AMD's GPUs no large message is read from peers: xGMI carries reads at two fifths of the rate of writes.
func TestLargeMessagesAreWrittenOverXGMI(t *testing.T) {
	for _, ranks := range []int{2, 3, 4, 8, 16} {
		g := onAMD(t, ranks)
		for _, k := range []collective.Kind{collective.AllReduce, collective.ReduceScatter, collective.Reduce, collective.AllGather, collective.Broadcast, collective.AllToAll} {
			for _, bytes := range []uint64{16 << 20, 64 << 20, 1 << 30} {
				for _, reached := range []engine.Reach{0, engine.ReachInputs | engine.ReachOutputs} {
					q := &engine.Query{Request: engine.Request{Collective: k, Bytes: bytes, Count: bytes / 4, Type: kernel.Float32, Ranks: ranks, Registered: reached != 0}, Reached: reached}
					if k.Wide() {
						q.Count /= uint64(ranks)
					}
					a, _, err := g.choose(q, "")
					if err != nil {
						t.Fatalf("%v, %d ranks: %v", k, ranks, err)
					}
					if writes := a.Name == "shares" || a.Name == "shares_to_all" || a.Name == "push" || a.Name == "direct_ll8"; !writes {
						t.Errorf("%v of %d MiB, %d ranks, reached %v: %s, which reads from peers", k, bytes>>20, ranks, reached, a.Name)
					}
				}
			}
		}
	}
	lines := onGPU(t, 4, Options{}, nil, "allreduce", "shares", "reduce", "zerocopy").Offers()
	if a := engine.Find(lines.Of(collective.Reduce), choose.SharesToAll); a != nil {
		t.Errorf("lines are sent, and %s is offered, which needs their scratch", a.Name)
	}
}
