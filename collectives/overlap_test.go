package collectives_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Buffers that overlap are refused, by every collective, unless they are those of a call in place; buffers that touch
// are apart.
func TestOverlappingBuffers(t *testing.T) {
	const count, element = 100, 4
	type call struct {
		collective func(c *collectives.Comm, in, out unsafe.Pointer) error
		in, out    int             // elements, in counts
		inPlace    func(r int) int // where the output is, in counts behind the input
	}
	same := func(int) int { return 0 }
	counts := func(n int) (all, at []int) {
		for r := range n {
			all, at = append(all, count), append(at, r*count)
		}
		return all, at
	}
	for _, layout := range []string{"aaa", "abc"} {
		t.Run(layout, func(t *testing.T) {
			at := strings.Split(layout, "")
			n := len(at)
			own, before := func(r int) int { return r }, func(r int) int { return -r }
			calls := map[string]call{
				"allreduce": {func(c *collectives.Comm, in, out unsafe.Pointer) error {
					return c.AllReduce(in, out, count, kernel.Float32, kernel.Sum, nil)
				}, 1, 1, same},
				"allgather": {func(c *collectives.Comm, in, out unsafe.Pointer) error {
					return c.AllGather(in, out, count, kernel.Float32, nil)
				}, 1, n, before},
				"reducescatter": {func(c *collectives.Comm, in, out unsafe.Pointer) error {
					return c.ReduceScatter(in, out, count, kernel.Float32, kernel.Sum, nil)
				}, n, 1, own},
				"alltoall": {func(c *collectives.Comm, in, out unsafe.Pointer) error {
					return c.AllToAll(in, out, count, kernel.Float32, nil)
				}, n, n, same},
				"broadcast": {func(c *collectives.Comm, in, out unsafe.Pointer) error {
					return c.Broadcast(in, out, count, kernel.Float32, 1, nil)
				}, 1, 1, same},
				"reduce": {func(c *collectives.Comm, in, out unsafe.Pointer) error {
					return c.Reduce(in, out, count, kernel.Float32, kernel.Sum, 1, nil)
				}, 1, 1, same},
				"gather": {func(c *collectives.Comm, in, out unsafe.Pointer) error {
					return c.Gather(in, out, count, kernel.Float32, 1, nil)
				}, 1, n, before},
				"scatter": {func(c *collectives.Comm, in, out unsafe.Pointer) error {
					return c.Scatter(in, out, count, kernel.Float32, 1, nil)
				}, n, 1, own},
				"alltoallv": {func(c *collectives.Comm, in, out unsafe.Pointer) error {
					all, at := counts(n)
					return c.AllToAllV(in, all, at, out, all, at, kernel.Float32, nil)
				}, n, n, nil},
			}
			rooted := func(name string) bool {
				return name == "broadcast" || name == "reduce" || name == "gather" || name == "scatter"
			}
			hosts(t, at, true, collectives.Options{}, func(ctx context.Context, c *collectives.Comm) error {
				b := make([]byte, 8*n*count*element)
				in := unsafe.Pointer(&b[len(b)/2])
				for _, name := range slices.Sorted(maps.Keys(calls)) {
					x := calls[name]
					legal := []int{x.in * count, -x.out * count} // elements behind the input
					if x.inPlace != nil {
						legal = append(legal, x.inPlace(c.Rank())*count)
					}
					for _, shift := range legal {
						if err := x.collective(c, in, unsafe.Add(in, shift*element)); err != nil {
							return fmt.Errorf("%s, output %d elements behind the input: %w", name, shift, err)
						}
					}
					for i := range legal {
						for _, more := range []int{-1, 1} {
							shift := legal[i] + more
							if i == 0 && more > 0 || i == 1 && more < 0 {
								continue // apart
							}
							if err := c.Communicator().Barrier(ctx); err != nil {
								return err
							}
							if rooted(name) && c.Rank() != 1 {
								continue // nothing of it is used but one buffer, and the root makes no call
							}
							err := x.collective(c, in, unsafe.Add(in, shift*element))
							if !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), "overlap") {
								return fmt.Errorf("%s, output %d elements behind the input: %v, expected ErrInvalid", name, shift, err)
							}
						}
					}
				}
				return c.Communicator().Barrier(ctx)
			})
		})
	}
}

