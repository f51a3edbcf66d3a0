package devicetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/internal/promise"
)

// wants says what an error lacks. Of class nil is every one: a rank that hears from
// another what is wrong gets another class than that one.
func wants(err error, class error, parts ...string) error {
	if err == nil || class != nil && !errors.Is(err, class) {
		return fmt.Errorf("error %v: expected one of class %v", err, class)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			return fmt.Errorf("error %v: expected it to say %q", err, p)
		}
	}
	return nil
}

// found waits for the error that calls on a GPU leave behind when they have returned.
func found(ctx context.Context, r *rank) (err error) {
	late := until(ctx, "an error of an earlier call", func() bool {
		err = r.Check()
		return err != nil
	})
	return errors.Join(late, err)
}

// sums is an all-reduce of float32 in place.
func sums(r *rank, addr uintptr, count int, algorithm string) error {
	return r.AllReduce(pointer(addr), pointer(addr), count, kernel.Float32, kernel.Sum, &collectives.CallOptions{Stream: r.stream, Algorithm: algorithm})
}

// A rank that does not come within the time that waits may take is named, and the call, and what
// was waited for.
func TestAbsence(t *testing.T) {
	for algorithm, word := range map[string]string{"oneshot_ll8": "a packet", "oneshot_lamport": "a packet", "zerocopy": "a barrier"} {
		t.Run(algorithm, func(t *testing.T) {
			run(t, make([]string, 2), setting{limit: 2 * time.Second}, collectives.Options{}, func(ctx context.Context, r *rank) error {
				m, err := r.memory(ctx, 1<<20)
				if err != nil {
					return err
				}
				if err := errors.Join(sums(r, m.Addr(), 100, algorithm), r.settle(ctx), r.world.Barrier(ctx)); err != nil {
					return err
				}
				if r.Rank() == 1 {
					_ = until(ctx, "the end of the other rank", func() bool { return r.world.Err() != nil })
					return nil
				}
				if err := sums(r, m.Addr(), 100, algorithm); err != nil {
					return err
				}
				return errors.Join(wants(found(ctx, r), framework.ErrPeer, "rank 1", "no progress within 2s: allreduce by "+algorithm+" waits for "+word),
					r.world.Settle(ctx, r.stream))
			})
		})
	}
}

// Ranks that compare before data moves go on after a mistake; the next call says what
// it was.
func TestMismatchIsNamed(t *testing.T) {
	job(t, 3, collectives.Options{Signatures: collectives.SignaturesAlways}, func(ctx context.Context, r *rank) error {
		m, err := r.memory(ctx, 1<<20)
		if err != nil {
			return err
		}
		count := 1000
		if r.Rank() == 1 {
			count = 1001
		}
		if err := sums(r, m.Addr(), count, "oneshot_ll8"); err != nil {
			return err
		}
		if err := wants(found(ctx, r), framework.ErrInvalid, "rank 1: allreduce of 1001 f32", "rank 2: allreduce of 1000 f32", "rank 0"); err != nil {
			return err
		}
		if err := r.settle(ctx); err != nil {
			return fmt.Errorf("after a mistake that moved nothing: %w", err)
		}
		if err := r.world.Barrier(ctx); err != nil { // all have heard of it
			return err
		}
		return errors.Join(sums(r, m.Addr(), 64, ""), r.settle(ctx), r.Check())
	})
}

// Ranks whose kernels wait for each other in different collectives get an error that names both.
func TestStallIsExplained(t *testing.T) {
	job(t, 2, collectives.Options{Signatures: collectives.SignaturesStall}, func(ctx context.Context, r *rank) error {
		m, err := r.memory(ctx, 1<<20)
		if err != nil {
			return err
		}
		if r.Rank() == 0 {
			err = sums(r, m.Addr(), 1<<10, "zerocopy")
		} else {
			err = r.AllGather(pointer(m.Addr()), pointer(m.Addr()+65536), 1<<10, kernel.Float32, &collectives.CallOptions{Stream: r.stream, Algorithm: "chunk"})
		}
		if err != nil {
			return err
		}
		watch := promise.Begin()
		if err := wants(found(ctx, r), nil, "invalid", "rank 0: allreduce of 1024 f32 sum by zerocopy", "rank 1: allgather of 1024 f32 by chunk"); err != nil {
			return err
		}
		if err := watch.Kept(3 * time.Second); err != nil {
			return err
		}
		return r.world.Settle(ctx, r.stream) // kernels have left
	})
}

