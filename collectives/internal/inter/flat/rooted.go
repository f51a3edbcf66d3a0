package flat

import (
	"context"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lanes"
)

// Calls with a root go in two steps where the bytes are worth it: each rank but the root has a
// segment, which it passes on to the others, or adds up for the root. The data that leaves the
// root, or comes to it, does so once, where in one step it is n-1 times that.

// Two steps cost one latency more, and messages among all ranks. The bytes that they spare,
// n-2 times the buffer, have to be worth that: what a network of 50 GB/s carries meanwhile.
const (
	latencyBytes = 256 << 10
	messageBytes = 16 << 10
	piecesOfCall = 8 // so that there are some to overlap
)

// inSteps reports whether a call with a root goes in two steps.
func (e *Engine) inSteps(bytes uint64) bool {
	n := uint64(e.Comm.Size())
	return n > 2 && bytes >= messageBytes+latencyBytes/(n-2)
}

// segments cuts a buffer in pieces, and each piece in a segment for every rank but the root.
// It calls f for each piece, with a function that finds a rank's segment of it in a buffer b.
func (e *Engine) segments(bytes uint64, root int, f func(of func(b []byte, rank int) []byte) error) error {
	n := uint64(e.Comm.Size()) - 1
	whole := n * min(e.Piece, max(messageBytes, min(overlapPiece, lanes.WholeLines(bytes/n/piecesOfCall))))
	for at := uint64(0); at < bytes; at += whole {
		rest := min(whole, bytes-at)
		each := lanes.WholeLines((rest + n - 1) / n) // aligned for all types
		err := f(func(b []byte, rank int) []byte {
			if rank > root {
				rank--
			}
			return lanes.Clip(lanes.Clip(b, at, rest), uint64(rank)*each, each)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// sendSegments posts one of each other rank that has one.
func (e *Engine) sendSegments(ctx context.Context, root int, segment func(of int) []byte) error {
	return e.SendAll(ctx, func(to int) []byte {
		if to == root {
			return nil
		}
		return segment(to)
	})
}

func (e *Engine) broadcast(ctx context.Context, c *engine.Call) error {
	bytes := c.Count * uint64(c.Type.Size())
	if e.inSteps(bytes) {
		return e.broadcastInSteps(ctx, c, bytes)
	}
	out := lanes.View(c.Output, bytes)
	if e.Comm.Rank() == c.Root {
		in := lanes.View(c.Input, bytes)
		for at := uint64(0); at < bytes; at += e.Piece {
			if err := e.SendAll(ctx, func(int) []byte { return lanes.Clip(in, at, e.Piece) }); err != nil {
				return err
			}
		}
		copy(out, in)
		return nil
	}
	for at := uint64(0); at < bytes; at += e.Piece {
		to := lanes.Clip(out, at, e.Piece)
		if err := e.Take(ctx, c.Root, uint64(len(to)), func(b []byte) { copy(to, b) }); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) broadcastInSteps(ctx context.Context, c *engine.Call, bytes uint64) error {
	out, rank := lanes.View(c.Output, bytes), e.Comm.Rank()
	if rank == c.Root {
		in := lanes.View(c.Input, bytes)
		err := e.segments(bytes, c.Root, func(of func([]byte, int) []byte) error {
			return e.sendSegments(ctx, c.Root, func(to int) []byte { return of(in, to) })
		})
		copy(out, in)
		return err
	}
	// The next segment is passed on before those of the others are waited for.
	others := func() error { return nil }
	err := e.segments(bytes, c.Root, func(of func([]byte, int) []byte) error {
		own := of(out, rank)
		if len(own) > 0 {
			if err := e.Take(ctx, c.Root, uint64(len(own)), func(b []byte) { copy(own, b) }); err != nil {
				return err
			}
		}
		if err := e.sendSegments(ctx, c.Root, func(int) []byte { return own }); err != nil {
			return err
		}
		before := others
		others = func() error {
			return e.TakeAll(ctx, func(from int) []byte {
				if from == c.Root {
					return nil
				}
				return of(out, from)
			})
		}
		return before()
	})
	if err != nil {
		return err
	}
	return others()
}

func (e *Engine) reduce(ctx context.Context, c *engine.Call) error {
	bytes := c.Count * uint64(c.Type.Size())
	if e.inSteps(bytes) {
		return e.reduceInSteps(ctx, c, bytes)
	}
	in := lanes.View(c.Input, bytes)
	for at := uint64(0); at < bytes; at += e.Piece {
		own := lanes.Clip(in, at, e.Piece)
		var err error
		if e.Comm.Rank() == c.Root {
			err = e.gatherSum(ctx, c, own, lanes.Clip(lanes.View(c.Output, bytes), at, e.Piece))
		} else {
			err = e.Post(ctx, c.Root, own)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// reduceInSteps adds up each segment in the order of the ranks, as one step does.
func (e *Engine) reduceInSteps(ctx context.Context, c *engine.Call, bytes uint64) error {
	in, rank := lanes.View(c.Input, bytes), e.Comm.Rank()
	// The next segments are on their way while one is added up.
	finish := func() error { return nil }
	err := e.segments(bytes, c.Root, func(of func([]byte, int) []byte) error {
		if err := e.sendSegments(ctx, c.Root, func(to int) []byte { return of(in, to) }); err != nil {
			return err
		}
		before := finish
		finish = func() error {
			if rank == c.Root {
				out := lanes.View(c.Output, bytes)
				return e.TakeAll(ctx, func(from int) []byte { return of(out, from) })
			}
			own := of(in, rank)
			if len(own) == 0 {
				return nil
			}
			if err := e.addUp(ctx, c, own); err != nil {
				return err
			}
			return e.Write(ctx, c.Root, uint64(len(own)), e.sum.Store)
		}
		return before()
	})
	if err != nil {
		return err
	}
	return finish()
}
