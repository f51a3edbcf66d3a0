package moe_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/inference/moe"
	"github.com/mscclpp-go/mscclpp/inference/moe/moetest"
	"github.com/mscclpp-go/mscclpp/internal/ranktest"
)

// Over hosts, on each of which there is one rank or several, results are those of one host: of all formats, whole and in phases.
func TestOverHosts(t *testing.T) {
	for _, links := range []string{"rank: a b", "plugin: a b", "plugin: a a b", "rank: a b c a"} {
		t.Run(links, func(t *testing.T) {
			drive, hosts, _ := strings.Cut(links, ": ")
			ranktest.OverHosts(t, strings.Fields(hosts), drive, comm.Options{}, func(ctx context.Context, c *comm.Communicator) error {
				b, err := moe.New(ctx, c, moetest.Options())
				if err != nil {
					return err
				}
				for i, x := range moetest.Trials() {
					if err := roundTrip(b, run(c, b, x, uint64(i))); err != nil {
						return err
					}
				}
				if got, want := b.Bytes(), 2*moetest.Options().Bytes(c.Size()); got != want {
					t.Errorf("%d bytes: expected %d", got, want)
				}
				return errors.Join(twoAtOnce(c, b), c.Barrier(ctx), b.Close())
			})
		})
	}
}

// Ranks on GPUs of several hosts get the same results, by way of the host; a call that is to be recorded into a graph is refused.
func TestGPUsOverHosts(t *testing.T) {
	ranktest.OnEmulatedGPUsOverHosts(t, []string{"a", "b", "b"}, func(ctx context.Context, c *comm.Communicator, dev *cuda.Device) error {
		return errors.Join(callsOnGPU(ctx, c, dev, moetest.Trials()), recordedOverHosts(ctx, c, dev), c.Barrier(ctx))
	})
}

func recordedOverHosts(ctx context.Context, c *comm.Communicator, dev *cuda.Device) error {
	b, err := moe.New(ctx, c, moetest.Options())
	if err != nil {
		return err
	}
	s, err := dev.NewStream()
	if err != nil {
		return err
	}
	r := moetest.Run{Trial: right(), Rank: c.Rank(), Ranks: c.Size(), Handle: b.HandleBytes()}
	m, err := c.Alloc(uint64(r.Bytes()))
	if err != nil {
		return err
	}
	r.Memory = ranktest.Memory{Device: dev, Base: m.Addr()}
	call, err := r.Dispatch()
	if err != nil {
		return err
	}
	if err := dev.BeginCapture(s, cuda.CaptureThreadLocal); err != nil {
		return err
	}
	call.Stream = s
	refused := b.Dispatch(call)
	g, err := dev.EndCapture(s)
	if err != nil {
		return err
	}
	if !errors.Is(refused, framework.ErrUnsupported) || !strings.Contains(refused.Error(), "not recorded into a graph") {
		return fmt.Errorf("%v: expected that a capture is refused", refused)
	}
	return errors.Join(g.Close(), dev.CloseStream(s), b.Close(), m.Close())
}

// A rank that never makes its call is named when the time that waits may take is over.
func TestAbsentRankOverHosts(t *testing.T) {
	var failed [2]error
	ranktest.OverHosts(t, []string{"a", "b"}, "rank", comm.Options{Deadline: uint64(300 * time.Millisecond)}, func(ctx context.Context, c *comm.Communicator) error {
		b, err := moe.New(ctx, c, moetest.Options())
		if err != nil {
			return err
		}
		if c.Rank() == 1 {
			<-c.Done()
			failed[1] = c.Check()
			return nil
		}
		failed[0] = dispatch(b, run(c, b, right(), 1))
		return nil
	})
	var e *framework.Error
	if !errors.As(failed[0], &e) || e.Peer != 1 || !strings.Contains(failed[0].Error(), "dispatch rank 1: ") || !strings.Contains(failed[0].Error(), "waits for the rank's call") {
		t.Errorf("%v: expected that it names rank 1 and its call", failed[0])
	}
	if failed[1] == nil || !strings.Contains(failed[1].Error(), "waits for the rank's call") {
		t.Errorf("%v: expected that the other rank learns of it", failed[1])
	}
}

// Slots that do not suffice, and ranks that differ, are named over hosts, too.
func TestTroubleOverHosts(t *testing.T) {
	for text, change := range map[string]func(rank int, c *moe.DispatchCall){
		"and was sent ":               func(_ int, c *moe.DispatchCall) { c.Slots = 1 },
		"another format or other siz": func(r int, c *moe.DispatchCall) { c.Hidden -= 8 * r },
	} {
		ranktest.OverHosts(t, []string{"a", "b"}, "rank", comm.Options{}, func(ctx context.Context, c *comm.Communicator) error {
			b, err := moe.New(ctx, c, moetest.Options())
			if err != nil {
				return err
			}
			call, err := run(c, b, right(), 1).Dispatch()
			if err != nil {
				return err
			}
			change(c.Rank(), call)
			err = b.Dispatch(call)
			if err == nil {
				<-c.Done()
				err = c.Check()
			}
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("rank %d: %v: expected %q", c.Rank(), err, text)
			}
			return nil
		})
	}
}

// Ports reach 4 GiB: a buffer with more is refused where ranks do not share memory.
func TestTooLargeOverHosts(t *testing.T) {
	ranktest.OverHosts(t, []string{"a", "b"}, "rank", comm.Options{}, func(ctx context.Context, c *comm.Communicator) error {
		_, err := moe.New(ctx, c, moe.Options{Tokens: 1 << 14, Hidden: 1 << 16, Experts: 2})
		if !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), "with fewer tokens") {
			t.Errorf("%v: expected that it says what ports reach", err)
		}
		return nil
	})
}

// A rank that has all that it waits for may close its buffer while others still receive: they need nothing of it.
func TestCloseBeforeOthersOverHosts(t *testing.T) {
	for _, drive := range []string{"rank", "plugin"} {
		closed := make(chan struct{})
		ranktest.OverHosts(t, []string{"a", "b"}, drive, comm.Options{}, func(ctx context.Context, c *comm.Communicator) error {
			b, err := moe.New(ctx, c, moetest.Options())
			if err != nil {
				return err
			}
			r := run(c, b, right(), 1)
			if err := errors.Join(dispatch(b, r), r.CheckDispatch()); err != nil {
				return err
			}
			call := r.Combine()
			call.Phase = moe.Send
			if err := b.Combine(call); err != nil {
				return err
			}
			if c.Rank() == 1 {
				<-closed
			}
			call.Phase = moe.Receive
			err = errors.Join(b.Combine(call), r.CheckCombine(), b.Close())
			if c.Rank() == 0 {
				close(closed)
			}
			return err
		})
	}
}
