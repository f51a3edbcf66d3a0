package comm_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/internal/promise"
)

// leaver runs two ranks with a port channel, of which rank 1 does something, and then
// leaves the job in good order.
func leaver(t *testing.T, stays func(ctx context.Context, c *comm.Communicator, ch *comm.PortChannel) error, leaves func(ch *comm.PortChannel) error) {
	t.Helper()
	g := newRig(2)
	g.each(t, func(ctx context.Context, boot *bootstrap.Local) error {
		c, closeAll, err := g.open(ctx, boot)
		if err != nil {
			return err
		}
		m, err := c.Alloc(1 << 12)
		if err != nil {
			return err
		}
		ch, err := c.PortChannel(ctx, 1-c.Rank(), m, m)
		if err != nil {
			return err
		}
		if c.Rank() == 0 {
			err = stays(ctx, c, ch)
		} else {
			err = leaves(ch)
		}
		err = errors.Join(err, c.Close(), closeAll())
		if c.Rank() == 1 {
			err = errors.Join(err, boot.Close())
		}
		return err
	})
}

// A rank that waits for one that has left learns it at once, and not by the deadline; messages that
// the rank sent before it left are there.
func TestWaitForARankThatLeft(t *testing.T) {
	const signals = 3
	leaver(t, func(ctx context.Context, c *comm.Communicator, ch *comm.PortChannel) error {
		watch := promise.Begin()
		for i := range signals {
			if err := ch.Wait(ctx); err != nil {
				return fmt.Errorf("signal %d, sent before the goodbye: %v", i, err)
			}
		}
		for i := range 2 { // it stays so
			err := ch.Wait(context.Background())
			if !errors.Is(err, framework.ErrPeer) || framework.PeerOf(err) != 1 || !strings.Contains(err.Error(), "rank 1") || !strings.Contains(err.Error(), "has left the job") {
				return fmt.Errorf("wait %d: %v, expected ErrPeer of rank 1, which has left", i, err)
			}
		}
		if err := watch.Kept(5 * time.Second); err != nil { // 0.75 s, and then 0.25 s, where nobody else works
			return err
		}
		return c.Err() // the communicator has not ended: there may be other peers
	}, func(ch *comm.PortChannel) error {
		for range signals {
			if err := ch.Signal(); err != nil {
				return err
			}
		}
		return nil
	})
}

// A slow rank has not left.
func TestWaitForARankThatIsSlow(t *testing.T) {
	const late = time.Second
	leaver(t, func(ctx context.Context, _ *comm.Communicator, ch *comm.PortChannel) error { return ch.Wait(ctx) },
		func(ch *comm.PortChannel) error {
			<-time.After(late) // longer than the doubt and the grace: time is what is tested
			return ch.Signal()
		})
}

// linkEnds tells when a connection of a transport is closed.
type linkEnds struct {
	framework.Transport
	framework.Proxier
	made framework.ID
	end  chan struct{}
}

func (l *linkEnds) Connect(ctx context.Context, local framework.ID, peers []framework.Peer) (id framework.ID, err error) {
	l.made, err = l.Transport.Connect(ctx, local, peers)
	return l.made, err
}

func (l *linkEnds) Close(ctx context.Context, id framework.ID) error {
	if id == l.made {
		close(l.end)
	}
	return l.Transport.Close(ctx, id)
}

// The first rank that closes keeps an adapter until its peer has closed its channels, which takes
// both sides; a moment, if that does not.
func TestAdaptersStayForPeers(t *testing.T) {
	for _, comes := range []bool{true, false} {
		t.Run(fmt.Sprint("peer closes ", comes), func(t *testing.T) {
			end, leaving := make(chan struct{}), make(chan struct{})
			var left time.Time
			g := newRig(2)
			g.adjust = func(_ int, t *comm.Transport) { t.Description.Signal = framework.SignalAtomic }
			g.wrap = func(rank int, inner framework.Transport) framework.Transport {
				if rank == 0 {
					return inner
				}
				return &linkEnds{Transport: inner, Proxier: inner.(framework.Proxier), end: end}
			}
			g.each(t, func(ctx context.Context, boot *bootstrap.Local) error {
				c, closeAll, err := g.open(ctx, boot)
				if err != nil {
					return err
				}
				m, err := c.Alloc(1 << 12)
				if err != nil {
					return err
				}
				ch, err := c.PortChannel(ctx, 1-c.Rank(), m, m)
				if err != nil {
					return err
				}
				if c.Rank() == 1 {
					left = time.Now()
					close(leaving)
					return errors.Join(c.Close(), closeAll())
				}
				<-leaving
				if !comes {
					select {
					case <-end:
					case <-ctx.Done():
						return errors.New("rank 1 keeps its adapter for ever")
					}
					if !ch.Parted() {
						return errors.New("rank 1 has closed its communicator: expected that it has parted")
					}
					if err := ch.Signal(); err != nil {
						return fmt.Errorf("a signal that nobody can see: %w", err)
					}
				}
				for range 10 {
					if err := ch.Flush(ctx); err != nil {
						return err
					}
				}
				select {
				case <-end:
					if took := time.Since(left); comes && took < 250*time.Millisecond {
						return fmt.Errorf("rank 1 closed its adapter after %v, before this rank was done", took)
					}
				default:
				}
				return errors.Join(c.Close(), closeAll())
			})
		})
	}
}
