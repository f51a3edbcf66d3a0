package exec

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/internal/ranktest"
	"github.com/mscclpp-go/mscclpp/plan/library"
	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// An average after a sum changes nothing but which operations divide, in a plan with a switch channel, where there is a switch and where there is none.
func TestAverageAfterSumThroughASwitch(t *testing.T) {
	t.Setenv(emulated.EnvImages, t.TempDir()) // none for processors
	t.Setenv(emulated.EnvRun, "ptx")
	p := compiled(t, "allreduce-2pa-switch", library.Shape{Ranks: 2, Blocks: 2, InPlace: true})
	for _, x := range []struct {
		name string
		on   func(*testing.T, int, func(context.Context, *comm.Communicator, *cuda.Device) error)
		kept uint16 // flags that some operation has
		none uint16 // flags that no operation has
	}{
		{"with", ranktest.OnEmulatedSwitch, loadsWindow | storesWindow | aliased, 0},
		{"without", ranktest.OnEmulatedGPUs, 0, loadsWindow | storesWindow | aliased},
	} {
		t.Run(x.name, func(t *testing.T) {
			x.on(t, 2, func(ctx context.Context, c *comm.Communicator, dev *cuda.Device) error {
				return averageAfterSum(ctx, c, dev, p, x.kept, x.none)
			})
		})
	}
}

func averageAfterSum(ctx context.Context, c *comm.Communicator, dev *cuda.Device, p *schema.Plan, kept, none uint16) error {
	const n = 2048
	e, err := New(ctx, c, p)
	if err != nil {
		return err
	}
	m, err := c.Alloc(n)
	if err != nil {
		return err
	}
	stream, err := dev.NewStream()
	if err != nil {
		return err
	}
	one, two, three, half := []byte{2: 0x80, 3: 0x3f}, []byte{3: 0x40}, []byte{2: 0x40, 3: 0x40}, []byte{2: 0xc0, 3: 0x3f} // 1.5
	var before []op
	for _, x := range []struct {
		op   kernel.Op
		want []byte
	}{{kernel.Sum, three}, {kernel.Avg, half}, {kernel.Sum, three}} {
		if err := dev.WriteAt(bytes.Repeat([][]byte{one, two}[c.Rank()], n/4), m.Addr()); err != nil {
			return err
		}
		if err := e.Execute(callOf(m, n, x.op, stream)); err != nil {
			return err
		}
		got := make([]byte, n)
		if err := errors.Join(c.Settle(ctx, stream), c.Check(), dev.ReadAt(got, m.Addr())); err != nil {
			return fmt.Errorf("%v: %w", x.op, err)
		}
		if !bytes.Equal(got, bytes.Repeat(x.want, n/4)) {
			return fmt.Errorf("%v: %v…, expected %v", x.op, got[:4], x.want)
		}
		ops, err := uploaded(dev, e)
		if err != nil {
			return err
		}
		var flags uint16
		for i := range ops {
			flags |= ops[i].Flags
			ops[i].Flags &^= total
		}
		if before == nil {
			before = ops
		}
		if flags&kept != kept || flags&none != 0 || !slices.Equal(ops, before) {
			return fmt.Errorf("%v: operations %+v with flags %#x: expected all of %#x, none of %#x, and as before %+v", x.op, ops, flags, kept, none, before)
		}
	}
	return errors.Join(dev.CloseStream(stream), e.Close(), m.Close())
}

func callOf(m *comm.Memory, n uint64, of kernel.Op, stream device.Stream) *Call {
	return &Call{Input: at(m.Addr()), Output: at(m.Addr()), InputBytes: n, OutputBytes: n, Type: kernel.Float32, Op: of, Stream: stream}
}

// uploaded are the operations that kernels of the executor's one arena read.
func uploaded(dev *cuda.Device, e *Executor) ([]op, error) {
	if len(e.arenas) != 1 {
		return nil, fmt.Errorf("%d arenas, expected one", len(e.arenas))
	}
	ops := make([]op, len(e.tables.ops))
	return ops, dev.ReadAt(unsafe.Slice((*byte)(unsafe.Pointer(&ops[0])), len(ops)*int(unsafe.Sizeof(ops[0]))), e.arenas[0].args.Ops)
}
