package comm_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// ports is a job of two ranks with one port channel over 64 KiB each.
func ports(t *testing.T, f func(ctx context.Context, c *comm.Communicator, ch *comm.PortChannel, m *comm.Memory) error) {
	t.Helper()
	portsOn(t, newRig(2), f)
}

func portsOn(t *testing.T, g *rig, f func(ctx context.Context, c *comm.Communicator, ch *comm.PortChannel, m *comm.Memory) error) {
	t.Helper()
	g.run(t, func(ctx context.Context, c *comm.Communicator) error {
		m, err := c.Alloc(1 << 16)
		if err != nil {
			return err
		}
		ch, err := c.PortChannel(ctx, 1-c.Rank(), m, m)
		if err != nil {
			return err
		}
		return f(ctx, c, ch, m)
	})
}

func TestClosePerformsWhatWasPushed(t *testing.T) {
	ports(t, func(ctx context.Context, c *comm.Communicator, ch *comm.PortChannel, m *comm.Memory) error {
		data := device.Bytes(m.Memory)
		half := 1 << 15
		for i := range half {
			data[i] = byte(1 + c.Rank())
		}
		for i := 0; i < half; i += 64 {
			if err := ch.Put(uint64(half+i), uint64(i), 64); err != nil {
				return err
			}
		}
		if err := ch.Close(); err != nil {
			return err
		}
		if err := c.Barrier(ctx); err != nil {
			return err
		}
		for i := half; i < 2*half; i++ {
			if data[i] != byte(2-c.Rank()) {
				return fmt.Errorf("byte %d is %d", i, data[i])
			}
		}
		return nil
	})
}

// A put that a trigger cannot express, or that would miss the memory of either side, is
// refused before anything moves, and the channel goes on.
func TestPutsOutOfRange(t *testing.T) {
	const kib64, gib4 = 1 << 16, 1 << 32
	ports(t, func(ctx context.Context, c *comm.Communicator, ch *comm.PortChannel, m *comm.Memory) error {
		for _, x := range []struct {
			dst, src, bytes uint64
			text            string
		}{
			{0, 0, gib4, "offsets 0, 0 and size 4294967296: expected less than 4 GiB each"},
			{gib4, 0, 1, "offsets 4294967296, 0 and size 1: expected less than 4 GiB each"},
			{0, gib4, 1, "offsets 0, 4294967296 and size 1: expected less than 4 GiB each"},
			{0, 0, math.MaxUint64, "expected less than 4 GiB each"},
			{math.MaxUint64, math.MaxUint64, 2, "expected less than 4 GiB each"}, // the ends would wrap
			{0, 1, kib64, "source range [1, 65537) of 65536 bytes"},
			{0, 0, gib4 - 1, "source range [0, 4294967295) of 65536 bytes"},
			{1, 0, kib64, "destination range [1, 65537) of 65536 bytes"},
			{gib4 - 1, 0, 1, "destination range [4294967295, 4294967296) of 65536 bytes"},
			{kib64, 0, 1, "destination range [65536, 65537) of 65536 bytes"},
		} {
			flush := func(dst, src, bytes uint64) error { return ch.PutWithSignalAndFlush(ctx, dst, src, bytes) }
			for name, put := range map[string]func(dst, src, bytes uint64) error{"put": ch.Put, "put with signal": ch.PutWithSignal, "put with signal and flush": flush} {
				err := put(x.dst, x.src, x.bytes)
				if !errors.Is(err, framework.ErrInvalid) || framework.PeerOf(err) != 1-c.Rank() || !strings.Contains(err.Error(), x.text) {
					return fmt.Errorf("%s of %d bytes from %d to %d: %v: expected %q, and rank %d", name, x.bytes, x.src, x.dst, err, x.text, 1-c.Rank())
				}
			}
		}
		// The last byte can still be had, and no signal of a refused put has come before it.
		device.Bytes(m.Memory)[0] = byte(7 + c.Rank())
		if err := errors.Join(ch.PutWithSignal(kib64-1, 0, 1), ch.Wait(ctx), ch.Flush(ctx)); err != nil {
			return err
		}
		if got, want := device.Bytes(m.Memory)[kib64-1], byte(8-c.Rank()); got != want {
			return fmt.Errorf("the last byte is %d behind the first signal: expected %d", got, want)
		}
		return c.Barrier(ctx)
	})
}

