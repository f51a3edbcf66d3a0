package comm_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
)

// exchanged allocates memory and shows it to all ranks.
func exchanged(ctx context.Context, c *comm.Communicator, bytes uint64) (*comm.Symmetric, error) {
	m, err := c.Alloc(bytes)
	if err != nil {
		return nil, err
	}
	return c.Exchange(ctx, m)
}

// The communicator releases objects that the application leaves open; the ledger and the counts of
// run say whether it did.
func TestCloseReleasesWhatWasLeftOpen(t *testing.T) {
	job(t, 3, func(ctx context.Context, c *comm.Communicator) error {
		s, err := exchanged(ctx, c, 8192)
		if err != nil {
			return err
		}
		if _, err := c.MemoryChannels(ctx, s); err != nil {
			return err
		}
		if _, err := c.SwitchChannel(ctx, s.Own()); err != nil {
			return err
		}
		if c.Rank() == 2 {
			return nil
		}
		if _, err := c.MemoryChannel(ctx, 1-c.Rank(), s.Own()); err != nil {
			return err
		}
		_, err = c.PortChannel(ctx, 1-c.Rank(), s.Own(), s.Own())
		return err
	})
}

// The next allocation may get the address of memory that was freed. It must not be
// taken for the memory that was exchanged.
func TestFreedMemoryIsNotFound(t *testing.T) {
	job(t, 2, func(ctx context.Context, c *comm.Communicator) error {
		s, err := exchanged(ctx, c, 8192)
		if err != nil {
			return err
		}
		addr := s.Own().Addr()
		if _, _, ok := c.Find(addr, 1); !ok {
			return errors.New("exchanged memory is not found")
		}
		if err := s.Own().Close(); err != nil {
			return err
		}
		if got, _, ok := c.Find(addr, 1); ok {
			return fmt.Errorf("memory %d was freed and is found", got.ID)
		}
		if s.Peer(1-c.Rank()) != 0 {
			return errors.New("the peer's part is mapped though its own is gone")
		}
		return s.Close()
	})
}

func TestMemoryExchangedTwice(t *testing.T) {
	job(t, 2, func(ctx context.Context, c *comm.Communicator) error {
		first, err := exchanged(ctx, c, 8192)
		if err != nil {
			return err
		}
		second, err := c.Exchange(ctx, first.Own())
		if err != nil {
			return err
		}
		if got, _, _ := c.Find(first.Own().Addr(), 1); got != second {
			return fmt.Errorf("found exchange %d, expected the younger, %d", got.ID, second.ID)
		}
		if err := second.Close(); err != nil {
			return err
		}
		if got, _, _ := c.Find(first.Own().Addr(), 1); got != first {
			return fmt.Errorf("found %v, expected exchange %d", got, first.ID)
		}
		return nil
	})
}

// Everything may be closed in any order, by several at once, and again.
func TestCloseAtOnceAndAgain(t *testing.T) {
	job(t, 2, func(ctx context.Context, c *comm.Communicator) error {
		s, err := exchanged(ctx, c, 8192)
		if err != nil {
			return err
		}
		memory, err := c.MemoryChannel(ctx, 1-c.Rank(), s.Own())
		if err != nil {
			return err
		}
		port, err := c.PortChannel(ctx, 1-c.Rank(), s.Own(), s.Own())
		if err != nil {
			return err
		}
		window, err := c.SwitchChannel(ctx, s.Own())
		if err != nil {
			return err
		}
		if err := c.Barrier(ctx); err != nil { // the switch has steps of all
			return err
		}
		all := []io.Closer{s.Own(), window, c, port, s, memory}
		var group sync.WaitGroup
		errs := make([]error, 3*len(all))
		for i := range errs {
			group.Go(func() { errs[i] = all[i%len(all)].Close() })
		}
		group.Wait()
		return errors.Join(errs...)
	})
}

func TestUseAfterCommunicatorClose(t *testing.T) {
	job(t, 1, func(ctx context.Context, c *comm.Communicator) error {
		m, err := c.Alloc(4096)
		if err != nil {
			return err
		}
		if err := c.Close(); err != nil {
			return err
		}
		calls := map[string]func() error{
			"Alloc":          func() error { _, err := c.Alloc(1); return err },
			"Register":       func() error { _, err := c.Register(m.Memory); return err },
			"Exchange":       func() error { _, err := c.Exchange(ctx, m); return err },
			"MemoryChannels": func() error { _, err := c.MemoryChannels(ctx, nil); return err },
			"SwitchChannel":  func() error { _, err := c.SwitchChannel(ctx, m); return err },
			"PortChannel":    func() error { _, err := c.PortChannel(ctx, 0, m, m); return err },
			"Split":          func() error { _, err := c.Split(ctx, 0, 0); return err },
			"AllGather":      func() error { _, err := c.AllGather(ctx, nil); return err },
			"Check":          c.Check,
			"Err":            c.Err,
		}
		for name, call := range calls {
			if err := call(); !errors.Is(err, framework.ErrClosed) {
				return fmt.Errorf("%s after Close: %v, expected ErrClosed", name, err)
			}
		}
		return m.Close()
	})
}