// Ranks of which one at least copies, and whose calls differ, get an error in both modes that
// look: there is no wait without end, and nothing passes for a result.
func TestCopiesThatDisagree(t *testing.T) {
	for _, mode := range []collectives.Signatures{collectives.SignaturesAlways, collectives.SignaturesStall} {
		for name, x := range map[string]struct {
			algorithms [2]string
			counts     [2]int
		}{
			"counts":     {[2]string{"copy", "copy"}, [2]int{1000, 2000}},
			"algorithms": {[2]string{"copy", "zerocopy"}, [2]int{1000, 1000}},
			"staged":     {[2]string{"copy_staged", "copy_staged"}, [2]int{1000, 1001}},
		} {
			t.Run(fmt.Sprint(mode, " ", name), func(t *testing.T) {
				job(t, 2, collectives.Options{Signatures: mode}, func(ctx context.Context, r *rank) error {
					m, err := r.memory(ctx, 1<<20)
					if err != nil {
						return err
					}
					me := r.Rank()
					for _, algorithm := range x.algorithms { // all is loaded
						if err := errors.Join(sums(r, m.Addr(), 100, algorithm), r.settle(ctx), r.Check()); err != nil {
							return err
						}
					}
					if err := r.world.Barrier(ctx); err != nil {
						return err
					}
					if err := sums(r, m.Addr(), x.counts[me], x.algorithms[me]); err != nil {
						return err
					}
					want := []string{"disagree"}
					for rank := range 2 {
						want = append(want, fmt.Sprintf("rank %d: allreduce of %d f32 sum by %s", rank, x.counts[rank], x.algorithms[rank]))
					}
					return errors.Join(wants(found(ctx, r), nil, want...), r.world.Settle(ctx, r.stream))
				})
			})
		}
	}
}

// Buffers that do not lie where those of the others do.
func TestBuffersElsewhere(t *testing.T) {
	for algorithm, x := range map[string]struct {
		signatures collectives.Signatures
		parts      []string
	}{
		"zerocopy": {collectives.SignaturesAlways, []string{"in other registered memory"}},
		"copy":     {collectives.SignaturesNever, []string{"in other registered memory", "same offset"}},
	} {
		t.Run(algorithm, func(t *testing.T) {
			job(t, 2, collectives.Options{Signatures: x.signatures}, func(ctx context.Context, r *rank) error {
				first, err := r.memory(ctx, 1<<20)
				if err != nil {
					return err
				}
				second, err := r.memory(ctx, 1<<20)
				if err != nil {
					return err
				}
				addr := first.Addr()
				if err := errors.Join(sums(r, addr, 1<<10, algorithm), r.settle(ctx), r.Check()); err != nil {
					return err
				}
				switch {
				case r.Rank() == 0:
				case algorithm == "copy":
					addr += 4096
				default:
					addr = second.Addr()
				}
				if err := sums(r, addr, 1<<10, algorithm); err != nil {
					return err
				}
				return errors.Join(wants(found(ctx, r), nil, x.parts...), r.world.Settle(ctx, r.stream))
			})
		})
	}
}

// A rank that ends while kernels of the others wait for it: they leave soon, the error
// names it, and everything can be closed.
func TestPeerEndsWhileKernelsWait(t *testing.T) {
	for _, algorithm := range []string{"oneshot_ll8", "oneshot_lamport", "twoshot_ll128", "zerocopy", "twophase_chunk", "copy"} {
		t.Run(algorithm, func(t *testing.T) {
			job(t, 3, collectives.Options{}, func(ctx context.Context, r *rank) error {
				return endOfRank1(ctx, r, algorithm, 1, 1<<12, "rank 1", "had enough")
			})
		})
	}
}

// endOfRank1 has rank 1 end the job when the others have made calls of count elements that wait for it. Their streams go on soon, the
// next call has an error with all of parts, and everything can be closed.
func endOfRank1(ctx context.Context, r *rank, algorithm string, calls, count int, parts ...string) error {
	m, err := r.memory(ctx, 4<<20)
	if err != nil {
		return err
	}
	if err := errors.Join(sums(r, m.Addr(), 1<<12, ""), sums(r, m.Addr(), 1<<12, algorithm), r.settle(ctx)); err != nil {
		return err
	}
	if r.Rank() == 1 {
		if err := r.world.Barrier(ctx); err != nil {
			return err
		}
		r.world.Abort(errors.New("rank 1 has had enough"))
		return nil
	}
	for range calls {
		if err := sums(r, m.Addr(), count, algorithm); err != nil {
			return err
		}
	}
	if err := r.world.Barrier(ctx); err != nil && !strings.Contains(err.Error(), "rank 1") {
		return err
	}
	watch := promise.Begin()
	if err := r.world.Settle(ctx, r.stream); err != nil {
		return err
	}
	if err := watch.Kept(2 * time.Second); err != nil {
		return fmt.Errorf("streams went on %w", err)
	}
	if err := wants(sums(r, m.Addr(), 1<<12, algorithm), framework.ErrPeer, parts...); err != nil {
		return err
	}
	return errors.Join(r.Comm.Close(), m.Close())
}

