package devicetest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

const directly = "hierarchical_direct"

// overAdapters runs f as ranks of several hosts, once for each way of adapters to signal. The ways differ in the connections alone,
// which are between two ranks: of more, builds with the race detector and those without have one each, unless with asks for both.
func overAdapters(t *testing.T, layout string, with setting, o collectives.Options, f func(ctx context.Context, r *rank) error) {
	t.Helper()
	if o.Scratch == 0 {
		o.Scratch = 5 << 20 // hundreds of jobs would spend their time on pages that they do not use
	}
	names := []string{overAtomics, overImmediate}
	switch {
	case len(layout) == 2:
	case raceEnabled:
		names = names[1:]
	case !with.allSignals:
		names = names[:1]
	}
	for _, name := range names {
		t.Run(layout+" "+name, func(t *testing.T) {
			needsAdapters(t)
			with := with
			with.over = name
			run(t, strings.Split(layout, ""), with, o, func(ctx context.Context, r *rank) error {
				if err := f(ctx, r); err != nil || r.world.Err() != nil {
					return err
				}
				return r.world.Barrier(ctx) // the first rank that closes takes its adapter away
			})
		})
	}
}

func needsAdapters(t *testing.T) {
	t.Helper()
	if needsGPU(t); imageFolder == "" {
		t.Skip("needs emulated GPUs: no adapter of a network stands beside these")
	}
	if _, err := adapters(); err != nil {
		t.Skipf("needs a compiler for emulated adapters: %v", err)
	}
}

// first makes the first call of a job, behind which it is known what serves calls.
func first(ctx context.Context, r *rank) error {
	return errors.Join(r.Barrier(&collectives.CallOptions{Stream: r.stream}), r.settle(ctx))
}

// Kernels exchange what hosts have, all ranks get the same bits, and get them again from
// a graph that is replayed between calls of all kinds, hundreds of times where signals
// are quick: those that are forwarded wait for threads that sleep.
func TestDirectReplays(t *testing.T) {
	const count = 300_007
	for layout, replays := range map[string]int{"ab": 500, "aabb": 50} {
		overAdapters(t, layout, setting{}, collectives.Options{Scratch: 5 << 20}, func(ctx context.Context, r *rank) error {
			m, err := r.world.Alloc(8 * count)
			if err != nil {
				return err
			}
			large, small := m.Addr(), m.Addr()+4*count
			in := make([]byte, 4*count)
			reference.Fill(in, kernel.Float32, kernel.Sum, 5, r.Rank(), 0)
			o := &collectives.CallOptions{Stream: r.stream}
			// The mean of what all have stays what it is, however often.
			mean := func(addr uintptr, n int) error {
				return r.AllReduce(pointer(addr), pointer(addr), n, kernel.Float32, kernel.Avg, o)
			}
			calls := func() error { return errors.Join(mean(small, 1), mean(small, 1000), mean(small, 1000)) } // an odd number
			if err := errors.Join(r.dev.WriteAt(in, large), r.dev.WriteAt(in[:4000], small), calls(), mean(large, count), r.settle(ctx)); err != nil {
				return err
			}
			want := make([]byte, 4*count)
			if err := errors.Join(r.dev.ReadAt(want, large), alike(ctx, r, want)); err != nil {
				return err
			}
			few, err := capture(r, calls)
			if err != nil {
				return err
			}
			defer few.Close()
			many, err := capture(r, func() error { return mean(large, count) })
			if err != nil {
				return err
			}
			defer many.Close()
			replays := replays
			if r.over == overImmediate {
				replays /= 10
			}
			for i := range replays {
				err := few.Launch(r.stream)
				if i%50 == 0 {
					err = errors.Join(err, many.Launch(r.stream), mean(large, count), r.Barrier(o), r.settle(ctx))
				}
				if err != nil {
					return fmt.Errorf("after %d replays: %w", i, err)
				}
			}
			got := make([]byte, 4*count)
			if err := errors.Join(r.settle(ctx), r.dev.ReadAt(got, large), alike(ctx, r, got)); err != nil {
				return err
			}
			if n := reference.Wrong(got, want, kernel.Float32, kernel.Sum, 0); n != 0 {
				return fmt.Errorf("%d wrong elements of %d", n, count)
			}
			return errors.Join(r.dev.ReadAt(got[:4000], small), alike(ctx, r, got[:4000]))
		})
	}
}

// alike says which rank has other bits.
func alike(ctx context.Context, r *rank, b []byte) error {
	digest := sha256.Sum256(b)
	all, err := r.world.AllGather(ctx, digest[:])
	if err != nil {
		return err
	}
	for other, d := range all {
		if string(d) != string(digest[:]) {
			return fmt.Errorf("rank %d has other bits than rank %d", other, r.Rank())
		}
	}
	return nil
}

// Captures in all modes are as good as launches, also the first with a type; before the first
// call of a job they are refused, and nothing ends.
func TestDirectCaptures(t *testing.T) {
	overAdapters(t, "aabb", setting{}, collectives.Options{}, func(ctx context.Context, r *rank) error {
		m, err := r.memory(ctx, 1<<20)
		if err != nil {
			return err
		}
		call := func() error { return sums(r, m.Addr(), 1000, "") }
		graph, err := capture(r, call)
		if graph != nil {
			err = errors.Join(err, graph.Close())
		}
		if err := errors.Join(wants(err, framework.ErrUnsupported, "capture", directly), r.world.Check(), first(ctx, r)); err != nil {
			return err
		}
		for _, mode := range []cuda.CaptureMode{cuda.CaptureGlobal, cuda.CaptureThreadLocal, cuda.CaptureRelaxed} {
			if err := replayed(ctx, r, mode, call); err != nil {
				return fmt.Errorf("mode %v: %w", mode, err)
			}
		}
		// Calls in which the host takes part are refused still.
		graph, err = capture(r, func() error { return sums(r, m.Addr(), 100, "ports") })
		if graph != nil {
			err = errors.Join(err, graph.Close())
		}
		return errors.Join(wants(err, framework.ErrUnsupported, "captured"), r.world.Check(), call(), r.settle(ctx))
	})
}