// Messages of a group that use one buffer are refused where one of them is received.
func TestOverlappingMessages(t *testing.T) {
	const count = 100
	job(t, 2, collectives.Options{}, func(_ context.Context, c *collectives.Comm) error {
		b := make([]byte, 4*count)
		at := func(i int) unsafe.Pointer { return unsafe.Pointer(&b[i]) }
		peer := 1 - c.Rank()
		grouped := func(calls ...func() error) error {
			c.GroupStart()
			var all error
			for _, f := range calls {
				all = errors.Join(all, f())
			}
			return errors.Join(all, c.GroupEnd())
		}
		send := func(i, with int) func() error {
			return func() error { return c.Send(at(i), count, kernel.Uint8, with, nil) }
		}
		recv := func(i, with int) func() error {
			return func() error { return c.Recv(at(i), count, kernel.Uint8, with, nil) }
		}
		for name, err := range map[string]error{
			"received twice":        grouped(recv(0, peer), recv(99, peer), send(300, peer), send(300, peer)),
			"sent and received":     grouped(send(50, peer), recv(0, peer)),
			"the same buffer":       grouped(send(0, peer), recv(0, peer)),
			"behind a shorter send": grouped(send(0, peer), recv(200, peer), send(100, peer), recv(150, peer)),
		} {
			if !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), "overlap") {
				return fmt.Errorf("%s: %v, expected ErrInvalid", name, err)
			}
		}
		return errors.Join(
			grouped(send(0, peer), send(0, peer), recv(100, peer), recv(200, peer)),
			grouped(send(0, c.Rank()), recv(0, c.Rank())),
			grouped(send(0, peer), recv(100, peer)))
	})
}

// With AnyOverlap such messages arrive; what the buffer holds then is not said.
func TestOverlapIsLetPass(t *testing.T) {
	job(t, 2, collectives.Options{AnyOverlap: true}, func(_ context.Context, c *collectives.Comm) error {
		b := make([]byte, 100)
		c.GroupStart()
		return errors.Join(c.Send(unsafe.Pointer(&b[0]), 100, kernel.Uint8, 1-c.Rank(), nil), c.Recv(unsafe.Pointer(&b[0]), 100, kernel.Uint8, 1-c.Rank(), nil), c.GroupEnd())
	})
}

// Parts of the output of an all-to-all that overlap are refused, of ranks that share memory and of others; parts of the
// input may.
func TestOverlappingParts(t *testing.T) {
	const count = 100
	for _, layout := range []string{"aaa", "abc"} {
		t.Run(layout, func(t *testing.T) {
			hosts(t, strings.Split(layout, ""), true, collectives.Options{}, func(ctx context.Context, c *collectives.Comm) error {
				n := c.Size()
				in, out := make([]byte, n*count), make([]byte, n*count)
				all, apart, close, same := make([]int, n), make([]int, n), make([]int, n), make([]int, n)
				for r := range n {
					all[r], apart[r], close[r] = count, r*count, r*(count-1)
				}
				call := func(from, to []int) error {
					return c.AllToAllV(unsafe.Pointer(&in[0]), all, from, unsafe.Pointer(&out[0]), all, to, kernel.Uint8, nil)
				}
				for name, err := range map[string]error{"one element": call(apart, close), "all": call(apart, same)} {
					if !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), "overlap") {
						return fmt.Errorf("%s: %v, expected ErrInvalid", name, err)
					}
				}
				if err := c.Communicator().Barrier(ctx); err != nil {
					return err
				}
				return errors.Join(call(apart, apart), call(same, apart), call(close, apart))
			})
		})
	}
}