func TestCloseEndsWaits(t *testing.T) {
	ports(t, func(ctx context.Context, c *comm.Communicator, ch *comm.PortChannel, m *comm.Memory) error {
		results := make(chan error, 3)
		for range cap(results) {
			go func() { results <- ch.Wait(context.Background()) }()
		}
		var err error
		if c.Rank() == 0 {
			err = ch.Close()
		} else {
			err = m.Close() // which the channel is built on
		}
		if err != nil {
			return err
		}
		for range cap(results) {
			select {
			case err := <-results:
				if !errors.Is(err, framework.ErrClosed) {
					return fmt.Errorf("wait: %v, expected ErrClosed", err)
				}
			case <-ctx.Done():
				return errors.New("somebody still waits")
			}
		}
		for name, call := range map[string]func() error{
			"put": func() error { return ch.Put(0, 0, 1) }, "signal": ch.Signal,
			"flush": func() error { return ch.Flush(ctx) }, "signal and flush": func() error { return ch.SignalAndFlush(ctx) }, "wait": func() error { return ch.Wait(ctx) },
		} {
			if err := call(); !errors.Is(err, framework.ErrClosed) {
				return fmt.Errorf("%s after Close: %v, expected ErrClosed", name, err)
			}
		}
		return c.Barrier(ctx) // the communicator did not suffer
	})
}

// One request for a put, a signal and a flush is as good as three: when it returns the source
// may be written again, and the peer sees the data behind the signal.
func TestRequestsThatFlush(t *testing.T) {
	ports(t, func(ctx context.Context, c *comm.Communicator, ch *comm.PortChannel, m *comm.Memory) error {
		const half, each, rounds = 1 << 15, 1000, 50
		out, in := device.Bytes(m.Memory)[:each], device.Bytes(m.Memory)[half:half+each]
		for i := range rounds {
			for k := range out {
				out[k] = byte(i + c.Rank())
			}
			if err := ch.PutWithSignalAndFlush(ctx, half, 0, each); err != nil {
				return err
			}
			clear(out)
			if err := ch.Wait(ctx); err != nil {
				return err
			}
			if want := byte(i + 1 - c.Rank()); in[0] != want || in[each-1] != want {
				return fmt.Errorf("round %d: bytes %d and %d, expected %d", i, in[0], in[each-1], want)
			}
			if err := errors.Join(ch.SignalAndFlush(ctx), ch.Wait(ctx)); err != nil { // the peer has read them
				return err
			}
		}
		gone, cancel := context.WithCancel(ctx)
		cancel()
		if err := ch.Wait(gone); !errors.Is(err, framework.ErrPeer) {
			return fmt.Errorf("a signal more than were sent: %v", err)
		}
		return c.Barrier(ctx)
	})
}

// A wait that gives up must not take a signal, nor leave its number to be waited for twice.
func TestWaitThatGivesUpTakesNothing(t *testing.T) {
	ports(t, func(ctx context.Context, c *comm.Communicator, ch *comm.PortChannel, _ *comm.Memory) error {
		if c.Rank() == 1 {
			if err := c.Barrier(ctx); err != nil {
				return err
			}
			for range 8 {
				if err := ch.Signal(); err != nil {
					return err
				}
			}
			return c.Barrier(ctx)
		}
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		var patient, hasty sync.WaitGroup
		var got atomic.Int32
		for range 8 {
			hasty.Go(func() {
				if ch.Wait(short) == nil {
					t.Error("a signal that nobody sent")
				}
			})
			patient.Go(func() {
				if err := ch.Wait(ctx); err != nil {
					t.Error(err)
				} else {
					got.Add(1)
				}
			})
		}
		hasty.Wait()
		if err := c.Barrier(ctx); err != nil {
			return err
		}
		patient.Wait()
		h := ch.Handle().Semaphore
		if e := words(h.Expected)[0]; got.Load() != 8 || e != 8 {
			return fmt.Errorf("%d waits ended, the expected count is %d: 8 signals were sent", got.Load(), e)
		}
		return c.Barrier(ctx)
	})
}

func TestWaitNamesThePeer(t *testing.T) {
	ports(t, func(ctx context.Context, c *comm.Communicator, ch *comm.PortChannel, _ *comm.Memory) error {
		short, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		err := ch.Wait(short)
		if !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("%v: expected the deadline", err)
		}
		return names(err, framework.ErrPeer, 1-c.Rank())
	})
}

func TestHostDrivenPortsDoNotAllocate(t *testing.T) {
	ports(t, func(ctx context.Context, c *comm.Communicator, ch *comm.PortChannel, _ *comm.Memory) error {
		if err := c.Barrier(ctx); err != nil {
			return err
		}
		var failed error
		step := func() {
			for _, call := range []error{ch.PutWithSignal(0, 0, 8), ch.Put(0, 0, 8), ch.Flush(ctx), ch.Wait(ctx)} {
				failed = errors.Join(failed, call)
			}
		}
		const rounds = 200 // AllocsPerRun makes one more
		if c.Rank() == 1 {
			for range rounds + 1 {
				step()
			}
			return failed
		}
		if n := testing.AllocsPerRun(rounds, step); n != 0 && !raceEnabled {
			return fmt.Errorf("%v allocations", n)
		}
		return failed
	})
}

