package comm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// heap is memory without a descriptor, of Go's heap, which does not move memory in use: the caller
// keeps b alive.
func heap(c *comm.Communicator, b []byte) (*comm.Memory, error) {
	return c.Register(host.Wrap(uintptr(unsafe.Pointer(unsafe.SliceData(b))), uint64(len(b))))
}

// stagedPorts is a job of two ranks with one port channel: from size bytes of the heap to
// as many that have a descriptor.
func stagedPorts(t *testing.T, size int, f func(ctx context.Context, c *comm.Communicator, ch *comm.PortChannel, src, dst []byte) error) {
	t.Helper()
	job(t, 2, func(ctx context.Context, c *comm.Communicator) error {
		src := make([]byte, size)
		own, err := heap(c, src)
		if err != nil {
			return err
		}
		open, err := c.Alloc(uint64(size))
		if err != nil {
			return err
		}
		ch, err := c.PortChannel(ctx, 1-c.Rank(), own, open)
		if err != nil {
			return err
		}
		return errors.Join(f(ctx, c, ch, src, device.Bytes(open.Memory)[:size]), c.Barrier(ctx))
	})
}

func pattern(b []byte, seed int) {
	for i := range b {
		b[i] = byte(seed*31 + i*7 + i>>8)
	}
}

// Puts from memory that the transport cannot map, of all sizes from nothing to several
// times what is copied at once: what the signal vouches for is there, at its place, and
// the source may be changed as soon as a put returns.
func TestPutsFromOtherMemory(t *testing.T) {
	const size = 3<<20 + 17
	stagedPorts(t, size, func(ctx context.Context, c *comm.Communicator, ch *comm.PortChannel, src, dst []byte) error {
		for round, n := range []int{1, 8, 4095, 4096, 4097, 256 << 10, 256<<10 + 1, 1 << 20, 1<<20 - 3, 0, size - 16, 5000, 70_001} {
			from, to := round%3, round%5
			pattern(src[from:from+n], 2*round+c.Rank())
			if err := ch.PutWithSignal(uint64(to), uint64(from), uint64(n)); err != nil {
				return err
			}
			clear(src)
			if err := ch.Wait(ctx); err != nil {
				return err
			}
			want := make([]byte, n)
			pattern(want, 2*round+1-c.Rank())
			if !bytes.Equal(dst[to:to+n], want) {
				return fmt.Errorf("round %d: %d bytes behind the signal are not what was put", round, n)
			}
			if err := c.Barrier(ctx); err != nil {
				return err
			}
		}
		// The data of the put is there behind a flush, with a signal and without.
		pattern(src[:9000], 77)
		puts := []func() error{
			func() error { return errors.Join(ch.Put(0, 0, 9000), ch.Flush(ctx)) },
			func() error { return ch.PutWithSignalAndFlush(ctx, 9000, 0, 9000) },
		}
		for _, put := range puts {
			if err := put(); err != nil {
				return err
			}
		}
		if err := errors.Join(ch.Wait(ctx), c.Barrier(ctx)); err != nil {
			return err
		}
		if !bytes.Equal(dst[:9000], src[:9000]) || !bytes.Equal(dst[9000:18_000], src[:9000]) {
			return errors.New("bytes behind a flush are not what was put")
		}
		return nil
	})
}

// Several goroutines put through one channel, more than there is room for at once: none
// gets the room of another, and all arrive.
func TestManyPutsFromOtherMemory(t *testing.T) {
	const producers, each, rounds = 4, 100_003, 12
	stagedPorts(t, producers*each, func(ctx context.Context, c *comm.Communicator, ch *comm.PortChannel, src, dst []byte) error {
		var all sync.WaitGroup
		failed := make([]error, producers)
		for p := range producers {
			all.Go(func() {
				part := src[p*each : (p+1)*each]
				for r := range rounds {
					pattern(part, p+10*r)
					if err := ch.PutWithSignal(uint64(p*each), uint64(p*each), each); err != nil {
						failed[p] = err
						return
					}
				}
			})
		}
		all.Wait()
		for range producers * rounds {
			if err := ch.Wait(ctx); err != nil {
				return errors.Join(err, errors.Join(failed...))
			}
		}
		want := make([]byte, each)
		for p := range producers {
			pattern(want, p+10*(rounds-1))
			if !bytes.Equal(dst[p*each:(p+1)*each], want) {
				return fmt.Errorf("the last put of producer %d is not there behind the last signal", p)
			}
		}
		return errors.Join(failed...)
	})
}

