// Package rounds performs collectives over a bootstrap.
package rounds

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/failure"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/wire"
)

// Collectives work in rounds over distances 1, 3, 9, …: with the ranks at that
// distance on both sides a rank exchanges what it knows, the window of ranks
// [r-w, r+w] around itself. Three windows side by side make the next one, so N
// ranks need ceil(log3 N) rounds. In the last round only what is missing travels.

// round is one step of a collective as one rank sees it.
type round struct {
	number   int
	up, down int // the ranks at the distance, in both directions
	window   int // w before the round
	fromDown int // ranks learned from below: offsets [-w-fromDown, -w)
	fromUp   int // ranks learned from above: offsets (w, w+fromUp]
}

// schedule returns the rounds for a rank of n.
func schedule(rank, n int) []round {
	var rounds []round
	for d, w := 1, 0; 2*w+1 < n; d, w = 3*d, 3*w+1 {
		rest := n - (2*w + 1)
		rounds = append(rounds, round{
			number:   len(rounds),
			up:       (rank + d) % n,
			down:     (rank - d + n) % n,
			window:   w,
			fromDown: min(2*w+1, (rest+1)/2),
			fromUp:   min(2*w+1, rest/2),
		})
	}
	return rounds
}

// Distances lists the distances of all rounds among n ranks.
func Distances(n int) []int {
	var ds []int
	for d, w := 1, 0; 2*w+1 < n; d, w = 3*d, 3*w+1 {
		ds = append(ds, d)
	}
	return ds
}

// Kinds of collective, in the header of each message: ranks that call different
// things get an error instead of nonsense.
const (
	kindGather  = 1
	kindBarrier = 2
	HeaderSize  = 16
	PageSize    = 8 << 20 // of a gather's message
	maxGathered = 1 << 30 // bytes that one message of a gather may have in all
)

func header(kind byte, r round, n int, total int) []byte {
	h := make([]byte, 0, HeaderSize)
	h = append(h, kind, byte(r.number), 1, 0)
	h = binary.LittleEndian.AppendUint32(h, uint32(n))
	return binary.LittleEndian.AppendUint64(h, uint64(total))
}

func checkHeader(data []byte, kind byte, r round, n int) (total int, err error) {
	if len(data) < HeaderSize {
		return 0, fmt.Errorf("%w: message truncated: %d bytes, expected at least %d", framework.ErrPeer, len(data), HeaderSize)
	}
	if want := header(kind, r, n, 0); string(want[:8]) != string(data[:8]) {
		return 0, fmt.Errorf("%w: it is in kind %d round %d of %d ranks: expected kind %d round %d of %d ranks: all ranks must make the same calls in the same order",
			framework.ErrPeer, data[0], data[1], binary.LittleEndian.Uint32(data[4:]), kind, r.number, n)
	}
	if t := binary.LittleEndian.Uint64(data[8:]); t <= maxGathered {
		return int(t), nil
	}
	return 0, fmt.Errorf("%w: message of %d bytes: expected at most %d", framework.ErrPeer, binary.LittleEndian.Uint64(data[8:]), maxGathered)
}

// Barrier returns when all ranks have called it. It calls count in each round. Collective.
func Barrier(ctx context.Context, b framework.Bootstrap, tag framework.Tag, count func()) error {
	for _, r := range schedule(b.Rank(), b.Size()) {
		err := exchange(ctx, b, r, count, func(ctx context.Context, to int, _, _ int) error {
			return b.Send(ctx, to, tag, framework.Parcel{Data: header(kindBarrier, r, b.Size(), 0)})
		}, func(ctx context.Context, from int, _, _ int) error {
			p, err := b.Recv(ctx, from, tag)
			if err != nil {
				return err
			}
			_ = p.Close()
			_, err = checkHeader(p.Data, kindBarrier, r, b.Size())
			return err
		})
		if err != nil {
			return opError("barrier", err)
		}
	}
	return nil
}

// AllGatherBytes gives every rank the data of all ranks, in the order of ranks. Sizes
// may differ. It calls count in each round. Collective.
func AllGatherBytes(ctx context.Context, b framework.Bootstrap, tag framework.Tag, data []byte, count func()) ([][]byte, error) {
	n, me := b.Size(), b.Rank()
	blocks := make([][]byte, n)
	blocks[me] = append([]byte{}, data...)
	for _, r := range schedule(me, n) {
		g := gather{b: b, tag: tag, r: r, blocks: blocks}
		if err := exchange(ctx, b, r, count, g.send, g.recv); err != nil {
			return nil, opError("all-gather", err)
		}
	}
	return blocks, nil
}