// The first call of a collective, a type or an algorithm may be one that is captured: what it
// loads is no part of the graph. Algorithms for which ranks make memory together are refused.
func TestFirstUseInACapture(t *testing.T) {
	const scratch = 56 << 20 // there is room for calls of any size as lines, and no need of chunks
	job(t, 2, collectives.Options{Scratch: scratch}, func(ctx context.Context, r *rank) error {
		m, err := r.memory(ctx, 1<<20)
		if err != nil {
			return err
		}
		const count = 100
		ones := make([]byte, 4*count)
		reference.Fill(ones, kernel.Float32, kernel.Sum, 11, 0, 0)
		want := make([]byte, len(ones))
		reference.Reduce(want, [][]byte{ones, ones}, kernel.Float32, kernel.Sum, 0)
		// Each time it is launched, the graph of a sum in place doubles it.
		for _, algorithm := range []string{"", "oneshot_ll128", "twoshot_ll128", "zerocopy", "twophase_chunk"} { // the tables never choose the last
			got := make([]byte, len(ones))
			graph, err := capture(r, func() error { return sums(r, m.Addr(), count, algorithm) })
			if err != nil {
				return fmt.Errorf("%s: %w", algorithm, err)
			}
			if err := errors.Join(r.dev.WriteAt(ones, m.Addr()), graph.Launch(r.stream), r.settle(ctx), graph.Close(), r.dev.ReadAt(got, m.Addr())); err != nil {
				return fmt.Errorf("%s: %w", algorithm, err)
			}
			if wrong := reference.Wrong(got, want, kernel.Float32, kernel.Sum, 2); wrong != 0 {
				return fmt.Errorf("%s: %d wrong elements of %d", algorithm, wrong, count)
			}
		}
		in := pointer(m.Addr())
		other := pointer(m.Addr() + 1<<19)
		calls := map[string]func(*collectives.CallOptions) error{
			"allgather": func(o *collectives.CallOptions) error { return r.AllGather(in, other, count, kernel.Float16, o) },
			"f16": func(o *collectives.CallOptions) error {
				return r.AllReduce(in, in, count, kernel.Float16, kernel.Sum, o)
			},
			"reduce": func(o *collectives.CallOptions) error {
				return r.Reduce(in, in, count, kernel.Float16, kernel.Max, 1, o)
			},
			"scattered": func(o *collectives.CallOptions) error {
				return r.ReduceScatter(in, other, count, kernel.Float16, kernel.Sum, o)
			},
			"alltoall": func(o *collectives.CallOptions) error { return r.AllToAll(in, other, count, kernel.Float16, o) },
			"gather":   func(o *collectives.CallOptions) error { return r.Gather(in, other, count, kernel.Float16, 0, o) },
			"group": func(o *collectives.CallOptions) error { // its list needs memory
				r.GroupStart()
				var all []error
				for i := range 100 {
					at := 64 * i
					all = append(all, r.Send(unsafe.Add(in, at), 64, kernel.Uint8, 1-r.Rank(), o), r.Recv(unsafe.Add(other, at), 64, kernel.Uint8, 1-r.Rank(), o))
				}
				return errors.Join(append(all, r.GroupEnd())...)
			},
			"barrier": func(o *collectives.CallOptions) error { return r.Barrier(o) },
		}
		for _, name := range slices.Sorted(maps.Keys(calls)) {
			graph, err := capture(r, func() error { return calls[name](&collectives.CallOptions{Stream: r.stream}) })
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if err := errors.Join(graph.Launch(r.stream), r.settle(ctx), graph.Close()); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		copied := func() error { return sums(r, m.Addr(), count, "copy") }
		if _, err := capture(r, copied); err == nil {
			return errors.New("copies were captured before there is memory for them")
		} else if err := wants(err, framework.ErrInvalid, "algorithm copy", "outside of a capture"); err != nil {
			return err
		}
		if err := errors.Join(copied(), r.settle(ctx)); err != nil {
			return err
		}
		graph, err := capture(r, copied)
		if err != nil {
			return err
		}
		return errors.Join(graph.Launch(r.stream), r.settle(ctx), graph.Close())
	})
}

// Prepare loads what there is, again at no cost, and says what there is not.
func TestPrepare(t *testing.T) {
	job(t, 2, collectives.Options{}, func(ctx context.Context, r *rank) error {
		all := []collectives.Collective{collectives.AllReduce, collectives.AllGather, collectives.ReduceScatter, collectives.Broadcast,
			collectives.Reduce, collectives.AllToAll, collectives.Barrier, collectives.SendRecv, collectives.Gather}
		for range 2 {
			for _, k := range all {
				if err := r.Prepare(k, kernel.Float16, kernel.Float8E4M3B15); err != nil {
					return err
				}
			}
		}
		return errors.Join(
			wants(r.Prepare(collectives.AllReduce, kernel.DataTypes), framework.ErrInvalid, "no such element type"),
			wants(r.Prepare(0), framework.ErrInvalid, "prepare"))
	})
}

// Of rare types there are few kernels: calls are served, and those that name another
// algorithm are refused.
func TestRareTypes(t *testing.T) {
	const rare, count = kernel.Float8E4M3B15, 5000
	job(t, 2, collectives.Options{}, func(ctx context.Context, r *rank) error {
		m, err := r.memory(ctx, 1<<20)
		if err != nil {
			return err
		}
		for _, x := range []trial{
			{Kind: collectives.AllReduce}, {Kind: collectives.ReduceScatter}, {Kind: collectives.Reduce, Root: 1}, {Kind: collectives.AllGather},
			{Kind: collectives.AllReduce, Algorithm: "copy"}, {Kind: collectives.AllReduce, Algorithm: "zerocopy"}, {Kind: collectives.Reduce, Algorithm: "chunk"},
		} {
			x.Count, x.Type = count, rare
			if err := x.Run(r.rig(ctx, m.Addr(), 1<<19), 3); err != nil {
				return err
			}
		}
		for _, algorithm := range []string{"oneshot_ll128", "twophase_ll8", "oneshot_lamport"} {
			err := trial{Kind: collectives.AllReduce, Algorithm: algorithm, Count: count, Type: rare}.Call(r.Comm, pointer(m.Addr()), pointer(m.Addr()), r.stream)
			if err := wants(err, framework.ErrUnsupported, "e4m3b15", algorithm); err != nil {
				return err
			}
		}
		return nil
	})
}

// Graphs are replayed many times, and calls launched between them: what kernels count
// goes on where it was.
func TestReplays(t *testing.T) {
	const replays = 300
	job(t, 4, collectives.Options{}, func(ctx context.Context, r *rank) error {
		m, err := r.memory(ctx, 1<<20)
		if err != nil {
			return err
		}
		algorithms := []string{"oneshot_ll8", "oneshot_ll128", "twoshot_ll128", "oneshot_lamport", "zerocopy", "copy"}
		const count, bytes = 500, 500 * 4
		at := func(i int) uintptr { return m.Addr() + uintptr(i)<<12 }
		all := func() error {
			for i, a := range algorithms {
				p := pointer(at(i))
				if err := r.AllReduce(p, p, count, kernel.Float32, kernel.Avg, &collectives.CallOptions{Stream: r.stream, Algorithm: a}); err != nil {
					return err
				}
			}
			return nil
		}
		mine := make([]byte, bytes) // the mean of what all have stays what it is
		reference.Fill(mine, kernel.Float32, kernel.Sum, 7, 0, 0)
		for i := range algorithms {
			if err := r.dev.WriteAt(mine, at(i)); err != nil {
				return err
			}
		}
		if err := errors.Join(all(), r.settle(ctx)); err != nil {
			return err
		}
		graph, err := capture(r, all)
		if err != nil {
			return err
		}
		defer graph.Close()
		for i := range replays {
			if err := graph.Launch(r.stream); err != nil {
				return err
			}
			if i%50 == 0 {
				if err := errors.Join(all(), r.settle(ctx)); err != nil {
					return fmt.Errorf("after %d replays: %w", i, err)
				}
			}
		}
		if err := errors.Join(r.settle(ctx), r.Check()); err != nil {
			return err
		}
		got := make([]byte, bytes)
		for i, a := range algorithms {
			if err := r.dev.ReadAt(got, at(i)); err != nil {
				return err
			}
			if n := reference.Wrong(got, mine, kernel.Float32, kernel.Sum, 0); n != 0 {
				return fmt.Errorf("%s: %d wrong elements of %d", a, n, count)
			}
		}
		return nil
	})
}
