package comm_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
	"github.com/mscclpp-go/mscclpp/framework/hook"
	"github.com/mscclpp-go/mscclpp/internal/promise"
)

// announced is how long after the failure of a rank the others may go on.
const announced = 2 * time.Second

// names checks an error: its class and the rank that it blames.
func names(err, class error, rank int, words ...string) error {
	if !errors.Is(err, class) || framework.PeerOf(err) != rank {
		return fmt.Errorf("%v: expected %q that names rank %d", err, class, rank)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			return fmt.Errorf("%v: expected it to say %q", err, w)
		}
	}
	return nil
}

// soon runs a call that has no deadline of its own, and says when it took longer
// than a failure may take to be known.
func soon(call func(ctx context.Context) error) error {
	watch := promise.Begin()
	err := call(context.Background())
	if late := watch.Kept(announced); late != nil {
		return fmt.Errorf("%w: %w", late, err)
	}
	return err
}

// setUps are the calls that set something up, between rank and the others.
var setUps = map[string]func(ctx context.Context, c *comm.Communicator, m *comm.Memory) error{
	"exchange": func(ctx context.Context, c *comm.Communicator, m *comm.Memory) error {
		_, err := c.Exchange(ctx, m)
		return err
	},
	"switch channel": func(ctx context.Context, c *comm.Communicator, m *comm.Memory) error {
		_, err := c.SwitchChannel(ctx, m)
		return err
	},
	"memory channel": func(ctx context.Context, c *comm.Communicator, m *comm.Memory) error {
		_, err := c.MemoryChannel(ctx, 1-c.Rank(), m)
		return err
	},
	"port channel": func(ctx context.Context, c *comm.Communicator, m *comm.Memory) error {
		_, err := c.PortChannel(ctx, 1-c.Rank(), m, m)
		return err
	},
}

// A rank that cannot take part in a call says so. The others hear from it at once,
// and the communicator goes on.
func TestRefusalLeavesTheCommunicatorUsable(t *testing.T) {
	for op, call := range setUps {
		t.Run(op, func(t *testing.T) {
			job(t, 2, func(ctx context.Context, c *comm.Communicator) error {
				m, err := c.Alloc(8192)
				if err != nil {
					return err
				}
				freed, err := c.Alloc(8192)
				if err != nil {
					return err
				}
				if err := freed.Close(); err != nil {
					return err
				}
				mine := m
				if c.Rank() == 1 {
					mine = freed
				}
				err = soon(func(ctx context.Context) error { return call(ctx, c, mine) })
				if c.Rank() == 1 {
					if !errors.Is(err, framework.ErrClosed) {
						return fmt.Errorf("%v: expected ErrClosed", err)
					}
				} else if err := names(err, framework.ErrPeer, 1, op, "memory was freed"); err != nil {
					return err
				}
				if err := soon(func(ctx context.Context) error { return call(ctx, c, nil) }); !errors.Is(err, framework.ErrInvalid) {
					return fmt.Errorf("without memory: %v: expected ErrInvalid", err)
				}
				return call(ctx, c, m)
			})
		})
	}
}

func TestSwitchPartsMustBeOfOneSize(t *testing.T) {
	job(t, 3, func(ctx context.Context, c *comm.Communicator) error {
		bytes := uint64(8192)
		if c.Rank() == 2 {
			bytes = 4096
		}
		m, err := c.Alloc(bytes)
		if err != nil {
			return err
		}
		_, err = c.SwitchChannel(ctx, m)
		culprit := 2
		if c.Rank() == 2 {
			culprit = 0
		}
		if err := names(err, framework.ErrInvalid, culprit, "8192", "4096"); err != nil {
			return err
		}
		return c.Barrier(ctx)
	})
}

func TestDifferentCallsAreReported(t *testing.T) {
	job(t, 2, func(ctx context.Context, c *comm.Communicator) error {
		m, err := c.Alloc(8192)
		if err != nil {
			return err
		}
		order := []string{"exchange", "switch channel"}
		if c.Rank() == 1 {
			slices.Reverse(order)
		}
		err = setUps[order[0]](ctx, c, m)
		if err := names(err, framework.ErrInvalid, 1-c.Rank(), order[0], order[1], "same order"); err != nil {
			return err
		}
		if c.Err() != nil {
			return c.Err()
		}
		// A call of two and one of all cannot be distinguished before they have begun.
		op := []string{"port channel", "exchange"}[c.Rank()]
		err = soon(func(ctx context.Context) error { return setUps[op](ctx, c, m) })
		if !errors.Is(err, framework.ErrPeer) || !strings.Contains(err.Error(), "same order") {
			return fmt.Errorf("%v: expected ErrPeer that asks for the same order", err)
		}
		return nil
	})
}

