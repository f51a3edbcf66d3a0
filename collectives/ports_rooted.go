package collectives

import (
	"context"

	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lanes"
)

// Calls with a root go in two steps where the bytes are worth it: each rank but the root
// has a segment, which it passes on to the others, or adds up for the root. What leaves
// the root, or comes to it, does so once, where in one step it is n-1 times that.

// Two steps cost one latency more, and messages among all ranks. The bytes that they spare,
// n-2 times the buffer, have to be worth that: what a network of 50 GB/s carries meanwhile.
const (
	latencyBytes = 256 << 10
	messageBytes = 16 << 10
	piecesOfCall = 8 // so that there are some to overlap
)

// inSteps reports whether a call with a root goes in two steps.
func (p *ports) inSteps(bytes uint64) bool {
	n := uint64(p.Comm.Size())
	return n > 2 && bytes >= messageBytes+latencyBytes/(n-2)
}

// segments cuts a buffer in pieces, and each piece in a segment for every rank but the root.
// It calls f for each piece, with a function that finds a rank's segment of it in a buffer b.
func (p *ports) segments(bytes uint64, root int, f func(of func(b []byte, rank int) []byte) error) error {
	n := uint64(p.Comm.Size()) - 1
	whole := n * min(p.Piece, max(messageBytes, min(overlapPiece, wholeLines(bytes/n/piecesOfCall))))
	for at := uint64(0); at < bytes; at += whole {
		rest := min(whole, bytes-at)
		each := wholeLines((rest + n - 1) / n) // aligned for all types
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
func (p *ports) sendSegments(ctx context.Context, root int, segment func(of int) []byte) error {
	return p.SendAll(ctx, func(to int) []byte {
		if to == root {
			return nil
		}
		return segment(to)
	})
}

func (p *ports) broadcast(ctx context.Context, c *Call) error {
	bytes := c.Count * uint64(c.Type.Size())
	if p.inSteps(bytes) {
		return p.broadcastInSteps(ctx, c, bytes)
	}
	out := lanes.View(c.Output, bytes)
	if p.Comm.Rank() == c.Root {
		in := lanes.View(c.Input, bytes)
		for at := uint64(0); at < bytes; at += p.Piece {
			if err := p.SendAll(ctx, func(int) []byte { return lanes.Clip(in, at, p.Piece) }); err != nil {
				return err
			}
		}
		copy(out, in)
		return nil
	}
	for at := uint64(0); at < bytes; at += p.Piece {
		to := lanes.Clip(out, at, p.Piece)
		if err := p.Take(ctx, c.Root, uint64(len(to)), func(b []byte) { copy(to, b) }); err != nil {
			return err
		}
	}
	return nil
}

func (p *ports) broadcastInSteps(ctx context.Context, c *Call, bytes uint64) error {
	out, rank := lanes.View(c.Output, bytes), p.Comm.Rank()
	if rank == c.Root {
		in := lanes.View(c.Input, bytes)
		err := p.segments(bytes, c.Root, func(of func([]byte, int) []byte) error {
			return p.sendSegments(ctx, c.Root, func(to int) []byte { return of(in, to) })
		})
		copy(out, in)
		return err
	}
	// The next segment is passed on before those of the others are waited for.
	others := func() error { return nil }
	err := p.segments(bytes, c.Root, func(of func([]byte, int) []byte) error {
		own := of(out, rank)
		if len(own) > 0 {
			if err := p.Take(ctx, c.Root, uint64(len(own)), func(b []byte) { copy(own, b) }); err != nil {
				return err
			}
		}
		if err := p.sendSegments(ctx, c.Root, func(int) []byte { return own }); err != nil {
			return err
		}
		before := others
		others = func() error {
			return p.TakeAll(ctx, func(from int) []byte {
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

func (p *ports) reduce(ctx context.Context, c *Call) error {
	bytes := c.Count * uint64(c.Type.Size())
	if p.inSteps(bytes) {
		return p.reduceInSteps(ctx, c, bytes)
	}
	in := lanes.View(c.Input, bytes)
	for at := uint64(0); at < bytes; at += p.Piece {
		own := lanes.Clip(in, at, p.Piece)
		var err error
		if p.Comm.Rank() == c.Root {
			err = p.gatherSum(ctx, c, own, lanes.Clip(lanes.View(c.Output, bytes), at, p.Piece))
		} else {
			err = p.Post(ctx, c.Root, own)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// reduceInSteps adds up each segment in the order of the ranks, as one step does.
func (p *ports) reduceInSteps(ctx context.Context, c *Call, bytes uint64) error {
	in, rank := lanes.View(c.Input, bytes), p.Comm.Rank()
	// The next segments are on their way while one is added up.
	finish := func() error { return nil }
	err := p.segments(bytes, c.Root, func(of func([]byte, int) []byte) error {
		if err := p.sendSegments(ctx, c.Root, func(to int) []byte { return of(in, to) }); err != nil {
			return err
		}
		before := finish
		finish = func() error {
			if rank == c.Root {
				out := lanes.View(c.Output, bytes)
				return p.TakeAll(ctx, func(from int) []byte { return of(out, from) })
			}
			own := of(in, rank)
			if len(own) == 0 {
				return nil
			}
			if err := p.addUp(ctx, c, own); err != nil {
				return err
			}
			return p.Write(ctx, c.Root, uint64(len(own)), p.sum.Store)
		}
		return before()
	})
	if err != nil {
		return err
	}
	return finish()
}
