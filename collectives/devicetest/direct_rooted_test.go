package devicetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// rooted are the collectives in which kernels exchange what one host has, or is to get, or
// what is different for each rank.
var rooted = []collectives.Collective{collectives.Broadcast, collectives.Reduce, collectives.AllToAll}

// Kernels exchange what one rank has for all, all have for one, and each has for each: all
// roots, sizes from nothing to many pieces that cannot be divided evenly, in place and not,
// launched and from graphs.
func TestDirectRootedResults(t *testing.T) {
	const half = 4 << 20
	layouts, counts := []string{"ab", "abc", "aabb", "abab", "aabbcc", "aaabbb"}, []int{0, 1, 5, 1001, 16 << 10, 40_009, 300_007}
	if raceEnabled { // three hosts, and two ranks on one; nothing, one piece and several
		layouts, counts = []string{"abc", "aabb"}, []int{0, 1001, 40_009}
	}
	for _, layout := range layouts {
		t.Run(layout, func(t *testing.T) {
			n := len(layout)
			var mu sync.Mutex
			ran := map[collectives.Collective]int{}
			overAdapters(t, layout, setting{allSignals: layout == "aabb"}, collectives.Options{Scratch: 7 << 20, Sharing: (n + 3) / 4}, func(ctx context.Context, r *rank) error {
				m, err := r.world.Alloc(2 * half)
				if err != nil {
					return err
				}
				if err := first(ctx, r); err != nil {
					return err
				}
				rig := r.rig(ctx, m.Addr(), half)
				i := 0
				for _, kind := range rooted {
					for k, count := range counts {
						if kind == collectives.AllToAll && count > 20_000 {
							count /= 3
						}
						roots := []int{(k + 1) % n}
						for root := 0; (count == 1001 || count == 40_009) && root < n; root++ {
							roots = append(roots, root)
						}
						for _, root := range roots {
							i++
							x := trial{Kind: kind, Count: count, Type: []kernel.DataType{kernel.Float16, kernel.Float32}[(i+i/7)%2], InPlace: i/2%2 == 0, Shift: i % 3, Graph: i%5 == 0}
							if kind != collectives.AllToAll {
								x.Root = root
							}
							if kind == collectives.Reduce {
								x.Op = []kernel.Op{kernel.Sum, kernel.PreMulSum, kernel.Avg, kernel.Max}[i%4]
							}
							if chosen, err := r.Choice(x.Request(n), ""); err != nil || chosen != directly {
								return fmt.Errorf("%v of %d elements: by %q, %v: expected %s", kind, count, chosen, err, directly)
							}
							if err := x.Run(rig, uint64(i)); err != nil {
								return err
							}
							mu.Lock()
							ran[kind]++
							mu.Unlock()
						}
					}
				}
				return nil
			})
			for _, kind := range rooted {
				if ran[kind] < n*len(counts) && !t.Failed() {
					t.Errorf("%v ran %d times, expected %d on each rank", kind, ran[kind], len(counts))
				}
			}
		})
	}
}

// The root of a reduction gets the bits that an all-reduce has: hosts are added up in the same
// order, in one step or two, on any rank.
func TestDirectReduceBits(t *testing.T) {
	const most = 200_003
	for _, layout := range []string{"abc", "aabb", "aabbcc"} {
		n := len(layout)
		overAdapters(t, layout, setting{allSignals: layout == "aabb"}, collectives.Options{Scratch: 5 << 20, Sharing: (n + 3) / 4}, func(ctx context.Context, r *rank) error {
			m, err := r.world.Alloc(3 * 2 * (most + 1))
			if err != nil {
				return err
			}
			in, sum, own := m.Addr(), m.Addr()+2*(most+1), m.Addr()+4*(most+1)
			b := make([]byte, 2*most)
			reference.Fill(b, kernel.Float16, kernel.Sum, 3, r.Rank(), 0)
			if err := errors.Join(r.dev.WriteAt(b, in), first(ctx, r)); err != nil {
				return err
			}
			o := &collectives.CallOptions{Stream: r.stream, Algorithm: directly}
			for k, root := range []int{0, n - 1, n / 2} {
				count := []int{most, most, 40_009}[k]
				err := errors.Join(r.AllReduce(pointer(in), pointer(sum), count, kernel.Float16, kernel.Sum, o),
					r.Reduce(pointer(in), pointer(own), count, kernel.Float16, kernel.Sum, root, o), r.settle(ctx))
				if err != nil {
					return err
				}
				all, one := make([]byte, 2*count), make([]byte, 2*count)
				if err := errors.Join(r.dev.ReadAt(all, sum), r.dev.ReadAt(one, own)); err != nil {
					return err
				}
				if r.Rank() == root && !bytes.Equal(all, one) {
					return fmt.Errorf("root %d of %d elements: other bits than an all-reduce", root, count)
				}
			}
			return nil
		})
	}
}

