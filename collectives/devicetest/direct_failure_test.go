package devicetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Hosts that are not in the same call get an error with the rank and both calls: whether
// kernels have both, or only one and the host the other.
func TestDirectDisagreement(t *testing.T) {
	for name, x := range map[string]struct {
		theirs func(r *rank, addr uintptr) error
		text   string
	}{
		"count":     {func(r *rank, addr uintptr) error { return sums(r, addr, 1001, "") }, "allreduce of 1001 f32 sum by hierarchical_direct"},
		"nothing":   {func(r *rank, addr uintptr) error { return sums(r, addr, 0, "") }, "allreduce of 0 f32 sum by hierarchical_direct"},
		"algorithm": {func(r *rank, addr uintptr) error { return sums(r, addr, 1000, "ports") }, "allreduce of 1000 f32 sum by ports"},
		"operation": {func(r *rank, addr uintptr) error {
			return r.AllReduce(pointer(addr), pointer(addr), 1000, kernel.Float32, kernel.Max, &collectives.CallOptions{Stream: r.stream})
		}, "allreduce of 1000 f32 max by hierarchical_direct"},
		"collective": {func(r *rank, addr uintptr) error {
			return r.Broadcast(pointer(addr), pointer(addr), 1000, kernel.Float32, 0, &collectives.CallOptions{Stream: r.stream})
		}, "broadcast of 1000 f32 root 0"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, layout := range []string{"ab", "aabb"} {
				var mu sync.Mutex
				said := 0
				overAdapters(t, layout, setting{}, collectives.Options{}, func(ctx context.Context, r *rank) error {
					m, err := r.memory(ctx, 1<<20)
					if err != nil {
						return err
					}
					if err := errors.Join(sums(r, m.Addr(), 100, ""), sums(r, m.Addr(), 100, ""), r.settle(ctx), r.world.Barrier(ctx)); err != nil {
						return err
					}
					call := func(r *rank, addr uintptr) error { return sums(r, addr, 1000, "") }
					if r.host == "b" {
						call = x.theirs
					}
					if err := call(r, m.Addr()); err != nil && r.world.Check() == nil {
						return err
					}
					err = found(ctx, r)
					if !errors.Is(err, framework.ErrInvalid) && !errors.Is(err, framework.ErrPeer) {
						return fmt.Errorf("%w: expected ErrInvalid, or ErrPeer of the one who found out", err)
					}
					mu.Lock()
					defer mu.Unlock()
					if text := err.Error(); strings.Contains(text, "ranks disagree: rank ") && strings.Contains(text, "of 1000 f32 sum by hierarchical_direct") && strings.Contains(text, x.text) {
						said++
					}
					return r.world.Settle(ctx, r.stream)
				})
				if said == 0 && !t.Failed() {
					t.Error("no error says that ranks disagree and on what")
				}
			}
		})
	}
}

// A rank of another host that ends while kernels wait for it: they leave, the error names
// it, and everything can be closed. Its own reason may come behind that of an adapter, which
// misses its memory.
func TestDirectEnd(t *testing.T) {
	for _, layout := range []string{"ab", "aabb"} {
		overAdapters(t, layout, setting{}, collectives.Options{}, func(ctx context.Context, r *rank) error {
			return endOfRank1(ctx, r, directly, 3, 1<<20, "rank 1")
		})
	}
}

// A rank that does not come within the time that waits may take is named by its
// counterpart.
func TestDirectAbsence(t *testing.T) {
	overAdapters(t, "ab", setting{limit: 2 * time.Second}, collectives.Options{}, func(ctx context.Context, r *rank) error {
		m, err := r.memory(ctx, 1<<20)
		if err != nil {
			return err
		}
		if err := errors.Join(sums(r, m.Addr(), 100, ""), sums(r, m.Addr(), 100, directly), r.settle(ctx), r.world.Barrier(ctx)); err != nil {
			return err
		}
		if r.Rank() == 1 {
			_ = until(ctx, "the end of the other rank", func() bool { return r.world.Err() != nil })
			return nil
		}
		if err := sums(r, m.Addr(), 100, directly); err != nil {
			return err
		}
		return errors.Join(wants(found(ctx, r), framework.ErrPeer, "rank 1", "no progress within 2s"), r.world.Settle(ctx, r.stream))
	})
}

