package collectives_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/collectives/collectivetest"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// A call of nothing is the same call on every rank, whatever its pointers are: into exchanged memory, elsewhere, none, or one for both.
func TestEmptyCalls(t *testing.T) {
	for _, ranks := range []int{1, 2} {
		for _, signatures := range []collectives.Signatures{collectives.SignaturesNever, collectives.SignaturesStall, collectives.SignaturesAlways} {
			t.Run(fmt.Sprint(ranks, " ranks, ", signatures), func(t *testing.T) {
				job(t, ranks, collectives.Options{Signatures: signatures}, emptyCalls)
			})
		}
	}
}

func emptyCalls(ctx context.Context, c *collectives.Comm) error {
	own, err := c.Communicator().Alloc(64 << 10)
	if err != nil {
		return err
	}
	defer own.Close()
	if _, err := c.Communicator().Exchange(ctx, own); err != nil {
		return err
	}
	exchanged := unsafe.Slice((*byte)(address(own.Addr())), own.Bytes())
	heap := make([]byte, 64)
	places := [4]buffers{{exchanged[:64], exchanged[4096:]}, {heap, heap[32:]}, {}, {exchanged, exchanged}}
	before := slices.Clone(exchanged)
	for turn := range places {
		b := places[(c.Rank()+turn)%len(places)]
		for _, kind := range collectivetest.Kinds() {
			if kind == collectives.Barrier {
				continue
			}
			for _, algorithm := range append(c.Algorithms(kind), "") {
				x := trial{Kind: kind, Algorithm: algorithm, Type: kernel.Float32, Op: kernel.Sum, Root: c.Size() - 1}
				if err := x.Call(c, pointer(b.in), pointer(b.out), 0); err != nil {
					return fmt.Errorf("turn %d: %v of nothing by %q: %w", turn, kind, algorithm, err)
				}
			}
		}
	}
	// A full call behind them finds everyone at the same point.
	x := trial{Kind: collectives.AllReduce, Count: 100, Type: kernel.Float32, Op: kernel.Sum}
	if err := x.Run(buffers{exchanged[:8192], exchanged[8192:]}.of(c), 1); err != nil {
		return err
	}
	if !slices.Equal(before[16384:], exchanged[16384:]) {
		return fmt.Errorf("calls of nothing wrote")
	}
	return nil
}