// untaken is a job of two ranks with a port channel from 4 MiB of the heap, whose puts nobody
// takes before f has returned on both ranks; after that it waits for what f returns.
func untaken(t *testing.T, f func(ctx context.Context, ch *comm.PortChannel, own *comm.Memory) (left <-chan error, err error)) {
	t.Helper()
	g := newRig(2)
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	g.wrap = func(rank int, inner framework.Transport) framework.Transport { return lazy{inner, hold} }
	g.run(t, func(ctx context.Context, c *comm.Communicator) error {
		defer release()
		src := make([]byte, 4<<20)
		defer runtime.KeepAlive(src)
		own, err := heap(c, src)
		if err != nil {
			return err
		}
		open, err := c.Alloc(uint64(len(src)))
		if err != nil {
			return err
		}
		ch, err := c.PortChannel(ctx, 1-c.Rank(), own, open)
		if err != nil {
			return err
		}
		left, err := f(ctx, ch, own)
		if err != nil {
			return err
		}
		if err := c.Barrier(ctx); err != nil {
			return err
		}
		if c.Rank() == 0 {
			release()
		}
		return errors.Join(<-left, c.Barrier(ctx))
	})
}

// Puts to a peer that does not take them wait, and end with the channel.
func TestPutsThatFindNoRoom(t *testing.T) {
	untaken(t, func(ctx context.Context, ch *comm.PortChannel, own *comm.Memory) (<-chan error, error) {
		put := make(chan error, 1)
		go func() { put <- ch.Put(0, 0, own.Bytes()) }()
		select {
		case err := <-put:
			return nil, fmt.Errorf("%d bytes were put although nobody takes them: %w", own.Bytes(), err)
		case <-time.After(50 * time.Millisecond):
		}
		closed := make(chan error, 1)
		go func() { closed <- own.Close() }()
		if err := <-put; !errors.Is(err, framework.ErrClosed) {
			return nil, fmt.Errorf("%w: expected ErrClosed", err)
		}
		return closed, nil
	})
}

// A put that ends with a flush waits no longer than its caller, also for room.
func TestPutsThatFindNoRoomInTime(t *testing.T) {
	untaken(t, func(ctx context.Context, ch *comm.PortChannel, own *comm.Memory) (<-chan error, error) {
		put := make(chan error, 1)
		go func() { put <- ch.Put(0, 0, own.Bytes()) }() // has the room, or waits for it
		brief, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
		defer cancel()
		err := ch.PutWithSignalAndFlush(brief, 0, 0, own.Bytes())
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, framework.ErrPeer) {
			return nil, fmt.Errorf("%w: expected ErrPeer and DeadlineExceeded", err)
		}
		return put, nil
	})
}

// lazy has proxies that begin when they are allowed to.
type lazy struct {
	framework.Transport
	hold chan struct{}
}

func (l lazy) NewProxy(ctx context.Context) (framework.Proxy, error) {
	p, err := l.Transport.(framework.Proxier).NewProxy(ctx)
	return &lazyProxy{Proxy: p, hold: l.hold}, err
}

type lazyProxy struct {
	framework.Proxy
	hold chan struct{}
	late sync.WaitGroup
	err  error
}

func (p *lazyProxy) Start(_ context.Context, s framework.Share) error {
	own, err := s.Dup()
	if err != nil {
		return err
	}
	p.late.Go(func() {
		defer own.Close()
		<-p.hold
		p.err = p.Proxy.Start(context.Background(), own)
	})
	return nil
}

