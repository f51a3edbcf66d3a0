package exec_test

import (
	"context"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/internal/ranktest"
	"github.com/mscclpp-go/mscclpp/plan/exec"
	"github.com/mscclpp-go/mscclpp/plan/library"
)

// A process with a GPU is killed while the others wait for it inside of a plan, in the committed PTX: they leave their kernels and name it. So it is with packets, with
// signals in staged memory, and where ranks reach each other's buffers and wait for notices.
func TestProcessIsKilledInsideOfAPlan(t *testing.T) {
	const mark = "PLAN_OF_KILLED_RANK"
	if name, yes := ranktest.IsRank(mark); yes {
		if err := ranktest.Wait(func(ctx context.Context, c *comm.Communicator, dev *cuda.Device) (begin, settle func() error, err error) {
			return oneMore(ctx, t, c, dev, name)
		}); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Setenv(emulated.EnvImages, t.TempDir()) // none for processors
	t.Setenv(emulated.EnvRun, "ptx")
	for _, name := range []string{"allreduce-2pa-packets", "allreduce-2pa-chunks", "allgather-chunks"} {
		t.Run(name, func(t *testing.T) { ranktest.Killed(t, 3, mark, name) })
	}
}

// oneMore makes a call of a plan, and returns what makes another one.
func oneMore(ctx context.Context, t *testing.T, c *comm.Communicator, dev *cuda.Device, name string) (begin, settle func() error, err error) {
	e, err := exec.New(ctx, c, compile(t, name, library.Shape{Ranks: c.Size()}))
	if err != nil {
		return nil, nil, err
	}
	m, err := c.Alloc(24 << 10)
	if err != nil {
		return nil, nil, err
	}
	if name != "allreduce-2pa-chunks" {
		if _, err := c.Exchange(ctx, m); err != nil {
			return nil, nil, err
		}
	}
	stream, err := dev.NewStream()
	if err != nil {
		return nil, nil, err
	}
	const bytes = 12 << 10
	memory := ranktest.Memory{Device: dev, Base: m.Addr()}
	call := exec.Call{Input: memory.Pointer(0), Output: memory.Pointer(bytes), InputBytes: bytes, OutputBytes: bytes, Type: kernel.Uint8, Stream: stream}
	if name == "allgather-chunks" {
		call.InputBytes /= uint64(c.Size())
	}
	begin = func() error { return e.Execute(&call) }
	settle = func() error { return c.Settle(ctx, stream) }
	if err := begin(); err != nil {
		return nil, nil, err
	}
	return begin, settle, settle()
}
