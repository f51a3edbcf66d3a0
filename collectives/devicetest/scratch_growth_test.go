package devicetest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives"
)

// Memory for copies in pieces is what calls have needed, not what is configured: a larger call replaces it,
// and what it replaces is given back, unless graphs use it. Graphs that were captured before give right results
// after that, and a captured call makes do with the memory that there is.
func TestCopyScratchFollowsCalls(t *testing.T) {
	const small, large, most = 1 << 20, 20 << 20, 40 << 20 // elements
	job(t, 2, collectives.Options{CopyScratch: 1 << 30}, func(ctx context.Context, r *rank) error {
		m, err := r.memory(ctx, 4*most)
		if err != nil {
			return err
		}
		held := func() uint64 {
			free, total, e := r.dev.MemoryInfo()
			err = errors.Join(err, e)
			return total - free
		}
		value := float32(1) // in the elements that are looked at
		at := []int{0, 1, small/2 - 1, small / 2, small - 1}
		set := func(v float32) error {
			var b [4]byte
			binary.LittleEndian.PutUint32(b[:], math.Float32bits(v))
			var all []error
			for _, i := range at {
				all = append(all, r.dev.WriteAt(b[:], m.Addr()+uintptr(4*i)))
			}
			value = v
			return errors.Join(all...)
		}
		doubled := func(what string, enqueue func() error) error {
			if err := errors.Join(enqueue(), r.settle(ctx)); err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			value *= 2
			for _, i := range at {
				var b [4]byte
				if err := r.dev.ReadAt(b[:], m.Addr()+uintptr(4*i)); err != nil {
					return err
				}
				if got := math.Float32frombits(binary.LittleEndian.Uint32(b[:])); got != value {
					return fmt.Errorf("%s: element %d is %v, expected %v", what, i, got, value)
				}
			}
			return nil
		}
		call := func(n int) func() error { return func() error { return sums(r, m.Addr(), n, "copy_staged") } }
		before := held()
		expect := func(what string, mib uint64) error {
			if now := held() - before; now < mib<<20 || now > (mib+8)<<20 { // kernels and streams take some
				return fmt.Errorf("%s: %d MiB are held, expected about %d", what, now>>20, mib)
			}
			return errors.Join(err, r.world.Barrier(ctx))
		}
		if err := errors.Join(set(1), doubled("a small call", call(small)), expect("after a small call", 32)); err != nil {
			return err
		}
		if err := errors.Join(doubled("a large call", call(large)), expect("after a large call", 64)); err != nil {
			return err
		}
		graph, err := capture(r, call(most)) // in more pieces
		if err != nil {
			return err
		}
		launch := func() error { return graph.Launch(r.stream) }
		return errors.Join(expect("after a capture", 64),
			doubled("a graph", launch),
			doubled("the largest call", call(most)), expect("after the largest call", 64+128),
			doubled("the graph", launch), doubled("a small call", call(small)),
			graph.Close(), r.Check())
	})
}
