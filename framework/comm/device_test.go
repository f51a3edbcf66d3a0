package comm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device/devicetest"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/loopback"
	"github.com/mscclpp-go/mscclpp/internal/promise"
)

// deviceJob runs f as n ranks, each with a device that is not the host: the host
// faults on its addresses. It checks that nothing is left on the devices.
func deviceJob(t *testing.T, n int, f func(ctx context.Context, c *comm.Communicator, dev *devicetest.Device) error) {
	t.Helper()
	g := newRig(n)
	g.each(t, func(ctx context.Context, boot *bootstrap.Local) error {
		dev, err := devicetest.Open(boot.Rank())
		if err != nil {
			return err
		}
		defer dev.Close()
		tr, err := comm.NewTransport(ctx, loopback.NewByRank(), "embedded")
		if err != nil {
			return err
		}
		c, err := comm.New(ctx, boot, comm.Options{Device: dev, Transports: []*comm.Transport{tr}})
		if err != nil {
			return err
		}
		err = f(ctx, c, dev)
		err = errors.Join(err, c.Close())
		if m, s := dev.Mappings(), dev.Streams(); m != 0 || s != 0 {
			err = errors.Join(err, fmt.Errorf("%d mappings and %d streams are left on the device", m, s))
		}
		return err
	})
}

// portsOf builds a port channel to every other rank, over 64 KiB each: one memory
// to send from, and one that all others write, each its own part.
func portsOf(ctx context.Context, c *comm.Communicator) (out, in *comm.Memory, ports map[int]*comm.PortChannel, err error) {
	if out, err = c.Alloc(1 << 16); err != nil {
		return nil, nil, nil, err
	}
	if in, err = c.Alloc(1 << 16); err != nil {
		return nil, nil, nil, err
	}
	ports = map[int]*comm.PortChannel{}
	for d := 1; d < c.Size(); d++ {
		peer := c.Rank() ^ d // a tournament, for sizes that are powers of two
		if ports[peer], err = c.PortChannel(ctx, peer, out, in); err != nil {
			return nil, nil, nil, err
		}
	}
	return out, in, ports, nil
}

// kernelPush is what Fifo.push does, by a kernel of the device.
func kernelPush(dev interface{ Word(addr uintptr) *uint64 }, h kernel.FifoHandle, t kernel.Trigger) (pos uint64) {
	pos = atomic.AddUint64(dev.Word(h.Head), 1) - 1
	for pos >= uint64(h.Mask)+1+atomic.LoadUint64(dev.Word(h.Tail)) {
		time.Sleep(time.Microsecond)
	}
	slot := h.Triggers + uintptr(pos&uint64(h.Mask))*16
	atomic.StoreUint64(dev.Word(slot), t.Fst)
	atomic.StoreUint64(dev.Word(slot+8), t.Snd|(pos>>h.Shift&1^1)<<63)
	return pos
}

func kernelTrigger(h kernel.PortChannelHandle, kind, dst, src, n uint64) kernel.Trigger {
	return kernel.TriggerFields{Kind: kind, Bytes: n, From: src, To: dst, Src: h.SrcMemory, Dst: h.DstMemory, Slot: h.SemaphoreSlot}.Pack()
}

// kernelWait is what Semaphore.wait does. It looks at the abort word as kernels do.
func kernelWait(dev *devicetest.Device, h kernel.SemaphoreHandle) bool {
	want := atomic.AddUint64(dev.Word(h.Expected), 1)
	for atomic.LoadUint64(dev.Word(h.Inbound)) < want {
		if uint32(atomic.LoadUint64(dev.Word(h.Control))) != 0 {
			return false
		}
		time.Sleep(10 * time.Microsecond)
	}
	return true
}

// Four ranks put to each other, by kernels: each in its own part of all others.
func TestKernelsOfADeviceDrivePorts(t *testing.T) {
	const part, rounds = 1 << 12, 40 // more triggers than one lap of a ring
	deviceJob(t, 4, func(ctx context.Context, c *comm.Communicator, dev *devicetest.Device) error {
		out, in, ports, err := portsOf(ctx, c)
		if err != nil {
			return err
		}
		mine := dev.Bytes(out.Addr(), part)
		for round := range rounds {
			for i := range mine {
				mine[i] = byte(i*3 + c.Rank() + round)
			}
			for _, ch := range ports {
				h := ch.Handle()
				if h.Fifo.Parked != 0 || h.Semaphore.Control != c.Control() {
					return fmt.Errorf("handle %+v: expected no word to wake a sleeper by, and the control word of the device", h.Fifo)
				}
				for piece := range uint64(4) {
					at := piece * part / 4
					kernelPush(dev, h.Fifo, kernelTrigger(h, kernel.TriggerData, part*uint64(c.Rank())+at, at, part/4))
				}
				kernelPush(dev, h.Fifo, kernelTrigger(h, kernel.TriggerSignal, 0, 0, 0))
				pos := kernelPush(dev, h.Fifo, kernelTrigger(h, kernel.TriggerFlush, 0, 0, 0))
				for atomic.LoadUint64(dev.Word(h.FlushDone)) <= pos {
					if err := c.Err(); err != nil {
						return err
					}
					time.Sleep(10 * time.Microsecond)
				}
			}
			for peer, ch := range ports {
				if !kernelWait(dev, ch.Handle().Semaphore) {
					return c.Err()
				}
				got := dev.Bytes(in.Addr()+uintptr(part*peer), part)
				for i, b := range got {
					if b != byte(i*3+peer+round) {
						return fmt.Errorf("round %d: byte %d of rank %d is %d", round, i, peer, b)
					}
				}
			}
			if err := c.Barrier(ctx); err != nil { // parts are free again
				return err
			}
		}
		return nil
	})
}

