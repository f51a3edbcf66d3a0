package collectives

import (
	"context"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/hostreduce"
)

// The algorithms are direct: every rank talks to every other one, piece by piece,
// and starts with its neighbor, so that not all talk to one. A piece is sent to all
// before any is received, and there is room for several: nobody waits in a circle.

// smallReduce is up to where every rank sends all it has to all: one step instead of
// two.
const smallReduce = 4 << 10

// overlapPiece is how much of a part is on its way at once: so much that a message costs
// more than its head, and so little that a reduction finds it in the cache.
const overlapPiece = 256 << 10

// view is memory of the caller.
func view(p unsafe.Pointer, bytes uint64) []byte {
	if p == nil {
		return nil
	}
	return unsafe.Slice((*byte)(p), bytes)
}

// clip is the part of b that piece number at has.
func clip(b []byte, at, piece uint64) []byte {
	n := uint64(len(b))
	return b[min(at, n):min(at+piece, n)]
}

// others calls f for every other rank: whom to send to, and whom to receive from.
func (p *ports) others(f func(to, from int) error) error {
	n, rank := p.comm.Size(), p.comm.Rank()
	for d := 1; d < n; d++ {
		if err := f((rank+d)%n, (rank-d+n)%n); err != nil {
			return err
		}
	}
	return nil
}

// sendAll posts one piece of what each other rank is to get. Empty ones are not sent:
// both ends know.
func (p *ports) sendAll(ctx context.Context, piece func(to int) []byte) error {
	return p.others(func(to, _ int) error {
		if b := piece(to); len(b) > 0 {
			return p.post(ctx, to, b)
		}
		return nil
	})
}

// takeAll receives one piece from each other rank to where it belongs.
func (p *ports) takeAll(ctx context.Context, place func(from int) []byte) error {
	return p.others(func(_, from int) error {
		to := place(from)
		if len(to) == 0 {
			return nil
		}
		return p.take(ctx, from, uint64(len(to)), func(b []byte) { copy(to, b) })
	})
}

func (p *ports) barrier(ctx context.Context, _ *Call) error {
	n, rank := p.comm.Size(), p.comm.Rank()
	for k := 1; k < n; k *= 2 {
		if err := p.post(ctx, (rank+k)%n, nil); err != nil {
			return err
		}
		if err := p.take(ctx, (rank-k+n)%n, 0, nil); err != nil {
			return err
		}
	}
	return nil
}

func (p *ports) allGather(ctx context.Context, c *Call) error {
	n, rank := uint64(p.comm.Size()), p.comm.Rank()
	part := c.Count * uint64(c.Type.Size())
	in, out := view(c.Input, part), view(c.Output, n*part)
	of := func(r int) []byte { return out[uint64(r)*part : uint64(r+1)*part] }
	copy(of(rank), in)
	for at := uint64(0); at < part; at += p.piece {
		if err := p.sendAll(ctx, func(int) []byte { return clip(in, at, p.piece) }); err != nil {
			return err
		}
		if err := p.takeAll(ctx, func(from int) []byte { return clip(of(from), at, p.piece) }); err != nil {
			return err
		}
	}
	return nil
}

func (p *ports) allToAll(ctx context.Context, c *Call) error {
	n, rank := uint64(p.comm.Size()), p.comm.Rank()
	part := c.Count * uint64(c.Type.Size())
	in, out := view(c.Input, n*part), view(c.Output, n*part)
	of := func(b []byte, r int) []byte { return b[uint64(r)*part : uint64(r+1)*part] }
	copy(of(out, rank), of(in, rank))
	// In place what is received overwrites what was sent a moment before.
	for at := uint64(0); at < part; at += p.piece {
		if err := p.sendAll(ctx, func(to int) []byte { return clip(of(in, to), at, p.piece) }); err != nil {
			return err
		}
		if err := p.takeAll(ctx, func(from int) []byte { return clip(of(out, from), at, p.piece) }); err != nil {
			return err
		}
	}
	return nil
}

// gatherSum reduces one piece of all ranks in the order of the ranks, and stores it.
// own is this rank's.
func (p *ports) gatherSum(ctx context.Context, c *Call, own, to []byte) error {
	if len(own) == 0 {
		return nil
	}
	if p.comm.Size() == 2 && !hostreduce.EightBits(c.Type) {
		return p.pairSum(ctx, c, own, to)
	}
	if err := p.addUp(ctx, c, own); err != nil {
		return err
	}
	p.sum.Store(to)
	return nil
}

// addUp is gatherSum up to where the result is stored.
func (p *ports) addUp(ctx context.Context, c *Call, own []byte) error {
	p.sum.Start(c.Type, c.Op, c.Scale, uint64(len(own)))
	for r := range p.comm.Size() {
		if r == p.comm.Rank() {
			p.sum.Add(own)
			continue
		}
		if err := p.take(ctx, r, uint64(len(own)), p.sum.Add); err != nil {
			return err
		}
	}
	return nil
}

func (p *ports) reduceScatter(ctx context.Context, c *Call) error {
	n, rank := uint64(p.comm.Size()), p.comm.Rank()
	part := c.Count * uint64(c.Type.Size())
	in, out := view(c.Input, n*part), view(c.Output, part)
	of := func(r int) []byte { return in[uint64(r)*part : uint64(r+1)*part] }
	for at := uint64(0); at < part; at += p.piece {
		if err := p.sendAll(ctx, func(to int) []byte { return clip(of(to), at, p.piece) }); err != nil {
			return err
		}
		if err := p.gatherSum(ctx, c, clip(of(rank), at, p.piece), clip(out, at, p.piece)); err != nil {
			return err
		}
	}
	return nil
}

// allReduce gives each rank a part to reduce, and gathers the parts piece by piece.
// What is small every rank reduces for itself. Either way an element is reduced in
// the order of the ranks, and all ranks get the same bits.
func (p *ports) allReduce(ctx context.Context, c *Call) error {
	n, rank := uint64(p.comm.Size()), p.comm.Rank()
	element := uint64(c.Type.Size())
	bytes := c.Count * element
	in, out := view(c.Input, bytes), view(c.Output, bytes)
	if n == 2 {
		return p.pair(ctx, c, in, out)
	}
	if bytes <= min(smallReduce, p.piece) {
		if err := p.sendAll(ctx, func(int) []byte { return in }); err != nil {
			return err
		}
		return p.gatherSum(ctx, c, in, out)
	}
	part := (c.Count + n - 1) / n * element
	of := func(b []byte, r int) []byte { return clip(b, uint64(r)*part, part) }
	// The next piece is on its way while one is reduced, and the one before comes back:
	// at most three of a direction, so nobody waits in a circle.
	piece := min(p.piece, overlapPiece)
	scatter := func(at uint64) error {
		return p.sendAll(ctx, func(to int) []byte { return clip(of(in, to), at, piece) })
	}
	gather := func(at uint64) error {
		return p.takeAll(ctx, func(from int) []byte { return clip(of(out, from), at, piece) })
	}
	if err := scatter(0); err != nil {
		return err
	}
	last := uint64(0)
	for at := uint64(0); at < part; last, at = at, at+piece {
		if err := scatter(at + piece); err != nil {
			return err
		}
		mine := clip(of(out, rank), at, piece)
		if err := p.gatherSum(ctx, c, clip(of(in, rank), at, piece), mine); err != nil {
			return err
		}
		if at > 0 {
			if err := gather(last); err != nil {
				return err
			}
		}
		if err := p.sendAll(ctx, func(int) []byte { return mine }); err != nil {
			return err
		}
	}
	return gather(last)
}