// One graph with an odd number of exchanges is launched over and over between other calls, and the
// data that hosts exchange stays what it is: a rank that took data of an earlier launch, or of
// another call, would leave something else.
func TestDirectRootedReplays(t *testing.T) {
	const count, part = 100_003, 30_001
	for layout, replays := range map[string]int{"abc": 30, "aabb": 10} {
		n := len(layout)
		overAdapters(t, layout, setting{}, collectives.Options{Scratch: 5 << 20}, func(ctx context.Context, r *rank) error {
			m, err := r.world.Alloc(uint64(4 * (count + n*part)))
			if err != nil {
				return err
			}
			one, each := m.Addr(), m.Addr()+4*count
			mine, ours := make([]byte, 4*count), make([]byte, 4*n*part)
			reference.Fill(ours, kernel.Float32, kernel.Sum, 7, r.Rank(), 0)
			reference.Fill(mine, kernel.Float32, kernel.Sum, 9, r.Rank(), 0)
			want := make([]byte, len(mine))
			reference.Fill(want, kernel.Float32, kernel.Sum, 9, 0, 0)
			if err := errors.Join(r.dev.WriteAt(mine, one), r.dev.WriteAt(ours, each), first(ctx, r)); err != nil {
				return err
			}
			o := &collectives.CallOptions{Stream: r.stream, Algorithm: directly}
			swap := func() error {
				return r.AllToAll(pointer(each), pointer(each), part, kernel.Float32, o)
			}
			give := func(root int) error {
				return r.Broadcast(pointer(one), pointer(one), count, kernel.Float32, root, o)
			}
			// All ranks get the sums of their values: by the largest of them, on one rank, which gives it to all.
			calls := func() error {
				return errors.Join(give(0), swap(), r.Reduce(pointer(one), pointer(one), count, kernel.Float32, kernel.Max, n-1, o), give(n-1), swap(), r.Barrier(o))
			}
			if err := errors.Join(calls(), r.settle(ctx)); err != nil {
				return err
			}
			graph, err := capture(r, calls)
			if err != nil {
				return err
			}
			defer graph.Close()
			replays := replays
			if r.over == overImmediate {
				replays /= 2
			}
			for i := range replays {
				if err = graph.Launch(r.stream); i%5 == 0 {
					err = errors.Join(err, give(i%n), calls(), r.AllReduce(pointer(one), pointer(one), 1000, kernel.Float32, kernel.Max, o), r.settle(ctx))
				}
				if err != nil {
					return fmt.Errorf("after %d replays: %w", i, err)
				}
			}
			if err := errors.Join(r.settle(ctx), r.dev.ReadAt(mine, one)); err != nil {
				return err
			}
			got := make([]byte, len(ours))
			if err := r.dev.ReadAt(got, each); err != nil {
				return err
			}
			if !bytes.Equal(mine, want) || !bytes.Equal(got, ours) {
				return fmt.Errorf("what was given to all is what it was: %v, what was swapped twice: %v", bytes.Equal(mine, want), bytes.Equal(got, ours))
			}
			return nil
		})
	}
}

// call makes one of them in place, with float32.
func call(r *rank, kind collectives.Collective, addr uintptr, count, root int) error {
	x := trial{Kind: kind, Algorithm: directly, Count: count, Type: kernel.Float32, Root: root}
	return x.Call(r.Comm, pointer(addr), pointer(addr), r.stream)
}

// Captures are as good as launches, also of the first call of a collective, with each root, and
// whatever was called before.
func TestDirectRootedCaptures(t *testing.T) {
	overAdapters(t, "aabb", setting{}, collectives.Options{}, func(ctx context.Context, r *rank) error {
		m, err := r.memory(ctx, 1<<20)
		if err != nil {
			return err
		}
		if err := first(ctx, r); err != nil {
			return err
		}
		for _, kind := range rooted {
			graph, err := capture(r, func() error { return call(r, kind, m.Addr(), 100, 0) })
			if err != nil {
				return fmt.Errorf("%v: %w", kind, err)
			}
			if err := errors.Join(graph.Launch(r.stream), r.settle(ctx), graph.Close(), call(r, kind, m.Addr(), 10, 0), r.settle(ctx)); err != nil {
				return err
			}
			for root, mode := range []cuda.CaptureMode{cuda.CaptureGlobal, cuda.CaptureThreadLocal, cuda.CaptureRelaxed} {
				if err := replayed(ctx, r, mode, func() error { return call(r, kind, m.Addr(), 5_000, root+1) }); err != nil {
					return fmt.Errorf("%v, mode %v: %w", kind, mode, err)
				}
			}
		}
		return nil
	})
}

