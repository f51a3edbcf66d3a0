package flat

import (
	"context"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lanes"
)

// The algorithms are direct: every rank talks to every other one, piece by piece,
// and starts with its neighbor, so that not all talk to one. A piece is sent to all
// before any is received, and there is room for several: no ranks wait in a circle.

// smallReduce is up to where every rank sends all it has to all: one step instead of
// two.
const smallReduce = 4 << 10

// overlapPiece is how much of a part is on its way at once: so much that a message costs
// more than its head, and so little that a reduction finds it in the cache.
const overlapPiece = 256 << 10

func (e *Engine) allGather(ctx context.Context, c *engine.Call) error {
	n, rank := uint64(e.Comm.Size()), e.Comm.Rank()
	part := c.Count * uint64(c.Type.Size())
	in, out := lanes.View(c.Input, part), lanes.View(c.Output, n*part)
	of := func(r int) []byte { return out[uint64(r)*part : uint64(r+1)*part] }
	copy(of(rank), in)
	for at := uint64(0); at < part; at += e.Piece {
		if err := e.SendAll(ctx, func(int) []byte { return lanes.Clip(in, at, e.Piece) }); err != nil {
			return err
		}
		if err := e.TakeAll(ctx, func(from int) []byte { return lanes.Clip(of(from), at, e.Piece) }); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) reduceScatter(ctx context.Context, c *engine.Call) error {
	n, rank := uint64(e.Comm.Size()), e.Comm.Rank()
	part := c.Count * uint64(c.Type.Size())
	in, out := lanes.View(c.Input, n*part), lanes.View(c.Output, part)
	of := func(r int) []byte { return in[uint64(r)*part : uint64(r+1)*part] }
	for at := uint64(0); at < part; at += e.Piece {
		if err := e.SendAll(ctx, func(to int) []byte { return lanes.Clip(of(to), at, e.Piece) }); err != nil {
			return err
		}
		if err := e.gatherSum(ctx, c, lanes.Clip(of(rank), at, e.Piece), lanes.Clip(out, at, e.Piece)); err != nil {
			return err
		}
	}
	return nil
}

// allReduce gives each rank a part to reduce, and gathers the parts piece by piece. Every rank
// reduces small vectors for itself. Either way an element is reduced in the order of the ranks, and
// all ranks get the same bits.
func (e *Engine) allReduce(ctx context.Context, c *engine.Call) error {
	n, rank := uint64(e.Comm.Size()), e.Comm.Rank()
	element := uint64(c.Type.Size())
	bytes := c.Count * element
	in, out := lanes.View(c.Input, bytes), lanes.View(c.Output, bytes)
	if n == 2 {
		return e.pair(ctx, c, in, out)
	}
	if bytes <= min(smallReduce, e.Piece) {
		if err := e.SendAll(ctx, func(int) []byte { return in }); err != nil {
			return err
		}
		return e.gatherSum(ctx, c, in, out)
	}
	part := (c.Count + n - 1) / n * element
	of := func(b []byte, r int) []byte { return lanes.Clip(b, uint64(r)*part, part) }
	// The next piece is on its way while one is reduced, and the one before comes back:
	// at most three of a direction, so no ranks wait in a circle.
	piece := min(e.Piece, overlapPiece)
	scatter := func(at uint64) error {
		return e.SendAll(ctx, func(to int) []byte { return lanes.Clip(of(in, to), at, piece) })
	}
	gather := func(at uint64) error {
		return e.TakeAll(ctx, func(from int) []byte { return lanes.Clip(of(out, from), at, piece) })
	}
	if err := scatter(0); err != nil {
		return err
	}
	last := uint64(0)
	for at := uint64(0); at < part; last, at = at, at+piece {
		if err := scatter(at + piece); err != nil {
			return err
		}
		mine := lanes.Clip(of(out, rank), at, piece)
		if err := e.gatherSum(ctx, c, lanes.Clip(of(in, rank), at, piece), mine); err != nil {
			return err
		}
		if at > 0 {
			if err := gather(last); err != nil {
				return err
			}
		}
		if err := e.SendAll(ctx, func(int) []byte { return mine }); err != nil {
			return err
		}
	}
	return gather(last)
}
