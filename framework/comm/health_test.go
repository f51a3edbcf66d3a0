package comm_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
)

// ended waits for the failure of a communicator.
func ended(ctx context.Context, c *comm.Communicator) error {
	select {
	case <-c.Done():
		return nil
	case <-ctx.Done():
		return errors.New("the communicator goes on")
	}
}

// Close ends calls that wait for a peer, whatever their own context says.
func TestCloseEndsSetUpThatWaits(t *testing.T) {
	calls := map[string]func(c *comm.Communicator, m *comm.Memory) error{
		"Exchange": func(c *comm.Communicator, m *comm.Memory) error {
			_, err := c.Exchange(context.Background(), m)
			return err
		},
		"PortChannel": func(c *comm.Communicator, m *comm.Memory) error {
			_, err := c.PortChannel(context.Background(), 1, m, m)
			return err
		},
		"Split": func(c *comm.Communicator, _ *comm.Memory) error {
			_, err := c.Split(context.Background(), 0, 0)
			return err
		},
		"Barrier": func(c *comm.Communicator, _ *comm.Memory) error { return c.Barrier(context.Background()) },
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			left := make(chan struct{})
			var joined sync.WaitGroup
			joined.Add(2)
			job(t, 2, func(ctx context.Context, c *comm.Communicator) error {
				joined.Done()
				joined.Wait()
				if c.Rank() == 1 {
					<-left // it is alive, and does not take part
					return nil
				}
				defer close(left)
				m, err := c.Alloc(4096)
				if err != nil {
					return err
				}
				result := make(chan error, 1)
				go func() { result <- call(c, m) }()
				if err := c.Close(); err != nil {
					return err
				}
				select {
				case err := <-result:
					if !errors.Is(err, framework.ErrClosed) {
						return fmt.Errorf("%v, expected ErrClosed", err)
					}
				case <-ctx.Done():
					return errors.New("the call still waits")
				}
				return nil
			})
		})
	}
}

// A wait of a kernel that ran into the deadline ends the job, and blames the rank
// that was waited for.
func TestDeadlineOfAWaitBlamesThePeer(t *testing.T) {
	var joined sync.WaitGroup
	joined.Add(2)
	job(t, 2, func(ctx context.Context, c *comm.Communicator) error {
		joined.Done()
		joined.Wait()
		if c.Rank() == 1 { // announced by rank 0
			return ended(ctx, c)
		}
		c.NameWaits(func(kernel, channel uint32) string {
			return map[uint32]string{12: fmt.Sprint("word ", channel)}[kernel]
		})
		w := c.ControlWords()
		w.Deadline, w.Kernel, w.Channel, w.Peer, w.Expected, w.Seen = uint64(time.Second), 12, 3, 1, 7, 6
		atomic.StoreUint32(&w.Reported, 2) // the report is being written
		if err := c.Check(); err != nil {
			return fmt.Errorf("half a report: %v", err)
		}
		atomic.StoreUint32(&w.Reported, 1)
		err := c.Check()
		if !errors.Is(err, framework.ErrPeer) || framework.PeerOf(err) != 1 || !strings.Contains(err.Error(), "word 3: expected count 7, seen 6; rank 0 has waited for rank 1 since ") {
			return fmt.Errorf("%v, expected ErrPeer that names rank 1, what is waited for, and since when", err)
		}
		return nil
	})
}

// A plugin that dies ends the job: its rank is to blame.
func TestPluginThatDiesEndsTheJob(t *testing.T) {
	gone := make(chan struct{})
	var joined sync.WaitGroup
	joined.Add(2)
	g := newRig(2)
	g.adjust = func(rank int, t *comm.Transport) {
		if rank == 1 {
			t.Gone = gone
			t.Cause = func() error { return fmt.Errorf("%w: exit status 9", framework.ErrPlugin) }
		}
	}
	g.run(t, func(ctx context.Context, c *comm.Communicator) error {
		joined.Done()
		joined.Wait()
		class := framework.ErrPeer
		if c.Rank() == 1 {
			close(gone)
			class = framework.ErrPlugin
		}
		if err := ended(ctx, c); err != nil {
			return err
		}
		err := c.Err()
		if !errors.Is(err, class) || c.Rank() == 0 && framework.PeerOf(err) != 1 {
			return fmt.Errorf("%v, expected %v, of rank 1", err, class)
		}
		return nil
	})
}

