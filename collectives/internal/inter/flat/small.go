package flat

import (
	"context"
)

// barrier: in step k each rank hears of 2^k others.
func (e *Engine) barrier(ctx context.Context) error {
	n, rank := e.Comm.Size(), e.Comm.Rank()
	for k := 1; k < n; k *= 2 {
		if err := e.Post(ctx, (rank+k)%n, nil); err != nil {
			return err
		}
		if err := e.Take(ctx, (rank-k+n)%n, 0, nil); err != nil {
			return err
		}
	}
	return nil
}
