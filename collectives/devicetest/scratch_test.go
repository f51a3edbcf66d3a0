package devicetest

import (
	"context"
	"errors"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/gpu"
)

// fill takes the memory of a device but for so many bytes.
func fill(r *rank, but uint64) (free func() error, err error) {
	var held []gpu.Memory
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
				return wants(sums(r, m.Addr(), q.Count, "copy"), framework.ErrUnavailable, "rank 1", "copy scratch", "copy_engines")
			})
		})
	}
}
