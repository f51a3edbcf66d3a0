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

// A call that names the algorithm of the call before it does not look for it again, until its sizes, the name or what is registered change.
func TestNamedAlgorithmsAreRemembered(t *testing.T) {
	job(t, 1, collectives.Options{}, func(ctx context.Context, c *collectives.Comm) error {
		fits, ran := map[string]int{}, ""
		for _, name := range []string{"first", "second"} {
			err := c.RegisterAlgorithm(collectives.Algorithm{
				Collective: collectives.AllReduce, Name: name, Alone: true,
				Fits: func(collectives.Request) bool { fits[name]++; return true },
				Run: func(own *collectives.Comm, call *collectives.Call) error {
					if ran = name; own != nil || call.Input == nil {
						return fmt.Errorf("%s gets a Comm, or no input", name)
					}
					return nil
				},
			})
			if err != nil {
				return err
			}
		}
		b := make([]byte, 4096)
		for i, x := range []struct {
			name          string
			count         int
			first, second int // how often Fits was asked afterwards
		}{
			{"first", 16, 1, 0}, {"first", 16, 1, 0}, {"", 16, 1, 0}, {"first", 16, 1, 0}, // a call without a name is remembered beside it
			{"first", 32, 2, 0}, {"first", 16, 3, 0},
			{"second", 16, 3, 1}, {"second", 16, 3, 1}, {"first", 16, 4, 1}, {"first", 16, 4, 1},
		} {
			if ran = ""; i == 9 {
				c.RegisterSelector(func(*collectives.Request) string { return "second" })
				x.first++ // earlier choices count no more
			}
			if err := c.AllReduce(pointer(b), pointer(b), x.count, kernel.Float32, kernel.Sum, &collectives.CallOptions{Algorithm: x.name}); err != nil {
				return err
			}
			if ran != x.name || fits["first"] != x.first || fits["second"] != x.second {
				return fmt.Errorf("call %d, of %d elements by %q: %q ran, Fits was asked %v", i, x.count, x.name, ran, fits)
			}
		}
		return nil
	})
}
