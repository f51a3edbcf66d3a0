package exec_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/collectivetest"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/plan/dsl"
	"github.com/mscclpp-go/mscclpp/plan/exec"
	"github.com/mscclpp-go/mscclpp/plan/library"
)

func pointer(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

// An all-reduce of packets gives what it should, launch after launch.
func TestAllReduceOfPackets(t *testing.T) {
	p, err := library.Compile("allreduce-1pa", library.Shape{Ranks: 2})
	if err != nil {
		t.Fatal(err)
	}
	job(t, 2, func(ctx context.Context, c *comm.Communicator) error {
		e, err := exec.New(ctx, c, p)
		if err != nil {
			return err
		}
		defer e.Close()
		for launch := range uint64(8) {
			packet := []exec.Packet{exec.LL8, exec.LL16}[launch/4]
			const n = 4096
			in, out := make([][]byte, 2), make([]byte, n)
			for r := range in {
				in[r] = make([]byte, n)
				collectivetest.Reference{}.Fill(in[r], kernel.Float32, kernel.Sum, launch, r, 0)
			}
			if err := e.Execute(&exec.Call{Input: pointer(in[c.Rank()]), Output: pointer(out), InputBytes: n, OutputBytes: n, Packet: packet}); err != nil {
				return err
			}
			want := make([]byte, n)
			collectivetest.Reference{}.Reduce(want, in, kernel.Float32, kernel.Sum, 0)
			if !bytes.Equal(out, want) {
				return fmt.Errorf("launch %d: another result than expected", launch)
			}
		}
		return nil
	})
}

// A plan of one rank that works in place has no operations: a call that is not in place gets its result all the same, also when it repeats.
func TestPlanWithoutOperations(t *testing.T) {
	p, err := dsl.New(dsl.AllReduce(1, 1, true), dsl.Options{Name: "nothing"}).Compile()
	if err != nil {
		t.Fatal(err)
	}
	job(t, 1, func(ctx context.Context, c *comm.Communicator) error {
		e, err := exec.New(ctx, c, p)
		if err != nil {
			return err
		}
		defer e.Close()
		in, out := make([]byte, 4096), make([]byte, 4096)
		for launch := range uint64(3) {
			collectivetest.Reference{}.Fill(in, kernel.Float32, kernel.Sum, launch, 0, 0)
			if err := e.Execute(&exec.Call{Input: pointer(in), Output: pointer(out), InputBytes: 4096, OutputBytes: 4096, KeepInput: true}); err != nil {
				return err
			}
			if !bytes.Equal(in, out) {
				return fmt.Errorf("launch %d: the output is not the input", launch)
			}
		}
		return nil
	})
}

// Large messages of packets go in several passes: what they give is the same, in place and not, with messages of other sizes between them.
func TestPassesOfPackets(t *testing.T) {
	for _, name := range []string{"allreduce-1pa", "allreduce-2pa-packets"} {
		for _, shape := range []library.Shape{{Ranks: 2}, {Ranks: 3, Blocks: 2, InPlace: true}} {
			p, err := library.Compile(name, shape)
			if err != nil {
				t.Fatal(err)
			}
			job(t, shape.Ranks, func(ctx context.Context, c *comm.Communicator) error {
				e, err := exec.New(ctx, c, p)
				if err != nil {
					return err
				}
				defer e.Close()
				for launch, n := range []int{48 * 16, 48 * 80002, 48 * 32, 48 * 4096, 48 * 80002, 48 * 70000} {
					in, out := make([][]byte, c.Size()), make([]byte, n)
					for r := range in {
						in[r] = make([]byte, n)
						collectivetest.Reference{}.Fill(in[r], kernel.Float32, kernel.Sum, uint64(launch), r, 0)
					}
					want := make([]byte, n)
					collectivetest.Reference{}.Reduce(want, in, kernel.Float32, kernel.Sum, 0)
					own := in[c.Rank()]
					if launch%2 == 1 {
						out = own
					}
					if err := e.Execute(&exec.Call{Input: pointer(own), Output: pointer(out), InputBytes: uint64(n), OutputBytes: uint64(n), Packet: []exec.Packet{exec.LL8, exec.LL16}[launch%2]}); err != nil {
						return err
					}
					if !bytes.Equal(out, want) {
						return fmt.Errorf("%s, launch %d of %d bytes: another result than expected", p.Name, launch, n)
					}
				}
				return nil
			})
		}
	}
}