// All ranks choose alike, whatever a rank has asked for and whatever call came first, messages
// included.
func TestDirectBehindMessages(t *testing.T) {
	overAdapters(t, "ab", setting{}, collectives.Options{}, func(ctx context.Context, r *rank) error {
		m, err := r.memory(ctx, 1<<20)
		if err != nil {
			return err
		}
		x := trial{Kind: collectives.AllReduce, Count: 1000, Type: kernel.Float32}
		if r.Rank() == 0 {
			if chosen, err := r.Choice(x.Request(2), ""); err != nil || chosen == directly {
				return fmt.Errorf("by %q, %v: expected what the host does, before the first call", chosen, err)
			}
		}
		o := &collectives.CallOptions{Stream: r.stream}
		r.GroupStart()
		err = errors.Join(r.Send(pointer(m.Addr()), 64, kernel.Uint8, 1-r.Rank(), o), r.Recv(pointer(m.Addr()+4096), 64, kernel.Uint8, 1-r.Rank(), o))
		if err := errors.Join(err, r.GroupEnd(), r.settle(ctx)); err != nil {
			return err
		}
		if err := x.Run(r.rig(ctx, m.Addr(), 1<<19), 3); err != nil {
			return err
		}
		chosen, err := r.Choice(x.Request(2), "")
		if err == nil && chosen != directly {
			err = fmt.Errorf("by %q: expected %s", chosen, directly)
		}
		return err
	})
}

// replayed captures a call on all ranks at the same time, and launches it.
func replayed(ctx context.Context, r *rank, mode cuda.CaptureMode, call func() error) error {
	if err := errors.Join(r.settle(ctx), r.world.Barrier(ctx), r.dev.BeginCapture(r.stream, mode)); err != nil {
		return err
	}
	err := errors.Join(call(), r.world.Barrier(ctx))
	graph, ended := r.dev.EndCapture(r.stream)
	if err := errors.Join(err, ended, r.world.Barrier(ctx)); err != nil {
		return err
	}
	for range 3 {
		err = errors.Join(err, graph.Launch(r.stream))
	}
	return errors.Join(err, r.settle(ctx), graph.Close())
}

// Kernels exchange what hosts have: all sizes from nothing to many pieces, all
// reductions, launched and from graphs.
func TestDirectResults(t *testing.T) {
	const half = 4 << 20
	layouts, counts := []string{"ab", "abc", "aabb", "abab", "aabbcc"}, []int{0, 1, 2, 63, 1001, 16 << 10, 40_009, 300_000}
	if raceEnabled { // three hosts, and two ranks on one; nothing, one piece and several
		layouts, counts = []string{"abc", "aabb"}, []int{0, 1001, 16 << 10, 40_009}
	}
	for _, layout := range layouts {
		t.Run(layout, func(t *testing.T) {
			var mu sync.Mutex
			ran := 0
			overAdapters(t, layout, setting{allSignals: layout == "aabb"}, collectives.Options{Scratch: 5 << 20, Sharing: (len(layout) + 3) / 4}, func(ctx context.Context, r *rank) error {
				m, err := r.world.Alloc(2 * half)
				if err != nil {
					return err
				}
				if err := first(ctx, r); err != nil {
					return err
				}
				if !slices.Contains(r.Algorithms(collectives.AllReduce), directly) {
					return fmt.Errorf("algorithms %v: expected %s", r.Algorithms(collectives.AllReduce), directly)
				}
				rig := r.rig(ctx, m.Addr(), half)
				i := 0
				for _, kind := range []collectives.Collective{collectives.AllReduce, collectives.ReduceScatter, collectives.AllGather} {
					for n, op := range []kernel.Op{kernel.Sum, kernel.PreMulSum, kernel.Avg, kernel.Max} {
						if layout != "ab" && layout != "aabb" && n%2 != 0 { // there are many threads for the cores of a test machine
							continue
						}
						for k, count := range counts {
							i++
							if kind == collectives.AllGather && op != kernel.Sum {
								continue
							}
							if kind != collectives.AllReduce {
								count /= 1 + k/6*2
							}
							x := trial{Kind: kind, Count: count, Type: []kernel.DataType{kernel.Float16, kernel.Float32}[(i+i/7)%2],
								Op: op, InPlace: i/2%2 == 0, Shift: k % 3}
							if chosen, err := r.Choice(x.Request(r.Size()), ""); err != nil || chosen != directly {
								return fmt.Errorf("%v of %d elements: by %q, %v: expected %s", kind, count, chosen, err, directly)
							}
							if err := x.Run(rig, uint64(i)); err != nil {
								return err
							}
							mu.Lock()
							ran++
							mu.Unlock()
						}
					}
				}
				return nil
			})
			if ran == 0 && !t.Failed() {
				t.Error("nothing ran")
			}
		})
	}
}
