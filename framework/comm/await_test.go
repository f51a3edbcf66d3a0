package comm_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
)

// A put without a signal is seen by a look at its destination, and no signal is taken.
func TestAwaitSeesPuts(t *testing.T) {
	ports(t, func(ctx context.Context, c *comm.Communicator, ch *comm.PortChannel, m *comm.Memory) error {
		w := words(m.Addr())
		for n := uint64(1); n <= 100; n++ {
			w[n%2] = n // the other rank may still be reading the word before
			if err := ch.Put(8*(2+n%2), 8*(n%2), 8); err != nil {
				return err
			}
			if err := ch.Await(ctx, func() bool { return atomic.LoadUint64(&w[2+n%2]) == n }); err != nil {
				return fmt.Errorf("put %d: %w", n, err)
			}
		}
		if got := words(ch.Handle().Semaphore.Expected)[0]; got != 0 {
			return fmt.Errorf("%d signals were taken, expected none", got)
		}
		return c.Barrier(ctx)
	})
}

// It ends as Wait does: with its context, with the channel, and with the communicator.
func TestAwaitEnds(t *testing.T) {
	never := func() bool { return false }
	ports(t, func(ctx context.Context, c *comm.Communicator, ch *comm.PortChannel, _ *comm.Memory) error {
		short, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
		defer cancel()
		err := ch.Await(short, never)
		if !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("%v: expected the deadline", err)
		}
		if err := names(err, framework.ErrPeer, 1-c.Rank()); err != nil {
			return err
		}
		result := make(chan error, 1)
		go func() { result <- ch.Await(ctx, never) }()
		if err := ch.Close(); err != nil {
			return err
		}
		if err := <-result; !errors.Is(err, framework.ErrClosed) {
			return fmt.Errorf("when the channel was closed: %v, expected ErrClosed", err)
		}
		return c.Barrier(ctx)
	})
	meet := meeting(2)
	ports(t, func(ctx context.Context, c *comm.Communicator, ch *comm.PortChannel, _ *comm.Memory) error {
		if err := meet(ctx); err != nil {
			return err
		}
		if c.Rank() == 1 {
			c.Abort(&framework.Error{Op: "test", Peer: 1, Err: fmt.Errorf("%w: it stumbles", framework.ErrPeer)})
			return nil
		}
		return names(ch.Await(ctx, never), framework.ErrPeer, 1)
	})
}
