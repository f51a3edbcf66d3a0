package exec_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/internal/ranktest"
	"github.com/mscclpp-go/mscclpp/plan/exec"
	"github.com/mscclpp-go/mscclpp/plan/library"
)

// Types and reductions that the switch has and that it has not give what they give without one: rank r has the element r+1 everywhere, of two.
func TestTypesThroughASwitch(t *testing.T) {
	t.Setenv(emulated.EnvImages, t.TempDir()) // none for processors
	t.Setenv(emulated.EnvRun, "ptx")
	p := compile(t, "allreduce-2pa-switch", library.Shape{Ranks: 2, Blocks: 2, InPlace: true})
	elements := map[kernel.DataType][4][]byte{ // of 1, 2, 3 and 1.5
		kernel.Float32:  {{0, 0, 0x80, 0x3f}, {0, 0, 0, 0x40}, {0, 0, 0x40, 0x40}, {0, 0, 0xc0, 0x3f}},
		kernel.Float16:  {{0, 0x3c}, {0, 0x40}, {0, 0x42}, {0, 0x3e}},
		kernel.BFloat16: {{0x80, 0x3f}, {0, 0x40}, {0x40, 0x40}, {0xc0, 0x3f}},
		kernel.Float64:  {{0, 0, 0, 0, 0, 0, 0xf0, 0x3f}, {7: 0x40}, {6: 0x08, 7: 0x40}, {6: 0xf8, 7: 0x3f}},
		kernel.Int64:    {{0: 1, 7: 0}, {0: 2, 7: 0}, {0: 3, 7: 0}, {0: 1, 7: 0}},
		kernel.Uint8:    {{1}, {2}, {3}, {1}},
	}
	results := map[kernel.Op]int{kernel.Sum: 2, kernel.Prod: 1, kernel.Min: 0, kernel.Max: 1, kernel.Avg: 3}
	ranktest.OnEmulatedSwitch(t, 2, func(ctx context.Context, c *comm.Communicator, dev *cuda.Device) error {
		e, err := exec.New(ctx, c, p)
		if err != nil {
			return err
		}
		const n = 2048
		m, err := c.Alloc(n)
		if err != nil {
			return err
		}
		stream, err := dev.NewStream()
		if err != nil {
			return err
		}
		buffer := ranktest.Memory{Device: dev, Base: m.Addr()}
		for typ, of := range ordered(elements) {
			for op, which := range ordered(results) {
				count := n / typ.Size()
				if err := buffer.Write(bytes.Repeat(of[c.Rank()], count), 0); err != nil {
					return err
				}
				call := exec.Call{Input: buffer.Pointer(0), Output: buffer.Pointer(0), InputBytes: n, OutputBytes: n, Type: typ, Op: op, Stream: stream}
				if err := errors.Join(e.Execute(&call), c.Settle(ctx, stream), c.Check()); err != nil {
					return fmt.Errorf("%v of %v: %w", op, typ, err)
				}
				got := make([]byte, n)
				if err := buffer.Read(got, 0); err != nil {
					return err
				}
				if !bytes.Equal(got, bytes.Repeat(of[which], count)) {
					return fmt.Errorf("%v of %v: %v…, expected %v", op, typ, got[:typ.Size()], of[which])
				}
			}
		}
		return errors.Join(dev.CloseStream(stream), e.Close(), m.Close())
	})
}

// ordered goes through a map in the order of its keys: all ranks make the same calls.
func ordered[K ~uint32, V any](m map[K]V) func(yield func(K, V) bool) {
	return func(yield func(K, V) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}
