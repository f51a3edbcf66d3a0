package exec_test

import (
	"context"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives/collectivetest"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/plan/exec"
	"github.com/mscclpp-go/mscclpp/plan/library"
)

// A call that was made before allocates nothing, whether buffers are staged or not.
func TestCallsAllocateNothing(t *testing.T) {
	for _, name := range []string{"allreduce-1pa", "allreduce-2pa-chunks"} {
		p, err := library.Compile(name, library.Shape{Ranks: 1 + 1})
		if err != nil {
			t.Fatal(err)
		}
		job(t, 2, func(ctx context.Context, c *comm.Communicator) error {
			e, err := exec.New(ctx, c, p)
			if err != nil {
				return err
			}
			defer e.Close()
			in, out := make([]byte, 4096), make([]byte, 4096)
			call := &exec.Call{Input: pointer(in), Output: pointer(out), InputBytes: 4096, OutputBytes: 4096, Type: kernel.Float32}
			var failed error
			run := func() {
				if err := e.Execute(call); err != nil {
					failed = err
				}
			}
			run()
			if n := collectivetest.Allocations(c.Rank(), run); n != 0 {
				t.Errorf("%s: %v allocations a call", name, n)
			}
			return failed
		})
	}
}
