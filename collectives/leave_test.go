package collectives_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/internal/promise"
)

// A rank that leaves the job in good order while others still wait for it is named at
// once by all of them, on its host and on others, in whatever step they are.
func TestLeavingOverHosts(t *testing.T) {
	const most, count = 8 * time.Second, 1000 // on a quiet machine it takes one
	b := func(c *collectives.Comm) []byte { return make([]byte, 8*count*c.Size()) }
	calls := map[string]func(c *collectives.Comm) error{
		"small sum": func(c *collectives.Comm) error {
			return c.AllReduce(pointer(b(c)), pointer(b(c)), count, kernel.Float32, kernel.Sum, nil)
		},
		"large sum": func(c *collectives.Comm) error {
			return c.AllReduce(pointer(b(c)), pointer(b(c)), count, kernel.Float64, kernel.Sum, &collectives.CallOptions{Algorithm: "hierarchical_large"})
		},
		"flat sum": func(c *collectives.Comm) error {
			return c.AllReduce(pointer(b(c)), pointer(b(c)), count, kernel.Float32, kernel.Sum, &collectives.CallOptions{Algorithm: "ports"})
		},
		"all to all": func(c *collectives.Comm) error {
			return c.AllToAll(pointer(b(c)), pointer(b(c)), count, kernel.Float32, nil)
		},
		"lengths": func(c *collectives.Comm) error { return swapV(c, kernel.Float32, 3, 100, nil) },
		"barrier": func(c *collectives.Comm) error { return c.Barrier(nil) },
	}
	for name, call := range calls {
		for layout, culprit := range map[string]int{"ab": 1, "aabb": 3, "abb": 0} {
			if layout == "ab" && name == "large sum" {
				continue // there is one level
			}
			t.Run(name+" "+layout, func(t *testing.T) {
				t.Parallel() // nearly all of it is waiting
				hosts(t, strings.Split(layout, ""), true, collectives.Options{}, func(_ context.Context, c *collectives.Comm) error {
					for i := range 2 {
						if err := call(c); err != nil {
							return fmt.Errorf("call %d: %w", i, err)
						}
					}
					if c.Rank() == culprit {
						return nil
					}
					watch := promise.Begin()
					err := call(c)
					if !errors.Is(err, framework.ErrPeer) || framework.PeerOf(err) != culprit || !strings.Contains(err.Error(), "left the job") {
						return fmt.Errorf("%v, expected ErrPeer of rank %d, which has left the job", err, culprit)
					}
					if late := watch.Kept(most); late != nil {
						return fmt.Errorf("%w: %w", late, err)
					}
					return nil
				})
			})
		}
	}
}

// Slots that messages have left do not hold up a collective, in which all ranks send before
// they receive.
func TestCollectivesBehindMessagesInARing(t *testing.T) {
	const most, bytes = 20 * time.Second, 600 << 10 // on a quiet machine it takes a tenth of a second
	ports := &collectives.CallOptions{Algorithm: "ports"}
	calls := map[string]func(c *collectives.Comm, in, out []byte) error{
		"all-gather": func(c *collectives.Comm, in, out []byte) error {
			return c.AllGather(pointer(in), pointer(out), 100, kernel.Uint8, ports)
		},
		"barrier": func(c *collectives.Comm, _, _ []byte) error { return c.Barrier(ports) },
		"broadcast": func(c *collectives.Comm, in, out []byte) error {
			return c.Broadcast(pointer(in), pointer(out), bytes, kernel.Uint8, 0, ports)
		},
		"reduce": func(c *collectives.Comm, in, out []byte) error {
			return c.Reduce(pointer(in), pointer(out), bytes, kernel.Uint8, kernel.Sum, 0, ports)
		},
		"sum in two levels": func(c *collectives.Comm, in, out []byte) error {
			return c.AllReduce(pointer(in), pointer(out), bytes, kernel.Uint8, kernel.Sum, nil)
		},
		"lengths": func(c *collectives.Comm, _, _ []byte) error { return swapV(c, kernel.Float32, 3, 100, nil) },
	}
	for name, call := range calls {
		layout, first, far := "abc", 0, 1
		switch name {
		case "broadcast", "reduce":
			layout, first = "abcd", 1 // not around the root
		case "sum in two levels", "lengths":
			layout, far = "aabbcc", 2
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hosts(t, strings.Split(layout, ""), true, collectives.Options{}, func(_ context.Context, c *collectives.Comm) error {
				in, out := make([]byte, bytes), make([]byte, bytes)
				all := func() error {
					for range 3 {
						for range 2 { // each is two pieces, and there are four slots
							if err := circle(c, in, out, first, far); err != nil {
								return err
							}
						}
						if err := call(c, in, out); err != nil {
							return err
						}
					}
					return nil
				}
				done := make(chan error, 1)
				go func() { done <- all() }()
				select {
				case err := <-done:
					return err
				case <-time.After(most):
					return fmt.Errorf("rank %d: still under way after %v", c.Rank(), most)
				}
			})
		})
	}
}

// circle has each rank but the first ones send to the one that is so many further.
func circle(c *collectives.Comm, in, out []byte, first, far int) error {
	n, at := c.Size()-first, c.Rank()-first
	if at < 0 {
		return nil
	}
	c.GroupStart()
	return errors.Join(
		c.Send(pointer(in), 100, kernel.Uint8, first+(at+far)%n, nil),
		c.Recv(pointer(out), 100, kernel.Uint8, first+(at+n-far)%n, nil),
		c.GroupEnd())
}