func TestKilledRankIsNamed(t *testing.T) {
	g := newRig(3)
	g.run(t, func(ctx context.Context, c *comm.Communicator) error {
		if c.Rank() == 2 {
			if err := c.Barrier(ctx); err != nil {
				return err
			}
			g.boots[2].Kill()
			return nil
		}
		if err := c.Barrier(ctx); err != nil && framework.PeerOf(err) != 2 { // it may be gone before all have left
			return err
		}
		err := c.Barrier(ctx)
		if !errors.Is(err, framework.ErrPeer) || framework.PeerOf(err) != 2 {
			return fmt.Errorf("%v, expected ErrPeer that names rank 2", err)
		}
		return nil
	})
}

func TestCheckDoesNotAllocate(t *testing.T) {
	job(t, 1, func(_ context.Context, c *comm.Communicator) error {
		if n := testing.AllocsPerRun(100, func() {
			if c.Check() != nil {
				panic("failed")
			}
		}); n != 0 {
			return fmt.Errorf("%v allocations", n)
		}
		return nil
	})
}

// A rank that is closed in the middle of a call leaves no peer waiting for it.
func TestCloseInACallEndsTheOthers(t *testing.T) {
	var joined sync.WaitGroup
	joined.Add(3)
	job(t, 3, func(ctx context.Context, c *comm.Communicator) error {
		m, err := c.Alloc(4096)
		if err != nil {
			return err
		}
		joined.Done()
		joined.Wait()
		switch c.Rank() {
		case 0:
			result := make(chan error, 1)
			go func() {
				_, err := c.Exchange(context.Background(), m)
				result <- err
			}()
			for contains(dump(c), "in exchange") != nil {
				if ctx.Err() != nil {
					return errors.New(dump(c))
				}
			}
			if err := c.Close(); err != nil {
				return err
			}
			if err := <-result; !errors.Is(err, framework.ErrClosed) {
				return fmt.Errorf("%v, expected ErrClosed", err)
			}
		case 1:
			_, err := c.Exchange(context.Background(), m)
			return names(err, framework.ErrPeer, 0, "exchange", "closed")
		case 2: // it is not in the call, and hears of it all the same
			if err := ended(ctx, c); err != nil {
				return err
			}
			return names(c.Err(), framework.ErrPeer, 0, "exchange")
		}
		return nil
	})
}

// A rank that leaves ends its own part. The others learn why when they need it, and go on until then.
func TestLeaveEndsOneRank(t *testing.T) {
	job(t, 3, func(ctx context.Context, c *comm.Communicator) error {
		if c.Rank() == 1 {
			c.Leave(errors.New("enough"))
			if err := c.Err(); err == nil || !strings.Contains(err.Error(), "enough") {
				return fmt.Errorf("its own end is %v", err)
			}
			return nil
		}
		if !c.Departed(ctx, 1) {
			return errors.New("it has not left")
		}
		if r, why := c.Left(); r != 1 || !errors.Is(why, framework.ErrPeer) || c.Err() != nil {
			return fmt.Errorf("rank %d has left: %v; this one has %v", r, why, c.Err())
		}
		err := c.Barrier(ctx) // of both, so that neither waits for one that has ended
		if !errors.Is(err, framework.ErrPeer) || framework.PeerOf(err) != 1 || !strings.Contains(err.Error(), "enough") {
			return fmt.Errorf("a barrier without rank 1: %v", err)
		}
		return nil
	})
}
