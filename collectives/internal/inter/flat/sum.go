package flat

import (
	"context"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/hostreduce"
)

// gatherSum reduces one piece of all ranks in the order of the ranks, and stores it.
// own is this rank's.
func (e *Engine) gatherSum(ctx context.Context, c *engine.Call, own, to []byte) error {
	if len(own) == 0 {
		return nil
	}
	if e.Comm.Size() == 2 && !hostreduce.EightBits(c.Type) {
		return e.pairSum(ctx, c, own, to)
	}
	if err := e.addUp(ctx, c, own); err != nil {
		return err
	}
	e.sum.Store(to)
	return nil
}

// addUp is gatherSum up to where the result is stored.
func (e *Engine) addUp(ctx context.Context, c *engine.Call, own []byte) error {
	e.sum.Start(c.Type, c.Op, c.Scale, uint64(len(own)))
	for r := range e.Comm.Size() {
		if r == e.Comm.Rank() {
			e.sum.Add(own)
			continue
		}
		if err := e.Take(ctx, r, uint64(len(own)), e.sum.Add); err != nil {
			return err
		}
	}
	return nil
}

// pairSum is gatherSum of two ranks: what arrives is reduced to where the result belongs.
func (e *Engine) pairSum(ctx context.Context, c *engine.Call, own, to []byte) error {
	rank := e.Comm.Rank()
	return e.Take(ctx, 1-rank, uint64(len(own)), func(b []byte) {
		first, second := own, b
		if rank == 1 {
			first, second = b, own
		}
		hostreduce.Pair(to, first, second, c.Type, c.Op, c.Scale, 2, true)
	})
}
