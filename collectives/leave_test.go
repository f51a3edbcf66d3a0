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
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// A rank that leaves the job in good order while others still wait for it is named at
// once by all of them, on its host and on others, in whatever step they are.
func TestLeavingOverHosts(t *testing.T) {
	const most, count = 8 * time.Second, 1000 // on a quiet machine it takes one
	b := func(c *collectives.Comm) []byte { return make([]byte, 8*count*c.Size()) }
	calls := map[string]func(c *collectives.Comm) error{
		"small sum": func(c *collectives.Comm) error {
			return c.AllReduce(pointer(b(c)), pointer(b(c)), count, device.Float32, device.Sum, nil)
		},
		"large sum": func(c *collectives.Comm) error {
			return c.AllReduce(pointer(b(c)), pointer(b(c)), count, device.Float64, device.Sum, &collectives.CallOptions{Algorithm: "hierarchical_large"})
		},
		"flat sum": func(c *collectives.Comm) error {
			return c.AllReduce(pointer(b(c)), pointer(b(c)), count, device.Float32, device.Sum, &collectives.CallOptions{Algorithm: "ports"})
		},
		"all to all": func(c *collectives.Comm) error {
			return c.AllToAll(pointer(b(c)), pointer(b(c)), count, device.Float32, nil)
		},
		"lengths": func(c *collectives.Comm) error { return swapV(c, device.Float32, 3, 100, nil) },
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
					start := time.Now()
					err := call(c)
					if !errors.Is(err, framework.ErrPeer) || framework.PeerOf(err) != culprit || !strings.Contains(err.Error(), "left the job") {
						return fmt.Errorf("%v, expected ErrPeer of rank %d, which has left the job", err, culprit)
					}
					if took := time.Since(start); took > most {
						return fmt.Errorf("after %v, expected at most %v: %w", took, most, err)
					}
					return nil
				})
			})
		}
	}
}
