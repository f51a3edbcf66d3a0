package exec_test

import (
	"context"
	"errors"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/internal/ranktest"
	"github.com/mscclpp-go/mscclpp/plan/exec"
	"github.com/mscclpp-go/mscclpp/plan/library"
	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// A rank on a GPU that waits inside of a plan for one that gives up leaves the kernel, and the error names that rank: in waits for signals, for packets and for the
// notice of a launch, of kernels for processors and in the committed PTX.
func TestKernelsOfPlansLeave(t *testing.T) {
	hang, err := schema.ReadFile("../verify/testdata/hang/allgather_both_wait.json")
	if err != nil {
		t.Fatal(err)
	}
	plans := []*schema.Plan{hang, compile(t, "allreduce-2pa-packets", library.Shape{Ranks: 2}), compile(t, "allreduce-2pa-chunks", library.Shape{Ranks: 2, InPlace: true})}
	for _, how := range []string{"images", "ptx"} {
		t.Run(how, func(t *testing.T) {
			folder := t.TempDir()
			if how == "images" {
				folder = emulated.Images(t, emulated.Source{Spec: "../image/kernels.json", Types: []string{"u8"}})
			}
			t.Setenv(emulated.EnvImages, folder)
			t.Setenv(emulated.EnvRun, map[string]string{"ptx": "ptx"}[how])
			for _, p := range plans {
				began := make(chan struct{})
				ranktest.OnEmulatedGPUs(t, 2, func(ctx context.Context, c *comm.Communicator, dev *cuda.Device) error {
					return leaves(ctx, t, c, dev, p, began)
				})
			}
		})
	}
}

// leaves has rank 0 begin a launch in which it waits for rank 1, which gives up once both have set up what the launch needs.
func leaves(ctx context.Context, t *testing.T, c *comm.Communicator, dev *cuda.Device, p *schema.Plan, began chan struct{}) error {
	gone := errors.New("the program has changed its mind")
	e, err := exec.New(ctx, c, p)
	if err != nil {
		return err
	}
	m, err := c.Alloc(8192)
	if err != nil {
		return err
	}
	if _, err := c.Exchange(ctx, m); err != nil {
		return err
	}
	stream, err := dev.NewStream()
	if err != nil {
		return err
	}
	memory := ranktest.Memory{Device: dev, Base: m.Addr()}
	call := exec.Call{Input: memory.Pointer(0), Output: memory.Pointer(4096), InputBytes: 4096, OutputBytes: 4096, Type: kernel.Uint8, Stream: stream}
	bothWait := p.Collective == "allgather"
	if bothWait {
		call.InputBytes = 2048
	} else if err := errors.Join(e.Execute(&call), c.Settle(ctx, stream)); err != nil { // the memory of launches is there afterwards
		return err
	}
	if c.Rank() == 0 || bothWait {
		if err := e.Execute(&call); err != nil {
			return err
		}
		if state, err := dev.Query(stream); err != nil || state != device.StreamBusy {
			t.Errorf("%s: state %v, %v: expected a kernel that waits", p.Name, state, err)
		}
	}
	if c.Rank() == 0 {
		close(began)
		refuses(t, errors.Join(c.Settle(ctx, stream), c.Check()), framework.ErrPeer, "rank 1", gone.Error())
		return nil
	}
	select {
	case <-began:
	case <-ctx.Done():
		return ctx.Err()
	}
	c.Abort(gone)
	return nil
}
