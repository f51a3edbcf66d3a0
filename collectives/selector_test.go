package collectives_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// A selector is asked once in a call, whatever it answers: one whose answers change would name an algorithm for the
// first half of a call and another one for the second. Prepare does not ask it, for nobody makes the calls it is about.
func TestSelectorIsAskedOnce(t *testing.T) {
	job(t, 2, collectives.Options{}, func(ctx context.Context, c *collectives.Comm) error {
		used := 0
		err := c.RegisterAlgorithm(collectives.Algorithm{Collective: collectives.AllReduce, Name: "own", Run: func(*collectives.Comm, *collectives.Call) error {
			used++
			return nil
		}})
		if err != nil {
			return err
		}
		asked := 0
		c.RegisterSelector(func(*collectives.Request) string {
			asked++
			return []string{"", "own"}[asked%2]
		})
		if err := c.Prepare(collectives.AllReduce, kernel.Float32); err != nil || asked != 0 {
			return fmt.Errorf("prepare: %v, the selector was asked %d times", err, asked)
		}
		b := make([]byte, 1<<20) // a size for which two ranks try two methods first
		for call := 1; call <= 4; call++ {
			if err := c.AllReduce(pointer(b), pointer(b), len(b)/4, kernel.Float32, kernel.Sum, nil); err != nil {
				return err
			}
			if want := (call + 1) / 2; asked != call || used != want {
				return fmt.Errorf("call %d: the selector was asked %d times, its algorithm used %d times: expected %d", call, asked, used, want)
			}
		}
		return nil
	})
}