// The host drives the same channels, through a ring of its own, and in turns with
// kernels: counts of signals go on where the other left them.
func TestHostAndKernelsTakeTurns(t *testing.T) {
	deviceJob(t, 2, func(ctx context.Context, c *comm.Communicator, dev *devicetest.Device) error {
		out, in, ports, err := portsOf(ctx, c)
		if err != nil {
			return err
		}
		ch := ports[1-c.Rank()]
		h := ch.Handle()
		src, dst := dev.Bytes(out.Addr(), 1<<16), dev.Bytes(in.Addr(), 1<<16)
		for round := range 20 {
			for i := range src {
				src[i] = byte(i + round*7 + c.Rank())
			}
			for _, call := range []error{ch.Put(0, 0, 1<<15), ch.PutWithSignal(1<<15, 1<<15, 1<<15), ch.Flush(ctx), ch.Wait(ctx)} {
				if call != nil {
					return call
				}
			}
			if want := byte(round*7 + 1 - c.Rank()); dst[0] != want || dst[1<<16-1] != want-1 {
				return fmt.Errorf("round %d: bytes %d and %d, expected %d at first", round, dst[0], dst[1<<16-1], want)
			}
			kernelPush(dev, h.Fifo, kernelTrigger(h, kernel.TriggerSignal, 0, 0, 0))
			if !kernelWait(dev, h.Semaphore) {
				return c.Err()
			}
			if err := c.Barrier(ctx); err != nil {
				return err
			}
		}
		if seen := atomic.LoadUint64(dev.Word(h.Semaphore.Inbound)); seen != 40 {
			return fmt.Errorf("%d signals, expected 40", seen)
		}
		if err := c.Barrier(ctx); err != nil { // the peer has counted before more arrive
			return err
		}
		for range 100 { // a flush of the host covers what kernels pushed before
			kernelPush(dev, h.Fifo, kernelTrigger(h, kernel.TriggerSignal, 0, 0, 0))
		}
		if err := errors.Join(ch.Flush(ctx), c.Barrier(ctx)); err != nil {
			return err
		}
		if seen := atomic.LoadUint64(dev.Word(h.Semaphore.Inbound)); seen != 140 {
			return fmt.Errorf("%d signals after the flush, expected 140", seen)
		}
		atomic.StoreUint64(dev.Word(h.Semaphore.Expected), 140)
		if err := ch.Put(0, 1<<16-4, 8); !errors.Is(err, framework.ErrInvalid) {
			return fmt.Errorf("a put beyond the source: %v", err)
		}
		short, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		if err := ch.Wait(short); !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("wait for a signal that nobody sends: %v", err)
		}
		if e := atomic.LoadUint64(dev.Word(h.Semaphore.Expected)); e != 140 {
			return fmt.Errorf("the wait that gave up left %d expected signals, expected 140", e)
		}
		return nil
	})
}

// Requests that a kernel pushed are performed before a channel is closed.
func TestClosePerformsWhatKernelsPushed(t *testing.T) {
	deviceJob(t, 2, func(ctx context.Context, c *comm.Communicator, dev *devicetest.Device) error {
		_, in, ports, err := portsOf(ctx, c)
		if err != nil {
			return err
		}
		ch := ports[1-c.Rank()]
		h := ch.Handle()
		release := dev.Hold()
		for range 300 {
			kernelPush(dev, h.Fifo, kernelTrigger(h, kernel.TriggerSignal|kernel.TriggerData, 0, 0, 64))
		}
		closed := make(chan error, 1)
		go func() { closed <- ch.Close() }()
		select {
		case err := <-closed:
			return fmt.Errorf("closed (%v) while the copy engine stood still", err)
		case <-time.After(5 * time.Millisecond):
		}
		release()
		if err := <-closed; err != nil {
			return err
		}
		if err := c.Barrier(ctx); err != nil {
			return err
		}
		if seen := atomic.LoadUint64(dev.Word(h.Semaphore.Inbound)); seen != 300 {
			return fmt.Errorf("%d signals arrived, expected 300", seen)
		}
		return in.Close()
	})
}

