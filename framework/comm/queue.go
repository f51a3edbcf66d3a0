package comm

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/proxy"
	"github.com/mscclpp-go/mscclpp/framework/ring"
)

// queue is how a communicator reads and writes words of a device: by copies and
// stores on a stream of its own, which kernels that wait do not hold up. Without an
// engine it does nothing.
type queue struct {
	device.Engine
	lane  *proxy.Lane
	space *control
	over  func() bool // the communicator has ended; nil: never

	mu    sync.Mutex
	given int        // words that streams write; those of the queue come first
	found [2]*uint64 // into which words of the device are copied
	at    [2]uintptr
}

const (
	wordStride = 64
	wordsFrom  = 128 // the wait control comes before

	// lookTimeout bounds a look at the device. It takes some microseconds, unless
	// the device does not answer at all.
	lookTimeout = time.Second
)

// openQueue gives a device with an engine a queue.
func (k *control) openQueue() error {
	engine, ok := k.dev.(device.Engine)
	if !ok || k.hostDev == nil {
		return nil
	}
	q := &k.engine
	q.Engine, q.space = engine, k
	var words [3]proxy.Word
	for i := range words {
		var err error
		if words[i], err = q.word(); err != nil {
			return err
		}
	}
	for i, w := range words[1:] {
		q.found[i], q.at[i] = w.Host, w.Device
	}
	var err error
	q.lane, err = proxy.NewLane(engine, framework.NoPeer, words[0])
	return err
}

// word returns memory of the host for a stream to write. It lasts as long as the
// communicator.
func (q *queue) word() (proxy.Word, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	offset := uintptr(wordsFrom + q.given*wordStride)
	if offset+wordStride > controlSpace {
		return proxy.Word{}, fmt.Errorf("%w: %d streams of a communicator: no more are possible", framework.ErrUnavailable, q.given)
	}
	q.given++
	return proxy.Word{
		Host:   (*uint64)(pointer(q.space.hostMem.Addr() + offset)),
		Device: q.space.deviceAddr + offset,
	}, nil
}

// zero clears words of the device, and waits until that is done.
func (q *queue) zero(addrs ...uintptr) bool {
	if q.lane == nil || q.over != nil && q.over() {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookTimeout)
	defer cancel()
	for _, a := range addrs {
		if q.lane.Write(a, 0) != nil {
			return false
		}
	}
	return q.lane.Settle(ctx) == nil
}

// look reads a word, and one of the device: by copies what the host does not reach.
func (q *queue) look(ctx context.Context, a proxy.Word, b uintptr) (x, y uint64, err error) {
	if q.lane == nil {
		return 0, 0, fmt.Errorf("%w: the device has no copy engine", framework.ErrUnsupported)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if a.Host == nil {
		err = q.lane.Copy(q.at[0], a.Device, 8)
		a.Host = q.found[0]
	}
	if err = errors.Join(err, q.lane.Copy(q.at[1], b, 8)); err == nil {
		err = q.lane.Settle(ctx)
	}
	if err != nil {
		return 0, 0, err
	}
	return atomic.LoadUint64(a.Host), atomic.LoadUint64(q.found[1]), nil
}

// store writes a word of the device, and waits until it is there.
func (q *queue) store(ctx context.Context, addr uintptr, value uint64) error {
	if err := q.lane.Write(addr, value); err != nil {
		return err
	}
	return q.lane.Settle(ctx)
}

func (q *queue) close() error {
	if q.lane == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return q.lane.Close(ctx)
}

// Settle waits until streams of the device have no work left, so that what their
// kernels use can be released. It polls the device and does not block in the driver, so
// it ends with ctx. When the communicator has failed, it ends some seconds later at the
// latest: kernels see the failure and leave. On the host there is nothing to wait for.
func (c *Communicator) Settle(ctx context.Context, streams ...device.Stream) error {
	engine, ok := c.dev.(device.Engine)
	if !ok {
		return nil
	}
	for _, s := range streams {
		if err := c.settle(ctx, engine, s); err != nil {
			return err
		}
	}
	return nil
}

func (c *Communicator) settle(ctx context.Context, engine device.Engine, s device.Stream) error {
	start, pace := time.Now(), ring.Begin(nil, false)
	var failed time.Time
	for {
		state, err := engine.Query(s)
		if err != nil || state != device.StreamBusy {
			return err
		}
		now := time.Now()
		if failed.IsZero() && c.aborted() {
			failed = now
		}
		late := ctx.Err()
		if late == nil && !failed.IsZero() && now.Sub(failed) > closeTimeout {
			late = context.DeadlineExceeded
		}
		if late != nil {
			return c.blame("settle", framework.NoPeer, fmt.Errorf("%w: a stream of %v is busy for %v: %w",
				framework.ErrUnavailable, c.dev.Info().Device, now.Sub(start).Round(time.Millisecond), late))
		}
		pace.Rest()
	}
}
