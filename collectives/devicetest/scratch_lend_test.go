package devicetest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// borrower is a communicator that was split off, with a buffer of its own for sums.
type borrower struct {
	*rank
	c     *collectives.Comm
	comm  *comm.Communicator
	mem   device.Memory
	at    uintptr
	value float32 // in the elements that are looked at
}

const (
	borrowed      = 4 << 20 // elements of a call
	borrowedBytes = 4 * borrowed
	borrowedMiB   = 32 // for its pieces, the least that a communicator has
)

// borrowers splits off n communicators of the ranks with this color.
func (r *rank) borrowers(ctx context.Context, n, color int) (list []*borrower, err error) {
	o := collectives.Options{Scratch: 8 << 20, CopyScratch: 1 << 30}
	for range n {
		b := &borrower{rank: r, value: 1}
		if b.comm, err = r.world.Split(ctx, color, r.Rank()); err != nil {
			return nil, err
		}
		if b.c, err = collectives.New(ctx, b.comm, o); err != nil {
			return nil, err
		}
		if b.mem, err = r.dev.Alloc(borrowedBytes); err != nil {
			return nil, err
		}
		b.at = b.mem.Addr()
		if err := b.set(1); err != nil {
			return nil, err
		}
		list = append(list, b)
	}
	return list, nil
}

// lending is job with n communicators of all ranks, which are closed behind f.
func lending(t *testing.T, ranks, n int, f func(ctx context.Context, r *rank, list []*borrower) error) {
	t.Helper()
	job(t, ranks, collectives.Options{}, func(ctx context.Context, r *rank) error {
		list, err := r.borrowers(ctx, n, 0)
		if err != nil {
			return err
		}
		return errors.Join(f(ctx, r, list), closeAll(list))
	})
}

func closeAll(list []*borrower) error {
	var all []error
	for _, b := range list {
		all = append(all, b.c.Close(), b.comm.Close(), b.mem.Close())
	}
	return errors.Join(all...)
}

var looked = []uintptr{0, 1, borrowed/2 - 1, borrowed / 2, borrowed - 1}

func (b *borrower) set(v float32) error {
	var word [4]byte
	binary.LittleEndian.PutUint32(word[:], math.Float32bits(v))
	var all []error
	for _, i := range looked {
		all = append(all, b.dev.WriteAt(word[:], b.at+4*i))
	}
	b.value = v
	return errors.Join(all...)
}

// sum makes an all-reduce in pieces, and waits for its end: memory that is in use for long is not lent.
func (b *borrower) sum() error {
	if err := b.sumOn(b.stream, "copy_staged"); err != nil {
		return err
	}
	return b.world.Settle(context.Background(), b.stream)
}

func (b *borrower) sumOn(s device.Stream, algorithm string) error {
	return b.c.AllReduce(pointer(b.at), pointer(b.at), borrowed, kernel.Float32, kernel.Sum, &collectives.CallOptions{Stream: s, Algorithm: algorithm})
}

// summed says that so many sums have doubled what is there.
func (b *borrower) summed(times int) error {
	for range times {
		b.value *= float32(b.c.Size())
	}
	for _, i := range looked {
		var word [4]byte
		if err := b.dev.ReadAt(word[:], b.at+4*i); err != nil {
			return err
		}
		if got := math.Float32frombits(binary.LittleEndian.Uint32(word[:])); got != b.value {
			return fmt.Errorf("comm %s: element %d is %v, expected %v", b.comm.Name(), i, got, b.value)
		}
	}
	return nil
}

func (r *rank) held() (uint64, error) {
	free, total, err := r.dev.MemoryInfo()
	return (total - free) >> 20, err
}

// Five communicators that have made large calls one after the other hold memory for the pieces of one.
func TestCommunicatorsLendCopyScratch(t *testing.T) {
	lending(t, 2, 5, func(ctx context.Context, r *rank, list []*borrower) error {
		before, err := r.held()
		if err != nil {
			return err
		}
		for range 2 {
			for _, b := range list {
				if err := b.sum(); err != nil {
					return err
				}
			}
		}
		if err := r.settle(ctx); err != nil {
			return err
		}
		for _, b := range list {
			if err := b.summed(2); err != nil {
				return err
			}
		}
		return errors.Join(r.holds("after large calls", before, borrowedMiB), r.world.Barrier(ctx))
	})
}

// holds says that so many MiB more than before are held; kernels and streams take some.
func (r *rank) holds(what string, before, more uint64) error {
	now, err := r.held()
	if got := now - before; err == nil && (got < more || got > more+16) {
		err = fmt.Errorf("%s: %d MiB are held, expected about %d", what, got, more)
	}
	return err
}