// Ranks that name different roots get an error, whether all of a host do or one, and whether
// the host that gives, or gets, is another one by that; and so are those that swap other sizes.
func TestDirectRootedDisagreement(t *testing.T) {
	one := func(r *rank) int {
		if r.Rank() == 1 {
			return 3
		}
		return 0
	}
	host := func(root int) func(r *rank) int {
		return func(r *rank) int {
			if r.host == "b" {
				return root
			}
			return 0
		}
	}
	for name, x := range map[string]struct {
		kinds []collectives.Collective
		root  func(r *rank) int
		count int // on host b
		text  []string
	}{
		"on the same host":      {rooted[:2], host(1), 1000, []string{" root 0 by ", " root 1 by "}},
		"on another host":       {rooted[:2], host(2), 1000, []string{" root 0 by ", " root 2 by "}},
		"of one rank alone":     {rooted[:2], one, 1000, []string{" root 0 by ", " root 3 by "}},
		"size of an all-to-all": {rooted[2:], host(0), 1001, []string{"alltoall of 1000 f32 by ", "alltoall of 1001 f32 by "}},
	} {
		for _, kind := range x.kinds {
			t.Run(kind.String()+" "+name, func(t *testing.T) {
				var mu sync.Mutex
				said := 0
				overAdapters(t, "aabb", setting{}, collectives.Options{}, func(ctx context.Context, r *rank) error {
					m, err := r.memory(ctx, 1<<20)
					if err != nil {
						return err
					}
					if err := errors.Join(call(r, kind, m.Addr(), 100, 0), r.settle(ctx), r.world.Barrier(ctx)); err != nil {
						return err
					}
					count := 1000
					if r.host == "b" {
						count = x.count
					}
					if err := call(r, kind, m.Addr(), count, x.root(r)); err != nil && r.world.Check() == nil {
						return err
					}
					err = found(ctx, r)
					if !errors.Is(err, framework.ErrInvalid) && !errors.Is(err, framework.ErrPeer) {
						return fmt.Errorf("%w: expected ErrInvalid, or ErrPeer of the one who found out", err)
					}
					mu.Lock()
					defer mu.Unlock()
					if text := err.Error(); strings.Contains(text, "ranks disagree: rank ") && strings.Contains(text, x.text[0]) && strings.Contains(text, x.text[1]) {
						said++
					}
					return r.world.Settle(ctx, r.stream)
				})
				if said == 0 && !t.Failed() {
					t.Error("no error says that ranks disagree and on what")
				}
			})
		}
	}
}

// A rank to which nothing is given, or from which nothing is taken, is waited for as others
// are, and named when it does not come.
func TestDirectRootedAbsence(t *testing.T) {
	for _, x := range []struct {
		kind collectives.Collective
		root int
	}{{collectives.Broadcast, 0}, {collectives.Broadcast, 1}, {collectives.Reduce, 0}, {collectives.Reduce, 1}, {collectives.AllToAll, 0}} {
		t.Run(fmt.Sprint(x.kind, " root ", x.root), func(t *testing.T) {
			overAdapters(t, "ab", setting{limit: time.Second}, collectives.Options{}, func(ctx context.Context, r *rank) error {
				m, err := r.memory(ctx, 1<<20)
				if err != nil {
					return err
				}
				if err := errors.Join(first(ctx, r), call(r, x.kind, m.Addr(), 100, x.root), r.settle(ctx), r.world.Barrier(ctx)); err != nil {
					return err
				}
				if r.Rank() == 1 {
					_ = until(ctx, "the end of the other rank", func() bool { return r.world.Err() != nil })
					return nil
				}
				if err := call(r, x.kind, m.Addr(), 100, x.root); err != nil {
					return err
				}
				return errors.Join(wants(found(ctx, r), framework.ErrPeer, "rank 1", "no progress within 1s"), r.world.Settle(ctx, r.stream))
			})
		})
	}
}
