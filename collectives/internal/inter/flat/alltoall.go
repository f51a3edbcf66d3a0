package flat

import (
	"context"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lanes"
)

func (e *Engine) allToAll(ctx context.Context, c *engine.Call) error {
	n, rank := uint64(e.Comm.Size()), e.Comm.Rank()
	part := c.Count * uint64(c.Type.Size())
	in, out := lanes.View(c.Input, n*part), lanes.View(c.Output, n*part)
	of := func(b []byte, r int) []byte { return b[uint64(r)*part : uint64(r+1)*part] }
	copy(of(out, rank), of(in, rank))
	// In place what is received overwrites what was sent a moment before.
	for at := uint64(0); at < part; at += e.Piece {
		if err := e.SendAll(ctx, func(to int) []byte { return lanes.Clip(of(in, to), at, e.Piece) }); err != nil {
			return err
		}
		if err := e.TakeAll(ctx, func(from int) []byte { return lanes.Clip(of(out, from), at, e.Piece) }); err != nil {
			return err
		}
	}
	return nil
}
