package counters

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/life"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/proxy"
	"github.com/mscclpp-go/mscclpp/framework/ring"
)

// Queue is how a communicator reads and writes words of a device: by copies and
// stores on a stream of its own, which kernels that wait do not hold up. Without an
// engine it does nothing.
type Queue struct {
	device.Engine
	Lane  *proxy.Lane
	space words       // that streams write
	Over  func() bool // the communicator has ended; nil: never

	mu    sync.Mutex
	given int        // words that streams write; those of the queue come first
	found [2]*uint64 // into which words of the device are copied
	at    [2]uintptr
}

const (
	wordStride = 64
	wordsFrom  = 128 // the wait control comes before

	// LookTimeout bounds a look at the device. It takes some microseconds, unless
	// the device does not answer at all.
	LookTimeout = time.Second
)

// words is memory of the host as host and device address it.
type words struct{ host, device, bytes uintptr }

// Word returns memory of the host for a stream to write. It lasts as long as the
// communicator.
func (q *Queue) Word() (proxy.Word, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	offset := uintptr(wordsFrom + q.given*wordStride)
	if offset+wordStride > q.space.bytes {
		return proxy.Word{}, fmt.Errorf("%w: %d streams of a communicator: no more are possible", framework.ErrUnavailable, q.given)
	}
	q.given++
	return proxy.Word{
		Host:   (*uint64)(Pointer(q.space.host + offset)),
		Device: q.space.device + offset,
	}, nil
}

// zero clears words of the device, and waits until that is done.
func (q *Queue) zero(addrs ...uintptr) bool {
	if q.Lane == nil || q.Over != nil && q.Over() {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), LookTimeout)
	defer cancel()
	for _, a := range addrs {
		if q.Lane.Write(a, 0) != nil {
			return false
		}
	}
	return q.Lane.Settle(ctx) == nil
}

// Look reads a word, and one of the device: by copies what the host does not reach.
func (q *Queue) Look(ctx context.Context, a proxy.Word, b uintptr) (x, y uint64, err error) {
	if q.Lane == nil {
		return 0, 0, fmt.Errorf("%w: the device has no copy engine", framework.ErrUnsupported)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if a.Host == nil {
		err = q.Lane.Copy(q.at[0], a.Device, 8)
		a.Host = q.found[0]
	}
	if err = errors.Join(err, q.Lane.Copy(q.at[1], b, 8)); err == nil {
		err = q.Lane.Settle(ctx)
	}
	if err != nil {
		return 0, 0, err
	}
	return atomic.LoadUint64(a.Host), atomic.LoadUint64(q.found[1]), nil
}

// Store writes a word of the device, and waits until it is there.
func (q *Queue) Store(ctx context.Context, addr uintptr, value uint64) error {
	if err := q.Lane.Write(addr, value); err != nil {
		return err
	}
	return q.Lane.Settle(ctx)
}

func (q *Queue) close() error {
	if q.Lane == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), life.CloseTimeout)
	defer cancel()
	return q.Lane.Close(ctx)
}

// Settle waits until streams of a device have no work left. It polls the device and does
// not block in the driver, so it ends with ctx. When the communicator has failed, it ends
// some seconds later at the latest. On the host there is nothing to wait for.
func Settle(ctx context.Context, l *life.Life, dev device.Device, streams []device.Stream) error {
	engine, ok := dev.(device.Engine)
	if !ok {
		return nil
	}
	for _, s := range streams {
		if err := settle(ctx, l, engine, s, dev.Info()); err != nil {
			return err
		}
	}
	return nil
}

func settle(ctx context.Context, l *life.Life, engine device.Engine, s device.Stream, info device.Info) error {
	start, pace := time.Now(), ring.Begin(nil, false)
	var failed time.Time
	for {
		state, err := engine.Query(s)
		if err != nil || state != device.StreamBusy {
			return err
		}
		now := time.Now()
		if failed.IsZero() && l.Failed() {
			failed = now
		}
		late := ctx.Err()
		if late == nil && !failed.IsZero() && now.Sub(failed) > life.CloseTimeout {
			late = context.DeadlineExceeded
		}
		if late != nil {
			return l.Blame("settle", framework.NoPeer, fmt.Errorf("%w: a stream of %v is busy for %v: %w",
				framework.ErrUnavailable, info.Device, now.Sub(start).Round(time.Millisecond), late))
		}
		pace.Rest()
	}
}