func (p *lazyProxy) Wait(ctx context.Context) error {
	select {
	case <-p.hold:
		p.late.Wait()
		return errors.Join(p.err, p.Proxy.Wait(ctx))
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *lazyProxy) Stop(ctx context.Context) error {
	p.late.Wait()
	return p.Proxy.Stop(ctx)
}

// Peers put only into memory that they reach: the error says which memory that is.
func TestPutsToOtherMemoryAreRefused(t *testing.T) {
	job(t, 2, func(ctx context.Context, c *comm.Communicator) error {
		src := make([]byte, 4096)
		defer runtime.KeepAlive(src)
		own, err := heap(c, src)
		if err != nil {
			return err
		}
		open := own
		if c.Rank() == 1 {
			if open, err = c.Alloc(4096); err != nil {
				return err
			}
		}
		_, err = c.PortChannel(ctx, 1-c.Rank(), own, open)
		if c.Rank() == 1 {
			return names(err, framework.ErrPeer, 0)
		}
		return names(err, framework.ErrUnsupported, 0, "over shm puts of the peer", "expected memory from Alloc, or behind a sealed memfd", "copies from behind its Wait")
	})
}

// The remedy in the error is enough: data goes from memory of the heap to memory of the heap, again
// and again, and the bytes that the program has written beside it meanwhile stay.
func TestPutsToOtherMemoryByACopy(t *testing.T) {
	const size, rounds = 70_001, 20
	stagedPorts(t, size, func(ctx context.Context, c *comm.Communicator, ch *comm.PortChannel, src, dst []byte) error {
		target, want := make([]byte, size+2), make([]byte, size)
		for round := range byte(rounds) {
			pattern(src, int(round)*2+c.Rank())
			if err := ch.PutWithSignal(0, 0, size); err != nil {
				return err
			}
			target[0], target[size+1] = round, ^round
			if err := ch.Wait(ctx); err != nil {
				return err
			}
			copy(target[1:], dst)
			pattern(want, int(round)*2+1-c.Rank())
			if !bytes.Equal(target[1:size+1], want) || target[0] != round || target[size+1] != ^round {
				return fmt.Errorf("round %d: %d bytes behind the signal are not what was put", round, size)
			}
			if err := c.Barrier(ctx); err != nil { // the copies are made
				return err
			}
		}
		return nil
	})
}

// A kernel does not copy what it puts: its request ends the proxy, and moves nothing.
func TestKernelsDoNotPutFromOtherMemory(t *testing.T) {
	over := make(chan struct{})
	job(t, 2, func(ctx context.Context, c *comm.Communicator) error {
		src := make([]byte, 64)
		pattern(src, 1)
		own, err := heap(c, src)
		if err != nil {
			return err
		}
		open, err := c.Alloc(64)
		if err != nil {
			return err
		}
		ch, err := c.PortChannel(ctx, 1-c.Rank(), own, open)
		if err != nil {
			return err
		}
		if err := errors.Join(ch.PutWithSignal(0, 0, 0), ch.Wait(ctx), c.Barrier(ctx)); err != nil {
			return err
		}
		if c.Rank() == 1 {
			select {
			case <-over:
			case <-ctx.Done():
			}
			if got := device.Bytes(open.Memory); !bytes.Equal(got, make([]byte, len(got))) {
				return errors.New("the put of a kernel has moved bytes")
			}
			return nil
		}
		defer close(over)
		h := ch.Handle()
		kernelPush(hostWords{}, h.Fifo, kernelTrigger(h, kernel.TriggerData|kernel.TriggerSignal, 0, 0, 64))
		for c.Err() == nil && ctx.Err() == nil {
			runtime.Gosched()
		}
		return names(c.Err(), framework.ErrInvalid, 0, "source memory 511 is not bound")
	})
}
