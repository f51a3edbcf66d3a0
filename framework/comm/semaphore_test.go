package comm_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/comm"
)

// Channels that both ends have closed return their semaphores, and a channel that
// gets one again finds no signal of the one before.
func TestSemaphoresAreUsedAgain(t *testing.T) {
	job(t, 2, func(ctx context.Context, c *comm.Communicator) error {
		m, err := c.Alloc(4096)
		if err != nil {
			return err
		}
		for lap := range 40 {
			ch, err := c.MemoryChannel(ctx, 1-c.Rank(), m)
			if err != nil {
				return err
			}
			s := ch.Handle().Semaphore
			if s.ID > 1 {
				return fmt.Errorf("lap %d: semaphore %d though only one is in use", lap, s.ID)
			}
			if seen, expected := atomic.LoadUint64(&words(s.Inbound)[0]), words(s.Expected)[0]; seen < expected {
				return fmt.Errorf("lap %d: starts with %d signals seen, %d expected", lap, seen, expected)
			}
			want := atomic.LoadUint64(&words(s.Expected)[0]) + 3
			atomic.AddUint64(&words(s.Outbound)[0], 3) // of which none is waited for
			if err := c.Barrier(ctx); err != nil {
				return err
			}
			if got := atomic.LoadUint64(&words(s.Inbound)[0]); got != want {
				return fmt.Errorf("lap %d: %d signals seen, expected %d", lap, got, want)
			}
			if err := ch.Close(); err != nil {
				return err
			}
		}
		return nil
	})
}

// A semaphore is not given out again while the peer may still raise it.
func TestSemaphoreStaysWhileThePeerHasIt(t *testing.T) {
	job(t, 2, func(ctx context.Context, c *comm.Communicator) error {
		m, err := c.Alloc(4096)
		if err != nil {
			return err
		}
		seen := make(map[uint32]bool)
		for range 3 {
			ch, err := c.MemoryChannel(ctx, 1-c.Rank(), m)
			if err != nil {
				return err
			}
			id := ch.Handle().Semaphore.ID
			if seen[id] {
				return fmt.Errorf("semaphore %d is in use by the peer", id)
			}
			seen[id] = true
			if c.Rank() == 0 {
				if err := ch.Close(); err != nil {
					return err
				}
			}
		}
		return c.Barrier(ctx)
	})
}

func TestSemaphoresOfExchangedMemoryComeBack(t *testing.T) {
	job(t, 3, func(ctx context.Context, c *comm.Communicator) error {
		for lap := range 10 {
			s, err := exchanged(ctx, c, 4096)
			if err != nil {
				return err
			}
			channels, err := c.MemoryChannels(ctx, s)
			if err != nil {
				return err
			}
			for r, ch := range channels {
				if r != c.Rank() && ch.Semaphore.ID > 3 {
					return fmt.Errorf("lap %d: semaphore %d though only two are in use", lap, ch.Semaphore.ID)
				}
			}
			if err := s.Own().Close(); err != nil {
				return err
			}
		}
		return nil
	})
}

// The counter of a switch starts at 0, whatever its number was used for before.
func TestSwitchCounterStartsAtZero(t *testing.T) {
	job(t, 2, func(ctx context.Context, c *comm.Communicator) error {
		m, err := c.Alloc(4096)
		if err != nil {
			return err
		}
		for range 3 {
			ch, err := c.MemoryChannel(ctx, 1-c.Rank(), m)
			if err != nil {
				return err
			}
			atomic.AddUint64(&words(ch.Handle().Semaphore.Outbound)[0], 5)
			if err := ch.Close(); err != nil {
				return err
			}
			window, err := c.SwitchChannel(ctx, m)
			if err != nil {
				return err
			}
			if e := atomic.LoadUint64(&words(window.Handle().Expected)[0]); e != 0 {
				return fmt.Errorf("expected count %d at the start", e)
			}
			atomic.StoreUint64(&words(window.Handle().Expected)[0], 9)
			if err := c.Barrier(ctx); err != nil {
				return err
			}
			if err := window.Close(); err != nil {
				return err
			}
		}
		return nil
	})
}