// A failure on one rank in the middle of any call ends all ranks, without a wait for their
// contexts, and blames that rank. A switch channel is refused instead: see TestSwitchIsRefusedByTransport.
func TestFaultEndsAllRanks(t *testing.T) {
	faults := []struct {
		call, op string
		nth      int
	}{
		{"exchange", "register", 1}, {"exchange", "register", 2}, {"exchange", "connect", 1},
		{"exchange", "connect", 2}, {"exchange", "attach", 1}, {"exchange", "attach", 4},
		{"memory channel", "attach", 2},
		{"port channel", "register", 1}, {"port channel", "connect", 1}, {"port channel", "new proxy", 1},
		{"port channel", "start proxy", 1}, {"port channel", "bind memory", 1}, {"port channel", "bind memory", 2},
		{"port channel", "bind semaphore", 1},
	}
	for _, f := range faults {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%s %d after %v", f.call, f.op, f.nth, after), func(t *testing.T) {
				n := 3
				if f.call == "memory channel" || f.call == "port channel" {
					n = 2
				}
				g := newRig(n)
				g.wrap = func(rank int, inner framework.Transport) framework.Transport {
					if rank != 1 {
						return inner
					}
					return hook.Wrap(inner, hook.Fault(hook.Rule{Op: f.op, Nth: f.nth, After: after}))
				}
				g.run(t, func(_ context.Context, c *comm.Communicator) error {
					m, err := c.Alloc(8192)
					if err != nil {
						return err
					}
					err = soon(func(ctx context.Context) error { return setUps[f.call](ctx, c, m) })
					if err == nil && c.Rank() != 1 { // it was done before rank 1 failed
						err = soon(func(ctx context.Context) error { return c.Barrier(ctx) })
					}
					class := framework.ErrPeer
					if c.Rank() == 1 {
						class = framework.ErrUnavailable
					}
					if err := names(err, class, 1, "injected fault"); err != nil {
						return err
					}
					if c.Err() == nil {
						return errors.New("the communicator goes on after half a call")
					}
					return nil
				})
			})
		}
	}
}

// A rank that is killed in the middle of a call is blamed by all others.
func TestDeathInSetUp(t *testing.T) {
	for op, call := range setUps {
		t.Run(op, func(t *testing.T) {
			g := newRig(2)
			g.wrap = func(rank int, inner framework.Transport) framework.Transport {
				if rank != 1 {
					return inner
				}
				return hook.Wrap(inner, func(ctx context.Context, c *hook.Call, next func(context.Context) error) error {
					if c.Op == "connect" {
						g.boots[1].Kill()
					}
					return next(ctx)
				})
			}
			g.run(t, func(_ context.Context, c *comm.Communicator) error {
				m, err := c.Alloc(8192)
				if err != nil {
					return err
				}
				err = soon(func(ctx context.Context) error { return call(ctx, c, m) })
				if c.Rank() == 1 {
					if err == nil {
						return errors.New("the dead rank has set something up")
					}
					return nil
				}
				return names(err, framework.ErrPeer, 1)
			})
		})
	}
}

// A rank that gives up waiting for another names it, and ends the communicator: that rank must not
// wait for the one that has left.
func TestGivingUpEndsTheOthers(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, c *comm.Communicator) error{
		"barrier":    func(ctx context.Context, c *comm.Communicator) error { return c.Barrier(ctx) },
		"all-gather": func(ctx context.Context, c *comm.Communicator) error { _, err := c.AllGather(ctx, nil); return err },
		"split":      func(ctx context.Context, c *comm.Communicator) error { _, err := c.Split(ctx, 0, 0); return err },
	} {
		t.Run(name, func(t *testing.T) {
			given := make(chan struct{})
			var joined sync.WaitGroup
			joined.Add(2)
			job(t, 2, func(_ context.Context, c *comm.Communicator) error {
				joined.Done()
				joined.Wait()
				if c.Rank() == 1 {
					<-given
					return names(soon(func(ctx context.Context) error { return call(ctx, c) }), framework.ErrPeer, 1, "reported by rank 0")
				}
				defer close(given)
				short, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
				defer cancel()
				err := call(short, c)
				if !errors.Is(err, framework.ErrPeer) {
					return fmt.Errorf("%v: expected ErrPeer", err)
				}
				return names(err, context.DeadlineExceeded, 1, name)
			})
		})
	}
}

