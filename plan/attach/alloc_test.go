package attach_test

import (
	"context"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/collectives/collectivetest"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/plan/attach"
	"github.com/mscclpp-go/mscclpp/plan/library"
)

// A call by a plan that was made before allocates nothing: what a program's collector costs would be a large part of a small message's time.
func TestCallsByPlansAllocateNothing(t *testing.T) {
	plan := compile(t, "allreduce-1pa", library.Shape{Ranks: 2})
	job(t, 2, func(ctx context.Context, c *collectives.Comm) error {
		row, err := attach.To(ctx, c, plan)
		if err != nil {
			return err
		}
		if err := c.UseTable([]collectives.Row{row}); err != nil {
			return err
		}
		in, out := make([]float32, 256), make([]float32, 256)
		var failed error
		run := func() {
			if err := c.AllReduce(unsafe.Pointer(&in[0]), unsafe.Pointer(&out[0]), len(in), kernel.Float32, kernel.Sum, nil); err != nil {
				failed = err
			}
		}
		run()
		if n := collectivetest.Allocations(c.Rank(), run); n != 0 {
			t.Errorf("%v allocations a call", n)
		}
		return failed
	})
}
