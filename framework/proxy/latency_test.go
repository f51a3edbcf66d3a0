package proxy

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// instant is an engine that takes no time: what remains is the copier's own.
type instant struct{ copies atomic.Uint64 }

func (*instant) NewStream() (device.Stream, error) { return 1, nil }
func (*instant) CloseStream(device.Stream) error   { return nil }
func (*instant) Sync(device.Stream) error          { return nil }
func (e *instant) Copy(device.Stream, uintptr, uintptr, uint64) error {
	e.copies.Add(1)
	return nil
}
func (*instant) Write(_ device.Stream, addr uintptr, value uint64) error {
	atomic.StoreUint64((*uint64)(hostPointer(addr)), value)
	return nil
}
func (*instant) Query(device.Stream) (device.StreamState, error) { return device.StreamIdle, nil }

// From the push of a trigger with signal and flush to the end of the flush: a put, for
// which the engine is called, and a signal that the host stores.
func BenchmarkCopier(b *testing.B) {
	b.Run("put", func(b *testing.B) { benchCopier(b, 64) })
	b.Run("signal", func(b *testing.B) { benchCopier(b, 0) })
}

func benchCopier(b *testing.B, bytes uint64) {
	e := new(instant)
	m := newRing(b, 1) // memory that does not move
	words := m.FlushWord(0)
	counter := (*uint64)(hostPointer(words + 8))
	l, err := NewLane(e, 1, Word{Host: (*uint64)(hostPointer(words)), Device: words})
	must(b, err)
	r := newRing(b, 512)
	base, _ := r.Base()
	c := NewCopier(r, uintptr(base), Options{})
	must(b, c.BindSource(511, 0, room))
	must(b, c.BindTarget(0, 0, room, l))
	must(b, c.BindSemaphore(0, l.Counter(Word{Host: counter, Device: words + 8})))
	must(b, c.Start())
	defer func() { must(b, c.Stop(context.Background())) }()
	t := trigger(kernel.TriggerData|kernel.TriggerSignal|kernel.TriggerFlush, 0, 0, 0, bytes)
	b.ResetTimer()
	for range b.N {
		pos, err := r.Push(t)
		must(b, err)
		for !r.Flushed(0, pos) {
		}
	}
	b.StopTimer()
	n, copies := uint64(b.N), uint64(0)
	if bytes > 0 {
		copies = n
	}
	if got := atomic.LoadUint64(counter); got != n || e.copies.Load() != copies {
		b.Errorf("%d signals and %d copies for %d triggers", got, e.copies.Load(), b.N)
	}
}

var _ device.Engine = (*instant)(nil)