// More channels than one ring has numbers for, twice: rings are opened as they are
// needed, and closed with the last of their channels.
func TestRingsComeAndGo(t *testing.T) {
	const channels = 300 // of two memories each; a ring has 512 numbers
	g := newRig(2)
	g.run(t, func(ctx context.Context, c *comm.Communicator) error {
		m, err := c.Alloc(4096)
		if err != nil {
			return err
		}
		for lap, want := range []int{2, 2} {
			var all []*comm.PortChannel
			for range channels {
				ch, err := c.PortChannel(ctx, 1-c.Rank(), m, m)
				if err != nil {
					return err
				}
				all = append(all, ch)
			}
			for i := range 3 { // the first, one in the middle, the last
				ch := all[i*(channels-1)/2]
				if err := ch.PutWithSignal(8, 0, 8); err != nil {
					return err
				}
				if err := ch.Wait(ctx); err != nil {
					return err
				}
			}
			if n := g.ids[c.Rank()].proxies(); n != want {
				return fmt.Errorf("lap %d: %d rings for %d channels, expected %d", lap, n, channels, want)
			}
			for _, ch := range all {
				if err := ch.Close(); err != nil {
					return err
				}
			}
			if n := g.ids[c.Rank()].proxies(); n != 1 {
				return fmt.Errorf("lap %d: %d rings are left, expected the one that has numbers", lap, n)
			}
		}
		return nil
	})
}

// A proxy that ends although nobody stopped it would leave all peers waiting.
func TestProxyThatEndsIsAFailure(t *testing.T) {
	g := newRig(2)
	stop := make(chan struct{})
	var ready sync.WaitGroup
	ready.Add(2)
	g.wrap = func(rank int, inner framework.Transport) framework.Transport {
		if rank == 1 {
			return fickle{Transport: inner, stop: stop}
		}
		return inner
	}
	portsOn(t, g, func(ctx context.Context, c *comm.Communicator, ch *comm.PortChannel, _ *comm.Memory) error {
		ready.Done()
		ready.Wait()
		if c.Rank() == 1 {
			close(stop)
		}
		err := ch.Wait(context.Background())
		class := framework.ErrPeer
		if c.Rank() == 1 {
			class = framework.ErrPlugin
		}
		return names(err, class, 1, "nobody stopped it")
	})
}

// The ring shows the end of a proxy before its reason is known: the waiting call says the reason.
func TestWaitForAnEndedProxyNamesTheReason(t *testing.T) {
	g := newRig(2)
	stop, proxies := make(chan struct{}), make(chan framework.Proxy, 1)
	g.wrap = func(rank int, inner framework.Transport) framework.Transport {
		if rank == 1 {
			return fickle{Transport: inner, stop: stop, proxies: proxies, cause: fmt.Errorf("%w: the cable is cut", framework.ErrUnavailable)}
		}
		return inner
	}
	portsOn(t, g, func(ctx context.Context, c *comm.Communicator, ch *comm.PortChannel, _ *comm.Memory) error {
		if c.Rank() == 0 {
			return names(ch.Wait(ctx), framework.ErrPeer, 1, "the cable is cut")
		}
		if err := ch.Flush(ctx); err != nil { // the proxy is made
			return err
		}
		if err := (<-proxies).Stop(ctx); err != nil {
			return err
		}
		time.AfterFunc(20*time.Millisecond, func() { close(stop) })
		return names(ch.Flush(ctx), framework.ErrUnavailable, 1, "the cable is cut")
	})
}

// fickle has proxies that end at a signal, without a reason unless it has one. The first one is in proxies.
type fickle struct {
	framework.Transport
	stop    chan struct{}
	cause   error
	proxies chan framework.Proxy
}

func (f fickle) NewProxy(ctx context.Context) (framework.Proxy, error) {
	p, err := f.Transport.(framework.Proxier).NewProxy(ctx)
	select {
	case f.proxies <- p:
	default:
	}
	return fickleProxy{p, f.stop, f.cause}, err
}

type fickleProxy struct {
	framework.Proxy
	stop  chan struct{}
	cause error
}

func (p fickleProxy) Wait(ctx context.Context) error {
	select {
	case <-p.stop:
		return p.cause
	case <-ctx.Done():
		return ctx.Err()
	}
}
