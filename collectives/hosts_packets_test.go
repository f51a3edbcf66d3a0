package collectives_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Packets go where signals are messages of an adapter, up to their size, and signals
// everywhere else: a program that names packets there gets an error.
func TestPacketsAreChosen(t *testing.T) {
	// Those that need an inbox, which no wire has, are in TestSealable.
	for signal, packets := range map[framework.Signal]bool{framework.SignalAtomic: true, framework.SignalDirect: false} {
		hostsOver(t, []string{"a", "a", "b", "b"}, signal, collectives.Options{}, func(_ context.Context, c *collectives.Comm) error {
			if err := c.Barrier(nil); err != nil { // which finds it out
				return err
			}
			small := "hierarchical_small"
			if packets {
				small = "hierarchical_packets"
			}
			for _, x := range []struct {
				kind  collectives.Collective
				bytes uint64
				want  string
			}{
				{collectives.Barrier, 0, small},
				{collectives.AllReduce, 4, small}, {collectives.AllGather, 4, small}, {collectives.ReduceScatter, 4, small},
				{collectives.AllReduce, 1 << 20, "hierarchical_large"}, {collectives.Broadcast, 4, "hierarchical_small"},
			} {
				got, err := c.Choice(collectives.Request{Collective: x.kind, Bytes: x.bytes, Count: x.bytes / 4, Type: kernel.Float32}, "")
				if err != nil || got != x.want {
					return fmt.Errorf("%s: %v of %d bytes goes by %q, expected %s: %v", signal, x.kind, x.bytes, got, x.want, err)
				}
			}
			on, _ := c.Packets()
			err := c.Barrier(&collectives.CallOptions{Algorithm: "hierarchical_packets"})
			if on != packets || packets && err != nil || !packets && !errors.Is(err, framework.ErrUnsupported) {
				return fmt.Errorf("%s: packets are used: %v, expected %v; by name: %v", signal, on, packets, err)
			}
			return nil
		})
	}
}

// numbers performs one call whose result is known exactly, and looks at all of it.
func numbers(c *collectives.Comm, kind collectives.Collective, count, round int, o *collectives.CallOptions) error {
	n, me := c.Size(), c.Rank()
	value := func(rank, i int) int32 { return int32(rank*1_000_003 + i*7919 + round*104_729) }
	in, out := make([]int32, count*n), make([]int32, count*n+1)
	for i := range in {
		in[i] = value(me, i)
	}
	const untouched = -77
	for i := range out {
		out[i] = untouched
	}
	p, q := unsafe.Pointer(&in[0]), unsafe.Pointer(&out[0])
	sum := func(i int) (s int32) {
		for r := range n {
			s += value(r, i)
		}
		return s
	}
	var err error
	results, want := count, func(i int) int32 { return sum(i) }
	switch kind {
	case collectives.AllReduce:
		err = c.AllReduce(p, q, count, kernel.Int32, kernel.Sum, o)
	case collectives.ReduceScatter:
		err = c.ReduceScatter(p, q, count, kernel.Int32, kernel.Sum, o)
		want = func(i int) int32 { return sum(me*count + i) }
	case collectives.AllGather:
		err = c.AllGather(p, q, count, kernel.Int32, o)
		results, want = count*n, func(i int) int32 { return value(i/count, i%count) }
	case collectives.Broadcast:
		err = c.Broadcast(p, q, count, kernel.Int32, round%n, o)
		want = func(i int) int32 { return value(round%n, i) }
	}
	if err != nil {
		return fmt.Errorf("round %d: %v of %d: %w", round, kind, count, err)
	}
	for i, x := range out {
		w := int32(untouched)
		if i < results {
			w = want(i)
		}
		if x != w {
			return fmt.Errorf("round %d: %v of %d: element %d is %d, expected %d", round, kind, count, i, x, w)
		}
	}
	return nil
}

// Many epochs, also across the wrap of their number and of half of it, over hosts that
// differ, with calls of other kinds in between, and ranks that are late by turns: no rank
// overwrites what another has not read.
func TestEpochsOverHosts(t *testing.T) {
	named := &collectives.CallOptions{Algorithm: "hierarchical_packets"}
	kinds := []collectives.Collective{collectives.AllReduce, collectives.ReduceScatter, collectives.AllGather}
	for _, layout := range []string{"aabb", "abbb", "aaab", "abab", "aabbbc"} {
		for _, epoch := range []uint64{1, 1<<32 - 20, math.MaxUint64 - 20} {
			t.Run(fmt.Sprint(layout, " from ", epoch), func(t *testing.T) {
				const rounds = 120
				hosts(t, strings.Split(layout, ""), true, collectives.Options{}, func(ctx context.Context, c *collectives.Comm) error {
					if err := c.Barrier(nil); err != nil {
						return err
					}
					if err := c.Communicator().Barrier(ctx); err != nil {
						return err
					}
					c.SetPacketEpoch(epoch)
					if err := c.Communicator().Barrier(ctx); err != nil {
						return err
					}
					calls := uint64(0)
					for round := range rounds {
						for range (c.Rank()*5 + round*3) % 7 * 20 {
							runtime.Gosched()
						}
						var err error
						switch round % 8 {
						case 3:
							err = numbers(c, collectives.Broadcast, 50, round, nil)
						case 5:
							err = numbers(c, kinds[round%3], 50, round, &collectives.CallOptions{Algorithm: "hierarchical_small"})
						case 7:
							calls++
							err = c.Barrier(named)
						default:
							calls++
							err = numbers(c, kinds[round%3], 1+round*round%300, round, named)
						}
						if err != nil {
							return err
						}
					}
					if on, now := c.Packets(); !on || now != epoch+calls {
						return fmt.Errorf("packets %v, epoch %d, expected %d behind %d calls", on, now, epoch+calls, calls)
					}
					return nil
				})
			})
		}
	}
}

