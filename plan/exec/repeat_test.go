package exec_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/collectivetest"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/plan/exec"
	"github.com/mscclpp-go/mscclpp/plan/library"
)

// A call that differs from the one before it in one argument is another call, and one that repeats it works on what its buffers hold now.
func TestCallsThatRepeat(t *testing.T) {
	for _, name := range []string{"allreduce-1pa", "allreduce-2pa-chunks"} {
		p := compile(t, name, library.Shape{Ranks: 2})
		job(t, 2, func(ctx context.Context, c *comm.Communicator) error {
			e, err := exec.New(ctx, c, p)
			if err != nil {
				return err
			}
			defer e.Close()
			const most = 4096
			m, err := c.Alloc(3 * most)
			if err != nil {
				return err
			}
			if _, err := c.Exchange(ctx, m); err != nil {
				return err
			}
			all := device.Bytes(m)
			base := exec.Call{Input: pointer(all), Output: pointer(all[most:]), InputBytes: 1024, OutputBytes: 1024, Type: kernel.Int32, Op: kernel.Sum, Packet: exec.LL16}
			for i, change := range []func(*exec.Call){
				func(*exec.Call) {},
				func(x *exec.Call) { x.Op = kernel.Max },
				func(x *exec.Call) { x.Type = kernel.Float32 },
				func(x *exec.Call) { x.InputBytes, x.OutputBytes = most, most },
				func(x *exec.Call) { x.Packet = exec.LL8 },
				func(x *exec.Call) { x.Output = pointer(all[2*most:]) },
				func(x *exec.Call) { x.Output = x.Input },
				func(x *exec.Call) { x.Input = pointer(all[2*most:]) },
				func(x *exec.Call) { x.KeepInput = true },
			} {
				for turn := range 6 { // three times the changed call, three times the other one
					call := base
					if turn < 3 {
						change(&call)
					}
					if err := check(e, c.Rank(), call, uint64(10*i+turn)); err != nil {
						return fmt.Errorf("%s, change %d, turn %d: %w", name, i, turn, err)
					}
				}
			}
			return nil
		})
	}
}

// check makes a call of two ranks with new input, and compares its result.
func check(e *exec.Executor, rank int, call exec.Call, seed uint64) error {
	in := make([][]byte, 2)
	for r := range in {
		in[r] = make([]byte, call.InputBytes)
		collectivetest.Reference{}.Fill(in[r], call.Type, call.Op, seed, r, 0)
	}
	want := make([]byte, call.OutputBytes)
	collectivetest.Reference{}.Reduce(want, in, call.Type, call.Op, 0)
	copy(bytesAt(call.Input, call.InputBytes), in[rank])
	if err := e.Execute(&call); err != nil {
		return err
	}
	if got := bytesAt(call.Output, call.OutputBytes); !bytes.Equal(got, want) {
		return fmt.Errorf("another result than expected")
	}
	return nil
}

// A call that repeats the one before it reaches the memory of its peer that is exchanged now, at the same address of its own.
func TestRepeatedCallsAfterAnExchange(t *testing.T) {
	p := compile(t, "allreduce-2pa-chunks", library.Shape{Ranks: 2})
	job(t, 2, func(ctx context.Context, c *comm.Communicator) error {
		e, err := exec.New(ctx, c, p)
		if err != nil {
			return err
		}
		defer e.Close()
		const n = 4096
		var list [2]*comm.Memory
		for i := range list {
			if list[i], err = c.Alloc(2 * n); err != nil {
				return err
			}
		}
		for turn := range 3 {
			m := list[c.Rank()*(turn%2)] // rank 0 has one memory in all turns
			s, err := c.Exchange(ctx, m)
			if err != nil {
				return err
			}
			for i := range 2 {
				b := device.Bytes(m)
				call := exec.Call{Input: pointer(b), Output: pointer(b[n:]), InputBytes: n, OutputBytes: n, Type: kernel.Int32}
				if err := check(e, c.Rank(), call, uint64(2*turn+i)); err != nil {
					return fmt.Errorf("turn %d, call %d: %w", turn, i, err)
				}
			}
			if err := c.Barrier(ctx); err != nil {
				return err
			}
			if err := s.Close(); err != nil {
				return err
			}
		}
		return nil
	})
}

func bytesAt(p unsafe.Pointer, n uint64) []byte { return unsafe.Slice((*byte)(p), n) }
