package exec_test

import (
	"context"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/plan/dsl"
	"github.com/mscclpp-go/mscclpp/plan/exec"
)

// A rank that has not begun a call yet is not taken for one in another call, although its last one had another type: the
// other rank needs nothing of it, and ends its launch first.
func TestRankThatBeginsLate(t *testing.T) {
	p := dsl.New(dsl.AllReduce(2, 1, true), dsl.Options{Name: "one_way"})
	to, from := p.MemoryChannel(1, 0), p.MemoryChannel(0, 1)
	to.Put(p.Input(1).At(1), p.Input(0).At(1), dsl.Block(0))
	to.Signal(0, dsl.Before)
	from.Wait(0, dsl.After)
	from.Put(p.Input(0).At(0), p.Input(1).At(0), dsl.Block(0)) // so that it has notices for rank 0, which waits for nothing
	plan, err := p.Compile()
	if err != nil {
		t.Fatal(err)
	}
	const calls = 20
	types := []kernel.DataType{kernel.Int32, kernel.Float32} // their kernels come in the first two calls, to which the ranks come together
	ended := [2]chan struct{}{make(chan struct{}, calls), make(chan struct{}, calls)}
	job(t, 2, func(ctx context.Context, c *comm.Communicator) error {
		e, err := exec.New(ctx, c, plan)
		if err != nil {
			return err
		}
		mine, other := ended[c.Rank()], ended[1-c.Rank()]
		defer close(mine) // one that fails leaves no other behind
		buffer := make([]byte, 8192)
		for i := range calls {
			if c.Rank() == 1 && i >= len(types) {
				select {
				case <-other:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			if err := e.Execute(&exec.Call{Input: pointer(buffer), Output: pointer(buffer), InputBytes: 8192, OutputBytes: 8192, Type: types[i%len(types)]}); err != nil {
				return err
			}
			mine <- struct{}{}
			if c.Rank() == 0 || i < len(types) {
				select {
				case <-other:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		}
		return nil
	})
}