// At the largest size that packets take, one element less and one more.
func TestSizesAroundPackets(t *testing.T) {
	for _, layout := range []string{"aabb", "abbb"} {
		for _, scratch := range []uint64{0, 1} { // slots of the usual size, and the smallest
			hosts(t, strings.Split(layout, ""), true, collectives.Options{Scratch: scratch}, func(_ context.Context, c *collectives.Comm) error {
				if err := c.Barrier(nil); err != nil {
					return err
				}
				var most int
				for _, kind := range []collectives.Collective{collectives.AllReduce, collectives.ReduceScatter, collectives.AllGather} {
					each := 4
					if kind != collectives.AllReduce {
						each *= c.Size()
					}
					by := func(count int) string {
						got, err := c.Choice(collectives.Request{Collective: kind, Bytes: uint64(count * each), Count: uint64(count), Type: kernel.Int32}, "")
						if err != nil {
							return err.Error()
						}
						return got
					}
					for most = 1; by(2*most) == "hierarchical_packets"; {
						most *= 2
					}
					if most*each < 4<<10 || by(most) != "hierarchical_packets" {
						return fmt.Errorf("%v: packets take %d elements, expected 4 KiB or more", kind, most)
					}
					for round, count := range []int{most - 1, most, most + 1, 1, most} {
						if err := numbers(c, kind, count, round, nil); err != nil {
							return err
						}
					}
				}
				return nil
			})
		}
	}
}

// A rank that expects a packet ends with an error when the other side is in a call without packets,
// or in none but a group of messages, and so does that side. None of them sends what the other
// waits for.
func TestPacketsAgainstOtherCalls(t *testing.T) {
	calls := map[string]func(c *collectives.Comm, b unsafe.Pointer) error{
		"broadcast from there": func(c *collectives.Comm, b unsafe.Pointer) error {
			return c.Broadcast(b, b, 100, kernel.Float32, 3, nil)
		},
		"broadcast from here": func(c *collectives.Comm, b unsafe.Pointer) error {
			return c.Broadcast(b, b, 100, kernel.Float32, 0, nil)
		},
		"a longer sum": func(c *collectives.Comm, b unsafe.Pointer) error {
			return c.AllReduce(b, b, 1001, kernel.Float32, kernel.Sum, nil)
		},
		"a gather as long": func(c *collectives.Comm, b unsafe.Pointer) error {
			return c.AllGather(unsafe.Add(b, 2000*c.Rank()), b, 500, kernel.Float32, nil) // in place
		},
		"a large sum": func(c *collectives.Comm, b unsafe.Pointer) error {
			return c.AllReduce(b, b, 1<<20, kernel.Float32, kernel.Sum, nil)
		},
		"a message": func(c *collectives.Comm, b unsafe.Pointer) error {
			return c.Recv(b, 100, kernel.Float32, c.Rank()-2, nil)
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			said := 0
			hosts(t, []string{"a", "a", "b", "b"}, true, collectives.Options{}, func(_ context.Context, c *collectives.Comm) error {
				b := unsafe.Pointer(&make([]byte, 16<<20)[0])
				if err := c.Barrier(nil); err != nil {
					return err
				}
				var err error
				if c.Rank() < 2 {
					err = c.AllReduce(b, b, 1000, kernel.Float32, kernel.Sum, nil)
				} else {
					err = call(c, b)
				}
				if err == nil { // it was the root of a broadcast, or the like
					err = c.Barrier(nil)
				}
				if !errors.Is(err, framework.ErrInvalid) && !errors.Is(err, framework.ErrPeer) {
					return fmt.Errorf("%v, expected ErrInvalid, or ErrPeer of the one who found out", err)
				}
				mu.Lock()
				defer mu.Unlock()
				if strings.Contains(err.Error(), "ranks disagree") && strings.Contains(err.Error(), "of 1000 f32 sum by hierarchical_packets") {
					said++
				}
				return nil
			})
			if said == 0 {
				t.Error("no error says that ranks disagree and on what")
			}
		})
	}
}

// A rank that waits for a packet that will not come ends with the reason: the rank that failed.
func TestDeathWhilePacketsAreAwaited(t *testing.T) {
	for culprit := range 4 {
		hosts(t, []string{"a", "b", "b", "b"}, true, collectives.Options{}, func(_ context.Context, c *collectives.Comm) error {
			var err error
			for i := 0; err == nil; i++ {
				if c.Rank() == culprit && i == 10 {
					c.Communicator().Abort(&framework.Error{Op: "test", Peer: culprit, Err: fmt.Errorf("%w: it stumbles", framework.ErrPeer)})
					return nil
				}
				err = numbers(c, collectives.AllReduce, 100, i, nil)
			}
			if on, epochs := c.Packets(); !on || epochs < 9 {
				return fmt.Errorf("packets %v, %d epochs, expected 9 or more", on, epochs)
			}
			if !errors.Is(err, framework.ErrPeer) || framework.PeerOf(err) != culprit {
				return fmt.Errorf("%v, expected ErrPeer of rank %d", err, culprit)
			}
			return nil
		})
	}
}