// Semaphores of a device come back as well, and begin at 0, which the far end's
// copy engine counts on.
func TestSemaphoresOfADeviceAreUsedAgain(t *testing.T) {
	deviceJob(t, 2, func(ctx context.Context, c *comm.Communicator, dev *devicetest.Device) error {
		m, err := c.Alloc(4096)
		if err != nil {
			return err
		}
		for lap := range 30 {
			var s kernel.SemaphoreHandle
			var closer interface{ Close() error }
			if lap%2 == 0 {
				ch, err := c.MemoryChannel(ctx, 1-c.Rank(), m)
				if err != nil {
					return err
				}
				closer, s = ch, ch.Handle().Semaphore
				if first, e := atomic.LoadUint64(dev.Word(s.Inbound)), atomic.LoadUint64(dev.Word(s.Expected)); first != 0 && first != 3 || e != 0 {
					return fmt.Errorf("lap %d: begins at %d seen, %d expected", lap, first, e) // 3: the peer is ahead
				}
				atomic.AddUint64(dev.Word(s.Outbound), 3)
			} else {
				ch, err := c.PortChannel(ctx, 1-c.Rank(), m, m)
				if err != nil {
					return err
				}
				closer, s = ch, ch.Handle().Semaphore
				for range 3 {
					if err := ch.Signal(); err != nil {
						return err
					}
				}
				for range 2 { // one is left over
					if err := ch.Wait(ctx); err != nil {
						return err
					}
				}
				if err := ch.Flush(ctx); err != nil {
					return err
				}
			}
			if s.ID > 1 {
				return fmt.Errorf("lap %d: semaphore %d though only one is in use", lap, s.ID)
			}
			if err := c.Barrier(ctx); err != nil {
				return err
			}
			if seen := atomic.LoadUint64(dev.Word(s.Inbound)); seen != 3 {
				return fmt.Errorf("lap %d: %d signals, expected 3", lap, seen)
			}
			if err := closer.Close(); err != nil {
				return err
			}
		}
		return nil
	})
}

// A counter that the device does not reset is not lent again.
func TestSemaphoreThatCannotBeReset(t *testing.T) {
	deviceJob(t, 2, func(ctx context.Context, c *comm.Communicator, dev *devicetest.Device) error {
		m, err := c.Alloc(4096)
		if err != nil {
			return err
		}
		seen := map[uint32]bool{}
		for range 3 {
			ch, err := c.MemoryChannel(ctx, 1-c.Rank(), m)
			if err != nil {
				return err
			}
			if id := ch.Handle().Semaphore.ID; seen[id] {
				return fmt.Errorf("semaphore %d again", id)
			} else {
				seen[id] = true
			}
			if err := errors.Join(ch.Close(), c.Barrier(ctx)); err != nil {
				return err
			}
			dev.Fail(fmt.Errorf("%w: broken", framework.ErrUnavailable))
		}
		if err := c.Close(); !errors.Is(err, framework.ErrUnavailable) || !strings.Contains(err.Error(), "broken") {
			return fmt.Errorf("close: %v, expected what the device says", err)
		}
		return nil
	})
}

func TestDumpReadsCountersOfADevice(t *testing.T) {
	deviceJob(t, 2, func(ctx context.Context, c *comm.Communicator, dev *devicetest.Device) error {
		_, _, ports, err := portsOf(ctx, c)
		if err != nil {
			return err
		}
		ch := ports[1-c.Rank()]
		h := ch.Handle()
		for range 5 {
			if err := ch.Signal(); err != nil {
				return err
			}
		}
		if err := errors.Join(ch.Flush(ctx), ch.Wait(ctx), c.Barrier(ctx)); err != nil {
			return err
		}
		release := dev.Hold()
		kernelPush(dev, h.Fifo, kernelTrigger(h, kernel.TriggerFlush, 0, 0, 0))
		var silent bytes.Buffer
		watch := promise.Begin()
		if err := errors.Join(c.Dump(&silent), watch.Kept(5*time.Second)); err != nil || !strings.Contains(silent.String(), "does not answer") {
			return fmt.Errorf("a device that stands still: %v\n%s", err, silent.String())
		}
		release()
		if err := ch.Flush(ctx); err != nil {
			return err
		}
		s := c.Channels()
		if len(s) != 1 || !s[0].Known || s[0].Seen != 5 || s[0].Expected != 1 || s[0].Kind != framework.KindPort || s[0].Peer != 1-c.Rank() {
			return fmt.Errorf("%+v: expected one channel with 5 signals seen and 1 expected", s)
		}
		return c.Barrier(ctx)
	})
}
