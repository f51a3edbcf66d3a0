package flat

import (
	"context"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/hostreduce"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lanes"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
)

// An all-reduce of two ranks is bound by what each of them copies and adds up, not by the
// way between them.

// pairPiece is how much two ranks send each other at once where each reduces everything:
// one step moves no more bytes than two do, and has fewer messages.
const pairPiece = 512 << 10

// pairHalves is from where on each rank reduces one half, and sends the result to where it
// belongs: that is half of the additions, and no copy more.
const pairHalves = 512 << 10

// pair is allReduce of two ranks.
func (e *Engine) pair(ctx context.Context, c *engine.Call, in, out []byte) error {
	l := &e.To[1-e.Comm.Rank()]
	if len(in) < pairHalves || l.Results == nil || hostreduce.EightBits(c.Type) {
		return e.pairWhole(ctx, c, in, out)
	}
	defer l.Results.Land(nil)
	most := 2 * (int(min(e.In.Bytes(), 1<<30)) - 2*kernelargs.CacheLine) // of which a half can land at once
	for len(in) > 0 {
		n := min(len(in), most/kernelargs.CacheLine*kernelargs.CacheLine)
		if err := e.pairInHalves(ctx, c, in[:n], out[:n]); err != nil {
			return err
		}
		in, out = in[n:], out[n:]
	}
	return nil
}

// pairWhole has each rank reduce everything. The next piece is on its way while one is
// reduced.
func (e *Engine) pairWhole(ctx context.Context, c *engine.Call, in, out []byte) error {
	bytes, piece := uint64(len(in)), min(e.Piece, pairPiece)
	for sent, at := uint64(0), uint64(0); at < bytes; at += piece {
		for ; sent < min(bytes, at+2*piece); sent += piece {
			if err := e.Post(ctx, 1-e.Comm.Rank(), lanes.Clip(in, sent, piece)); err != nil {
				return err
			}
		}
		if err := e.gatherSum(ctx, c, lanes.Clip(in, at, piece), lanes.Clip(out, at, piece)); err != nil {
			return err
		}
	}
	return nil
}

// pairInHalves has each rank reduce one half. The peer sends its results only after what it
// needs for them, so all is ready when they land.
func (e *Engine) pairInHalves(ctx context.Context, c *engine.Call, in, out []byte) error {
	rank := e.Comm.Rank()
	l := &e.To[1-rank]
	half := len(in) / 2 / kernelargs.CacheLine * kernelargs.CacheLine
	of := func(b []byte, r int) []byte {
		if r == 0 {
			return b[:half]
		}
		return b[half:]
	}
	mine, theirs := of(in, rank), of(in, 1-rank)
	l.Results.Land(of(out, 1-rank))
	// The second half may be a little longer.
	piece := min(e.Piece, pairPiece)
	for sent, at := uint64(0), uint64(0); at < uint64(max(len(mine), len(theirs))); at += piece {
		for ; sent < min(uint64(len(theirs)), at+2*piece); sent += piece {
			if err := e.Post(ctx, 1-rank, lanes.Clip(theirs, sent, piece)); err != nil {
				return err
			}
		}
		to := lanes.Clip(of(out, rank), at, piece)
		if len(to) == 0 {
			continue
		}
		if err := e.gatherSum(ctx, c, lanes.Clip(mine, at, piece), to); err != nil {
			return err
		}
		if err := l.Results.Give(ctx, at, nil, to); err != nil {
			return err
		}
	}
	for at := uint64(0); at < uint64(len(theirs)); at += piece {
		if err := l.Results.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}
