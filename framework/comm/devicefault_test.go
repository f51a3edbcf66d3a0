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
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/devicetest"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/loopback"
	"github.com/mscclpp-go/mscclpp/internal/promise"
)

// The error of a copy engine ends the job on all ranks and names the rank that was written to.
func TestCopyEngineThatFails(t *testing.T) {
	var broken sync.WaitGroup
	broken.Add(1)
	meet := meeting(2)
	deviceJob(t, 2, func(ctx context.Context, c *comm.Communicator, dev *devicetest.Device) error {
		_, _, ports, err := portsOf(ctx, c)
		if err != nil {
			return err
		}
		ch := ports[1-c.Rank()]
		if err := meet(ctx); err != nil {
			return err
		}
		class := framework.ErrPeer // announced by the other
		if c.Rank() == 0 {
			class = framework.ErrUnavailable
			dev.Fail(errors.New("an uncorrectable error"))
			h := ch.Handle() // a signal alone would not need the device
			kernelPush(dev, h.Fifo, kernelTrigger(h, kernel.TriggerData|kernel.TriggerSignal, 0, 0, 8))
		}
		if kernelWait(dev, ch.Handle().Semaphore) {
			return errors.New("a signal that nobody sent")
		}
		<-c.Done()
		if err := names(c.Err(), class, 1, "uncorrectable"); err != nil {
			return err
		}
		if err := ch.Signal(); err == nil {
			return errors.New("a signal over a failed communicator")
		}
		return nil
	})
}

// Kernels that push see, in memory of their device, that the proxy has died.
func TestKernelsSeeADeadCopier(t *testing.T) {
	meet := meeting(2)
	deviceJob(t, 2, func(ctx context.Context, c *comm.Communicator, dev *devicetest.Device) error {
		_, _, ports, err := portsOf(ctx, c)
		if err != nil {
			return err
		}
		h := ports[1-c.Rank()].Handle()
		word := dev.Word(h.Fifo.Error &^ 7)
		if err := meet(ctx); err != nil {
			return err
		}
		if n := atomic.LoadUint64(word); n != 0 {
			return fmt.Errorf("the word for errors is %d at first", n)
		}
		if c.Rank() == 1 {
			<-c.Done()
			return names(c.Err(), framework.ErrPeer, 0, "asks for nothing")
		}
		kernelPush(dev, h.Fifo, kernelTrigger(h, 0, 0, 0, 0))
		for atomic.LoadUint64(word) == 0 {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("the word for errors stays 0: %w", err)
			}
			time.Sleep(20 * time.Microsecond)
		}
		return names(c.Err(), framework.ErrInvalid, 0, "asks for nothing")
	})
}

// A copy engine that stands still, with more to do than it has room for, does not
// keep a failed communicator from being closed.
func TestCloseAfterAbortIsBounded(t *testing.T) {
	meet := meeting(2)
	deviceJob(t, 2, func(ctx context.Context, c *comm.Communicator, dev *devicetest.Device) error {
		_, _, ports, err := portsOf(ctx, c)
		if err != nil {
			return err
		}
		if err := meet(ctx); err != nil {
			return err
		}
		h := ports[1-c.Rank()].Handle()
		release := dev.Hold()
		for range 1700 { // a window, a backlog and a ring
			if c.Rank() == 0 {
				kernelPush(dev, h.Fifo, kernelTrigger(h, kernel.TriggerData, 0, 0, 8))
			}
			if c.Err() != nil {
				break
			}
		}
		c.Abort(fmt.Errorf("%w: enough", framework.ErrInvalid))
		time.AfterFunc(50*time.Millisecond, release)
		watch := promise.Begin()
		err = c.Close()
		if late := watch.Kept(10 * time.Second); late != nil {
			return fmt.Errorf("closed %w", late)
		}
		return err
	})
}

// More channels than one ring has numbers for: rings are made as they are needed, and
// go with the last of their channels, from the device too.
func TestRingsOfADeviceComeAndGo(t *testing.T) {
	const channels = 260 // of two memories each; a ring has 512 numbers
	deviceJob(t, 2, func(ctx context.Context, c *comm.Communicator, dev *devicetest.Device) error {
		m, err := c.Alloc(4096)
		if err != nil {
			return err
		}
		before := dev.Mappings()
		var all []*comm.PortChannel
		for range channels {
			ch, err := c.PortChannel(ctx, 1-c.Rank(), m, m)
			if err != nil {
				return err
			}
			all = append(all, ch)
		}
		if n, s := dev.Mappings()-before, dev.Streams(); n != channels+1+2+2*2 || s != 2*2 {
			// the peer's memory for each, its counters, the tokens of both, and two rings with
			// their heads; for the peer, and for the communicator, a stream for copies and one
			// for words behind them
			return fmt.Errorf("%d mappings and %d streams for %d channels", n, s, channels)
		}
		for _, ch := range []*comm.PortChannel{all[0], all[channels-1]} { // of different rings
			h := ch.Handle()
			kernelPush(dev, h.Fifo, kernelTrigger(h, kernel.TriggerData|kernel.TriggerSignal, 8, 0, 8))
			if !kernelWait(dev, h.Semaphore) {
				return c.Err()
			}
			if err := errors.Join(ch.Signal(), ch.Wait(ctx)); err != nil {
				return err
			}
		}
		for _, ch := range all {
			if err := ch.Close(); err != nil {
				return err
			}
		}
		// The full ring is gone. The rest stays: counters, tokens, a ring for kernels, and one for
		// the host, which has numbers left.
		if n := dev.Mappings() - before; n != 1+2+2+1 {
			return fmt.Errorf("%d mappings are left after the channels", n)
		}
		return nil
	})
}

func TestSettle(t *testing.T) {
	deviceJob(t, 1, func(ctx context.Context, c *comm.Communicator, dev *devicetest.Device) error {
		s, err := dev.NewStream()
		if err != nil {
			return err
		}
		defer dev.CloseStream(s)
		m, err := c.Alloc(8)
		if err != nil {
			return err
		}
		release := dev.Hold()
		defer release()
		if err := dev.Write(s, m.Addr(), 7); err != nil {
			return err
		}
		short, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		if err := c.Settle(short, s); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "cuda:0 is busy") {
			return fmt.Errorf("settle of a stream that stands still: %v", err)
		}
		release()
		if err := c.Settle(ctx, s); err != nil {
			return err
		}
		if v := *dev.Word(m.Addr()); v != 7 {
			return fmt.Errorf("the word is %d after Settle", v)
		}
		return m.Close()
	})
}

// The host has no copy engine, so a transport that wants one carries no ports there.
func TestHostHasNoCopyEngine(t *testing.T) {
	g := newRig(2)
	g.wrap = func(int, framework.Transport) framework.Transport { return loopback.NewByRank() }
	g.run(t, func(ctx context.Context, c *comm.Communicator) error {
		m, err := c.Alloc(4096)
		if err != nil {
			return err
		}
		_, err = c.PortChannel(ctx, 1-c.Rank(), m, m)
		if !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), "copy engine of the rank's device, and host has none") {
			return fmt.Errorf("%v: expected ErrUnsupported that says what is missing", err)
		}
		if err := c.Settle(ctx, device.Stream(0)); err != nil { // nothing to wait for
			return err
		}
		return c.Barrier(ctx)
	})
}