// tardy is a transport whose plugin does not answer before the time of its rank is over.
type tardy struct {
	framework.Transport
	over chan struct{}
}

func (t tardy) Listen(ctx context.Context, _ framework.EndpointConfig) (framework.Endpoint, error) {
	close(t.over)
	<-ctx.Done()
	return framework.Endpoint{}, &framework.Error{Op: "listen", Transport: "tardy", Peer: framework.NoPeer, Err: ctx.Err()}
}

// untilOver is a context whose time is over when its channel is closed, however fast the machine is.
type untilOver struct {
	context.Context
	over chan struct{}
}

func (u untilOver) Done() <-chan struct{} { return u.over }

func (u untilOver) Err() error {
	select {
	case <-u.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// Where a plugin does not answer, its rank is to blame, and not the peer to which it could
// not say so any more.
func TestTransportThatTakesAllTime(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, c *comm.Communicator, m *comm.Memory) error{
		"port": func(ctx context.Context, c *comm.Communicator, m *comm.Memory) error {
			_, err := c.PortChannel(ctx, 1-c.Rank(), m, m)
			return err
		},
		"switch": func(ctx context.Context, c *comm.Communicator, m *comm.Memory) error {
			_, err := c.SwitchChannel(ctx, m)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, over, meet := newRig(2), make(chan struct{}), meeting(2)
			g.adjust = func(rank int, x *comm.Transport) {
				if rank == 1 {
					x.Transport = tardy{x.Transport, over}
				}
			}
			g.run(t, func(ctx context.Context, c *comm.Communicator) error {
				m, err := c.Alloc(4096)
				if err != nil {
					return err
				}
				defer m.Close()
				if err := meet(ctx); err != nil { // the end of rank 1 would be one of a communicator that rank 0 still makes
					return err
				}
				if c.Rank() == 1 {
					ctx = untilOver{ctx, over}
				}
				err = call(ctx, c, m)
				if !strings.Contains(fmt.Sprint(err), "tardy listen: context deadline exceeded") {
					return fmt.Errorf("%w: does not say what was waited for", err)
				}
				if peer := framework.PeerOf(err); peer != 1 {
					return fmt.Errorf("%w: names rank %d, expected 1", err, peer)
				}
				return nil
			})
		})
	}
}

// A communicator that one rank cannot make fails on those that wait for it.
func TestNewThatFailsOnOneRank(t *testing.T) {
	g := newRig(3)
	g.each(t, func(_ context.Context, boot *bootstrap.Local) error {
		dev, err := host.Open()
		if err != nil {
			return err
		}
		o := comm.Options{Device: dev}
		if boot.Rank() == 2 {
			o.Device = nil
		}
		err = soon(func(ctx context.Context) error {
			c, err := comm.New(ctx, boot, o)
			if err == nil {
				c.Close()
			}
			return err
		})
		if boot.Rank() == 2 {
			return names(err, framework.ErrInvalid, framework.NoPeer, "no device")
		}
		return names(err, framework.ErrPeer, 2, "no device")
	})
}

// A part of the job that cannot be made does not end the whole.
func TestSplitThatFailsOnOneRankEndsItsGroup(t *testing.T) {
	g := newRig(3)
	g.fail = map[int]int{1: 5} // the two of the parent are the 1st to 4th allocation
	g.run(t, func(ctx context.Context, c *comm.Communicator) error {
		color := 0
		if c.Rank() == 2 {
			color = 1
		}
		sub, err := c.Split(ctx, color, 0)
		switch c.Rank() {
		case 0:
			if err == nil { // it was made before rank 1 failed
				err = soon(sub.Barrier)
				defer sub.Close()
			}
			if err := names(err, framework.ErrPeer, 1, "no memory left"); err != nil {
				return err
			}
		case 1:
			if !errors.Is(err, framework.ErrUnavailable) {
				return fmt.Errorf("%v: expected ErrUnavailable", err)
			}
		case 2:
			if err != nil {
				return err
			}
			defer sub.Close()
		}
		return c.Barrier(ctx)
	})
}