// A kernel inside a host that has waited for too long ends the job, though the job's own
// waits have nothing to do with it, and nobody makes another call.
func TestDirectAbsenceInside(t *testing.T) {
	overAdapters(t, "aabb", setting{limit: 2 * time.Second}, collectives.Options{}, func(ctx context.Context, r *rank) error {
		m, err := r.memory(ctx, 1<<20)
		if err != nil {
			return err
		}
		if err := errors.Join(sums(r, m.Addr(), 100, ""), sums(r, m.Addr(), 100, directly), r.settle(ctx), r.world.Barrier(ctx)); err != nil {
			return err
		}
		if r.Rank() == 0 {
			err = sums(r, m.Addr(), 100, directly)
		}
		err = errors.Join(err, until(ctx, "the end of the job", func() bool { return r.world.Err() != nil }))
		return errors.Join(err, wants(r.world.Err(), framework.ErrPeer, "rank 1", "no progress within 2s"), r.world.Settle(ctx, r.stream))
	})
}

// A counterpart that leaves the job in good order while kernels wait for it is named:
// because it has left, or because its memory was not there any more.
func TestDirectDeparture(t *testing.T) {
	overAdapters(t, "ab", setting{}, collectives.Options{}, func(ctx context.Context, r *rank) error {
		m, err := r.memory(ctx, 1<<20)
		if err != nil {
			return err
		}
		if err := errors.Join(sums(r, m.Addr(), 100, ""), sums(r, m.Addr(), 100, directly), r.settle(ctx), r.world.Barrier(ctx)); err != nil {
			return err
		}
		if r.Rank() == 0 {
			err = sums(r, m.Addr(), 100, directly)
		}
		for range 100 { // long enough, as a rule, for what rank 0 has to be there before rank 1 leaves
			err = errors.Join(err, r.world.Barrier(ctx))
		}
		if err != nil || r.Rank() == 1 {
			return errors.Join(err, r.Comm.Close(), r.world.Close())
		}
		err = wants(found(ctx, r), framework.ErrPeer, "rank 1")
		if err == nil && !strings.Contains(r.world.Err().Error(), "left the job") && !strings.Contains(r.world.Err().Error(), "no longer") {
			err = fmt.Errorf("%w: expected it to say why", r.world.Err())
		}
		return errors.Join(err, r.world.Settle(ctx, r.stream))
	})
}

// Where the memory of one rank cannot be reached, all ranks go through the host, as where
// hosts differ.
func TestDirectOrNot(t *testing.T) {
	for name, x := range map[string]struct {
		layout string
		per    func(rank int, o *setting)
	}{
		"one adapter that does not reach its GPU": {"aabb", func(rank int, o *setting) { o.noDirect = rank == 3 }},
		"hosts that differ":                       {"aab", nil},
	} {
		t.Run(name, func(t *testing.T) {
			overAdapters(t, x.layout, setting{per: x.per}, collectives.Options{}, func(ctx context.Context, r *rank) error {
				m, err := r.memory(ctx, 1<<20)
				if err != nil {
					return err
				}
				if err := first(ctx, r); err != nil {
					return err
				}
				q := trial{Kind: collectives.AllReduce, Count: 1000, Type: kernel.Float32}.Request(r.Size())
				if chosen, err := r.Choice(q, ""); err != nil || !strings.HasPrefix(chosen, "hierarchical_small") {
					return fmt.Errorf("by %q, %v: expected hierarchical_small", chosen, err)
				}
				if slices.Contains(r.Algorithms(collectives.AllReduce), directly) {
					if err := wants(sums(r, m.Addr(), 1000, directly), framework.ErrUnsupported, directly); err != nil {
						return err
					}
				}
				return trial{Kind: collectives.AllReduce, Count: 1000, Type: kernel.Float32}.Run(r.rig(ctx, m.Addr(), 1<<19), 3)
			})
		})
	}
}