// Graphs keep memory for as long as their communicator lives. A communicator that has given its memory up makes new one for a call
// that is captured.
func TestGraphsKeepCopyScratch(t *testing.T) {
	lending(t, 2, 3, func(ctx context.Context, r *rank, list []*borrower) error {
		before, err := r.held()
		if err != nil {
			return err
		}
		a, b, c := list[0], list[1], list[2]
		if err := errors.Join(a.sum(), b.sum(), r.holds("two have made calls", before, borrowedMiB)); err != nil {
			return err
		}
		graph, err := capture(r, func() error { return a.sumOn(a.stream, "copy_staged") }) // which takes the memory of b
		if err != nil {
			return err
		}
		err = errors.Join(graph.Launch(r.stream), c.sum(), b.sum(), graph.Launch(r.stream), r.settle(ctx))
		return errors.Join(err, a.summed(3), b.summed(2), c.summed(1), r.holds("a graph keeps its own", before, 2*borrowedMiB), graph.Close())
	})
}

// Copies of an aborted communicator may still run: its memory stays its own until it is closed.
func TestAbortedCommunicatorKeepsCopyScratch(t *testing.T) {
	lending(t, 2, 3, func(ctx context.Context, r *rank, list []*borrower) error {
		before, err := r.held()
		if err != nil {
			return err
		}
		a, b, c := list[0], list[1], list[2]
		if err := errors.Join(a.sum(), r.settle(ctx), r.world.Barrier(ctx)); err != nil {
			return err
		}
		if r.Rank() == 0 {
			err = a.sumOn(a.stream, "copy_staged") // of which the other rank knows nothing
			a.comm.Abort(errors.New("by the test"))
		}
		<-a.comm.Done()
		for range 3 {
			err = errors.Join(err, b.sum(), c.sum())
		}
		err = errors.Join(err, r.settle(ctx), b.summed(3), c.summed(3), r.holds("one has failed", before, 2*borrowedMiB), r.world.Barrier(ctx))
		return errors.Join(err, a.c.Close(), a.comm.Close(), r.holds("it is closed, and its other memory", before-16, borrowedMiB))
	})
}

// Ranks that make the calls of two communicators on two streams in different orders do not wait for each other: calls for which they
// would have to make memory go by another algorithm.
func TestLendingInDifferentOrders(t *testing.T) {
	lending(t, 2, 3, func(ctx context.Context, r *rank, list []*borrower) error {
		streams := []device.Stream{r.stream, 0}
		var err error
		if streams[1], err = r.dev.NewStream(); err != nil {
			return err
		}
		for _, b := range list {
			if err := errors.Join(b.c.UseTable([]collectives.Row{{Collective: collectives.AllReduce, Algorithm: "copy_staged"}}), b.sum()); err != nil {
				return err
			}
		}
		if err := r.settle(ctx); err != nil { // the third one has the memory
			return err
		}
		const rounds = 3
		for range rounds {
			for i := range 2 {
				k := (i + r.Rank()) % 2
				if err := list[k].sumOn(streams[k], ""); err != nil {
					return err
				}
			}
		}
		err = errors.Join(r.settle(ctx), r.world.Settle(ctx, streams[1]))
		return errors.Join(err, list[0].summed(1+rounds), list[1].summed(1+rounds), r.dev.CloseStream(streams[1]), r.world.Barrier(ctx))
	})
}

// Communicators of some ranks and of all lend each other what all of their ranks can spare.
func TestLendingBetweenSubsets(t *testing.T) {
	lending(t, 3, 1, func(ctx context.Context, r *rank, all []*borrower) error {
		pair, err := r.borrowers(ctx, 1, min(r.Rank(), 1)) // rank 0 alone, and two
		if err != nil {
			return err
		}
		before, err := r.held()
		if err != nil {
			return err
		}
		for range 2 {
			if r.Rank() > 0 {
				err = errors.Join(err, pair[0].sum())
			}
			err = errors.Join(err, r.settle(ctx), r.world.Barrier(ctx), all[0].sum(), r.settle(ctx), r.world.Barrier(ctx))
		}
		err = errors.Join(err, all[0].summed(2), r.holds("subsets", before, borrowedMiB))
		if r.Rank() > 0 {
			err = errors.Join(err, pair[0].summed(2))
		}
		return errors.Join(err, r.world.Barrier(ctx), closeAll(pair))
	})
}

// Where one device has no memory left but what another communicator can spare, calls have that.
func TestLendingWhereThereIsNoMore(t *testing.T) {
	lending(t, 2, 2, func(ctx context.Context, r *rank, list []*borrower) error {
		if err := errors.Join(list[0].sum(), r.settle(ctx)); err != nil {
			return err
		}
		if r.Rank() == 1 {
			free, err := fill(r, 16<<20)
			defer func() { _ = free() }()
			if err != nil {
				return err
			}
		}
		err := errors.Join(r.world.Barrier(ctx), list[1].sum(), list[0].sum(), r.settle(ctx))
		return errors.Join(err, list[0].summed(2), list[1].summed(1), r.world.Barrier(ctx))
	})
}
