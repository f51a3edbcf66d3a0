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
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Close ends a call that waits for a rank which does not come, or has left, and returns itself;
// ranks that are still there learn of it.
func TestCloseWithinACall(t *testing.T) {
	const most, count = 20 * time.Second, 1000
	b := func(c *collectives.Comm) []byte { return make([]byte, 4*count*c.Size()) }
	receive := func(c *collectives.Comm) error {
		return c.Recv(pointer(b(c)), count, kernel.Float32, c.Size()-1, nil)
	}
	calls := map[string]waits{
		"sum": {call: func(c *collectives.Comm) error {
			return c.AllReduce(pointer(b(c)), pointer(b(c)), count, kernel.Float32, kernel.Sum, nil)
		}},
		"receive": {call: receive},
		"group": {
			before: func(c *collectives.Comm) error {
				c.GroupStart()
				return receive(c)
			},
			call: (*collectives.Comm).GroupEnd,
		},
	}
	for name, call := range calls {
		for _, layout := range []string{"aa", "ab", "aabb"} { // kernels, ports, two levels
			for _, mode := range []string{"late", "left", "split", "communicator"} {
				if mode == "communicator" && name != "sum" {
					continue // the other calls wait in the same way
				}
				t.Run(fmt.Sprint(name, " ", layout, " ", mode), func(t *testing.T) {
					t.Parallel() // nearly all of it is waiting
					at := strings.Split(layout, "")
					last := len(at) - 1
					ranks := local{at: at, offers: []offer{asItIs, overWire}, together: mode == "split"}
					early := make(chan struct{}) // Close came before the call: the other rank has nothing to learn
					ranks.run(t, func(ctx context.Context, world *comm.Communicator) error {
						c, err := closable(ctx, world, mode == "split")
						if err != nil {
							return err
						}
						defer c.Communicator().Close()
						if err := c.Barrier(nil); err != nil {
							return err
						}
						if err := world.Barrier(ctx); err != nil && (c.Rank() == 0 || !errors.Is(err, framework.ErrPeer)) {
							return err // others may learn of the end of rank 0, which has left the barrier, within it
						}
						if c.Rank() == 0 {
							closes := c.Close
							if mode == "communicator" { // its collectives are still open
								closes = c.Communicator().Close
							}
							turnedAway, err := closedWithin(c, call, closes, most)
							if turnedAway {
								close(early)
							}
							return err
						}
						if c.Rank() != last || mode != "left" {
							select {
							case <-c.Communicator().Done():
							case <-early:
								return c.Close()
							case <-ctx.Done():
								return fmt.Errorf("rank 0 has closed within a call, and this rank has not learned of it: %w", ctx.Err())
							}
							err := c.Communicator().Err()
							if mode != "left" && (!errors.Is(err, framework.ErrPeer) || framework.PeerOf(err) != 0 || !strings.Contains(err.Error(), "closed its collectives while a call")) {
								return fmt.Errorf("%v, expected ErrPeer of rank 0, which has closed within a call", err)
							}
						}
						return c.Close()
					})
				})
			}
		}
	}
}

// waits is a call that waits for the last rank, and what comes before it and does not wait.
type waits struct{ before, call func(*collectives.Comm) error }

// overWire is a network between the hosts of tests.
func overWire(_ int, plain framework.Transport) framework.Transport {
	return wire{portsOnly{plain}, framework.SignalAtomic}
}

// closable makes collectives on a communicator, or on one that is split from it.
func closable(ctx context.Context, world *comm.Communicator, split bool) (*collectives.Comm, error) {
	if split {
		var err error
		if world, err = world.Split(ctx, 0, world.Rank()); err != nil {
			return nil, err
		}
	}
	return collectives.New(ctx, world, collectives.Options{})
}

// closedWithin closes while a call is in progress. On a busy machine the call may have the turn, and not have looked yet
// whether it may begin: then it is turned away, and does not end the communicator.
func closedWithin(c *collectives.Comm, w waits, closes func() error, most time.Duration) (turnedAway bool, all error) {
	if w.before != nil {
		if err := w.before(c); err != nil {
			return false, err
		}
	}
	called, closed := make(chan error, 1), make(chan error, 1)
	go func() { called <- w.call(c) }()
	limit := time.After(most)
	for !c.InCall() {
		select {
		case err := <-called:
			return false, fmt.Errorf("%v before Close, expected the call to wait", err)
		default:
		}
	}
	go func() { closed <- closes() }()
	for range 2 {
		select {
		case err := <-called:
			select {
			case <-c.Communicator().Done():
			default:
				turnedAway = err != nil && strings.HasSuffix(err.Error(), "collectives: "+framework.ErrClosed.Error())
			}
			if !errors.Is(err, framework.ErrClosed) && !errors.Is(err, framework.ErrPeer) { // that one has left
				all = errors.Join(all, fmt.Errorf("the call: %v, expected ErrClosed", err))
			}
		case err := <-closed:
			all = errors.Join(all, err)
		case <-limit:
			err := fmt.Errorf("close, or the call, has not returned within %v", most)
			c.Communicator().Abort(err)
			return false, err
		}
	}
	if err := c.Barrier(nil); !errors.Is(err, framework.ErrClosed) {
		all = errors.Join(all, fmt.Errorf("a call after Close: %v, expected ErrClosed", err))
	}
	return turnedAway, errors.Join(all, c.Close())
}
