package comm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/comm"
)

func dump(c *comm.Communicator) string {
	var b bytes.Buffer
	if err := c.Dump(&b); err != nil {
		return err.Error()
	}
	return b.String()
}

// contains checks that a text has all lines, in this order.
func contains(text string, lines ...string) error {
	rest := text
	for _, l := range lines {
		_, after, ok := strings.Cut(rest, l)
		if !ok {
			return fmt.Errorf("no %q, at its place, in:\n%s", l, text)
		}
		rest = after
	}
	return nil
}

func TestDumpShowsWhatEveryChannelWaitsFor(t *testing.T) {
	job(t, 2, func(ctx context.Context, c *comm.Communicator) error {
		peer := 1 - c.Rank()
		s, err := exchanged(ctx, c, 8192)
		if err != nil {
			return err
		}
		if _, err := c.MemoryChannels(ctx, s); err != nil {
			return err
		}
		memory, err := c.MemoryChannel(ctx, peer, s.Own())
		if err != nil {
			return err
		}
		port, err := c.PortChannel(ctx, peer, s.Own(), s.Own())
		if err != nil {
			return err
		}
		window, err := c.SwitchChannel(ctx, s.Own())
		if err != nil {
			return err
		}
		remove := c.OnDump(func(w io.Writer) { fmt.Fprintln(w, "  and more") })
		atomic.AddUint64(&words(memory.Handle().Semaphore.Outbound)[0], 7)
		if err := port.Signal(); err != nil {
			return err
		}
		if err := port.Wait(ctx); err != nil {
			return err
		}
		atomic.StoreUint64(&words(memory.Handle().Semaphore.Expected)[0], 9)
		atomic.StoreUint64(&words(window.Handle().Expected)[0], 2)
		if err := c.Barrier(ctx); err != nil {
			return err
		}
		text := dump(c)
		if err := contains(text,
			fmt.Sprintf("comm world: rank %d of 2: running\n", c.Rank()),
			fmt.Sprintf("  memory channel 0 with rank %d over shm: expected 0, seen 0\n", peer),
			fmt.Sprintf("  memory channel 1 with rank %d over shm: expected 9, seen 7: waits\n", peer),
			fmt.Sprintf("  port channel 2 with rank %d over shm: expected 1, seen 1", peer),
			"  switch channel 3 with all ranks over shm: expected 2, seen 0: waits\n",
			"  and more\n"); err != nil {
			return err
		}
		remove()
		if err := errors.Join(memory.Close(), port.Close(), window.Close(), s.Close()); err != nil {
			return err
		}
		if text := dump(c); strings.Count(text, "\n") != 1 {
			return fmt.Errorf("channels that are closed are still there:\n%s", text)
		}
		if err := c.Close(); err != nil {
			return err
		}
		return contains(dump(c), "closed")
	})
}

// A rank that hangs in set-up is the one whose dump is wanted.
func TestDumpWhileACallWaits(t *testing.T) {
	dumped := make(chan struct{})
	job(t, 2, func(ctx context.Context, c *comm.Communicator) error {
		m, err := c.Alloc(4096)
		if err != nil {
			return err
		}
		if c.Rank() == 1 {
			<-dumped
			_, err := c.Exchange(ctx, m)
			return err
		}
		done := make(chan error, 1)
		go func() {
			_, err := c.Exchange(ctx, m)
			done <- err
		}()
		for contains(dump(c), "running, in exchange for ") != nil {
			if ctx.Err() != nil {
				return errors.New(dump(c))
			}
		}
		if len(c.Links()) != 0 {
			return errors.New("there are links before the peer came")
		}
		close(dumped)
		return <-done
	})
}

func TestDumpShowsGroupsAndFailures(t *testing.T) {
	var dumped sync.WaitGroup
	dumped.Add(2)
	job(t, 2, func(ctx context.Context, c *comm.Communicator) error {
		sub, err := c.Split(ctx, 0, 0)
		if err != nil {
			return err
		}
		if err := contains(dump(c), "comm world: ", "comm world/1.0: rank"); err != nil {
			return err
		}
		w := sub.ControlWords()
		w.Kernel, w.Peer, w.Channel, w.Expected, w.Seen = 4, 1, 6, 12, 11
		atomic.StoreUint32(&w.Reported, 1)
		if err := contains(dump(c), "comm world/1.0: ", "kernel 4 gave up waiting for rank 1: channel 6, expected 12, seen 11"); err != nil {
			return err
		}
		dumped.Done()
		dumped.Wait()
		sub.Abort(errors.New("not a number"))
		if err := contains(dump(c), "running\n", "comm world/1.0: ", "not a number"); err != nil {
			return err
		}
		if err := sub.Close(); err != nil {
			return err
		}
		if text := dump(c); strings.Contains(text, "world/1.0") {
			return fmt.Errorf("a closed group is still there:\n%s", text)
		}
		return nil
	})
}

// Dumps may come at any moment of a communicator's life.
func TestDumpAtAnyTime(t *testing.T) {
	job(t, 2, func(ctx context.Context, c *comm.Communicator) error {
		stop := make(chan struct{})
		var group sync.WaitGroup
		group.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = c.Dump(io.Discard)
				}
			}
		})
		defer group.Wait()
		defer close(stop)
		for range 10 {
			s, err := exchanged(ctx, c, 4096)
			if err != nil {
				return err
			}
			if _, err := c.MemoryChannels(ctx, s); err != nil {
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
			sub, err := c.Split(ctx, 0, 0)
			if err != nil {
				return err
			}
			if err := port.Signal(); err != nil {
				return err
			}
			if err := errors.Join(port.Wait(ctx), window.Close(), sub.Close(), s.Own().Close()); err != nil {
				return err
			}
		}
		return c.Close()
	})
}