func opError(op string, err error) error {
	return failure.Op(op, framework.NoPeer, err)
}

// exchange performs one round: both sends at once, and both receives. first and
// count of them say which offsets relative to the sender's rank travel.
func exchange(ctx context.Context, b framework.Bootstrap, r round, count func(),
	send, recv func(ctx context.Context, peer, first, count int) error,
) error {
	count()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// One goroutine sends: when up and down are the same rank, their order counts.
	sent := make(chan error, 1)
	go func() {
		err := failure.Named(r.up, send(ctx, r.up, r.window-r.fromDown+1, r.fromDown))
		if err == nil && r.fromUp > 0 {
			err = failure.Named(r.down, send(ctx, r.down, -r.window, r.fromUp))
		}
		if err != nil {
			cancel()
		}
		sent <- err
	}()
	err := failure.Named(r.down, recv(ctx, r.down, r.window-r.fromDown+1, r.fromDown))
	if err == nil && r.fromUp > 0 {
		err = failure.Named(r.up, recv(ctx, r.up, -r.window, r.fromUp))
	}
	// A send that is under way is not canceled: after a message that does not fit,
	// the far side shall get ours, and see the same.
	failed := <-sent
	// The one that was canceled by the other is not the cause.
	if err == nil || (failed != nil && errors.Is(err, context.Canceled)) {
		err = failed
	}
	return err
}

// gather is one round of an all-gather.
type gather struct {
	b      framework.Bootstrap
	tag    framework.Tag
	r      round
	blocks [][]byte
}

func (g gather) rank(of, offset int) int {
	n := len(g.blocks)
	return ((of+offset)%n + n) % n
}

// send sends the blocks at offsets [first, first+count) from this rank.
func (g gather) send(ctx context.Context, to, first, count int) error {
	total := 0
	for i := range count {
		total += 8 + len(g.blocks[g.rank(g.b.Rank(), first+i)])
	}
	if total > maxGathered {
		return fmt.Errorf("%w: %d bytes to send at once: expected at most %d", framework.ErrInvalid, total, maxGathered)
	}
	message := header(kindGather, g.r, len(g.blocks), total)
	message = append(make([]byte, 0, HeaderSize+total), message...)
	for i := range count {
		block := g.blocks[g.rank(g.b.Rank(), first+i)]
		message = binary.LittleEndian.AppendUint64(message, uint64(len(block)))
		message = append(message, block...)
	}
	for len(message) > 0 {
		page := message[:min(PageSize, len(message))]
		if err := g.b.Send(ctx, to, g.tag, framework.Parcel{Data: page}); err != nil {
			return err
		}
		message = message[len(page):]
	}
	return nil
}

// recv receives the blocks at offsets [first, first+count) from the sender.
func (g gather) recv(ctx context.Context, from, first, count int) error {
	p, err := g.b.Recv(ctx, from, g.tag)
	if err != nil {
		return err
	}
	_ = p.Close()
	total, err := checkHeader(p.Data, kindGather, g.r, len(g.blocks))
	if err != nil {
		return err
	}
	body := p.Data[HeaderSize:]
	for len(body) < total {
		p, err := g.b.Recv(ctx, from, g.tag)
		if err != nil {
			return err
		}
		_ = p.Close()
		if len(p.Data) == 0 {
			return fmt.Errorf("%w: message truncated: %d bytes, expected %d", framework.ErrPeer, len(body), total)
		}
		body = append(body, p.Data...)
	}
	if len(body) != total {
		return fmt.Errorf("%w: message of %d bytes: expected %d", framework.ErrPeer, len(body), total)
	}
	blocks, err := splitBlocks(body, count)
	if err != nil {
		return err
	}
	for i, block := range blocks {
		g.blocks[g.rank(from, first+i)] = block
	}
	return nil
}

// splitBlocks takes a message of an all-gather apart.
func splitBlocks(body []byte, count int) ([][]byte, error) {
	r := wire.Reader{B: body}
	blocks := make([][]byte, 0, min(count, 1<<16))
	for range count {
		size := r.U64("length of a block")
		if r.Err == nil && size > uint64(len(r.B)) {
			return nil, fmt.Errorf("%w: message truncated: a block of %d bytes, %d left", framework.ErrPeer, size, len(r.B))
		}
		blocks = append(blocks, r.Bytes(int(size), "block"))
		if r.Err != nil {
			return nil, r.Err
		}
	}
	return blocks, r.End("the last block")
}
