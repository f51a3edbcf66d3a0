package devicetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/collectives/collectivetest"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// fill takes the memory of a device but for so many bytes.
func fill(r *rank, but uint64) (free func() error, err error) {
	var held []device.Memory
	free = func() (err error) {
		for _, m := range held {
			err = errors.Join(err, m.Close())
		}
		return err
	}
	spared, err := r.dev.Alloc(but)
	if err != nil {
		return free, err
	}
	for size := uint64(1 << 30); size >= 16<<20; size /= 2 {
		for {
			m, err := r.dev.Alloc(size)
			if errors.Is(err, framework.ErrUnavailable) {
				break
			}
			if err != nil {
				return free, errors.Join(err, spared.Close())
			}
			held = append(held, m)
		}
	}
	return free, spared.Close()
}

// Where one device has little memory left, reductions by copy engines make do with it
// on all ranks; where one has too little, all say which.
func TestLittleMemoryForCopies(t *testing.T) {
	for _, x := range []struct {
		name  string
		spare uint64
		works bool
	}{{"little", 128 << 20, true}, {"too little", 16 << 20, false}} {
		t.Run(x.name, func(t *testing.T) {
			job(t, 3, collectives.Options{CopyScratch: 1 << 30}, func(ctx context.Context, r *rank) (err error) {
				m, err := r.memory(ctx, 64<<20)
				if err != nil {
					return err
				}
				if r.Rank() == 1 {
					free, err := fill(r, x.spare)
					defer func() { err = errors.Join(err, free()) }()
					if err != nil {
						return err
					}
				}
				if err := r.world.Barrier(ctx); err != nil {
					return err
				}
				q := trial{Kind: collectives.AllReduce, Algorithm: "copy", Count: 200_000}
				if x.works {
					return q.Run(r.rig(ctx, m.Addr(), 32<<20), 7)
				}
				// A rank that leaves the choice to the tables gets another algorithm.
				if err := r.UseTable([]collectives.Row{{Collective: collectives.AllReduce, Algorithm: "copy"}}); err != nil {
					return err
				}
				other := q
				other.Algorithm = ""
				for range 2 {
					if err := other.Run(r.rig(ctx, m.Addr(), 32<<20), 9); err != nil {
						return fmt.Errorf("chosen by a table: %w", err)
					}
				}
				return wants(sums(r, m.Addr(), q.Count, "copy"), framework.ErrUnavailable, "rank 1", "copy scratch", "copy_engines")
			})
		})
	}
}

// Messages of many pieces, in slots that are used again and again: every share has ten, of
// different sizes where they taper. Calls in pieces follow each other on one scratch.
func TestCopiesInManyPieces(t *testing.T) {
	for _, ranks := range []int{2, 3} {
		t.Run(fmt.Sprint(ranks, " ranks"), func(t *testing.T) { copiesInManyPieces(t, ranks) })
	}
}

func copiesInManyPieces(t *testing.T, ranks int) {
	const half, slot = 8 << 20, 64 << 10
	job(t, ranks, collectives.Options{CopyScratch: uint64(2 * ranks * slot), Signatures: collectives.SignaturesAlways}, func(ctx context.Context, r *rank) error {
		m, err := r.memory(ctx, 2*half)
		if err != nil {
			return err
		}
		rig := r.rig(ctx, m.Addr(), half)
		seed, ran := uint64(0), map[collectives.Collective]bool{}
		counts := []int{150_000, 150_007}
		if raceEnabled {
			counts = counts[1:]
		}
		for _, count := range counts {
			for _, kind := range collectivetest.Kinds() {
				for _, algorithm := range []string{"copy_staged", "copy"} {
					if !slices.Contains(r.Algorithms(kind), algorithm) {
						continue
					}
					for _, graph := range []bool{false, true} {
						seed++
						x := trial{Kind: kind, Algorithm: algorithm, Count: count, Type: kernel.Float32, Op: kernel.Sum, Root: int(seed) % ranks, InPlace: seed/2%2 == 0, Graph: graph}
						if kind == collectives.AllReduce {
							x.Count *= ranks
						}
						ran[kind] = true
						if took, err := attempt(r, rig, x, seed); err != nil || !took {
							return fmt.Errorf("%v: taken %v, %w", x, took, err)
						}
					}
				}
			}
		}
		if want := map[int]int{2: 6, 3: 4}[ranks]; len(ran) != want {
			return fmt.Errorf("%d collectives by copies: expected %d", len(ran), want)
		}
		return r.Check()
	})
}

// A call that a table would have made of copies is captured before there were any: another
// algorithm serves it. Once there were, copies do.
func TestCaptureBeforeCopies(t *testing.T) {
	const count = 1000
	job(t, 2, collectives.Options{}, func(ctx context.Context, r *rank) error {
		m, err := r.memory(ctx, 1<<20)
		if err != nil {
			return err
		}
		table := []collectives.Row{{Collective: collectives.AllReduce, Algorithm: "copy_staged"}}
		if err := errors.Join(sums(r, m.Addr(), count, "oneshot_ll8"), r.settle(ctx), r.UseTable(table)); err != nil {
			return err
		}
		call := func() error { return sums(r, m.Addr(), count, "") }
		for range 2 {
			graph, err := capture(r, call)
			if err != nil {
				return err
			}
			err = errors.Join(graph.Launch(r.stream), r.settle(ctx), graph.Close(), call(), r.settle(ctx))
			if err != nil {
				return err
			}
		}
		_, err = capture(r, func() error { return sums(r, m.Addr(), count, "copy") })
		return errors.Join(err, r.settle(ctx), r.Check())
	})
}
