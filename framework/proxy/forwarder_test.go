package proxy

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/devicetest"
)

func reaches(t *testing.T, what string, word *uint64, want uint64) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); atomic.LoadUint64(word) != want; time.Sleep(20 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: %d, expected %d", what, atomic.LoadUint64(word), want)
		}
	}
}

// viewed is memory of a device into which the host stores.
type viewed struct {
	base uintptr
	at   [2]uint64
	err  error
}

func (v *viewed) Store(addr uintptr, value uint64) error {
	atomic.StoreUint64(&v.at[(addr-v.base)/64], value)
	return v.err
}
func (v *viewed) Settle() error { return nil }
func (v *viewed) Close() error  { return nil }

func TestForwarder(t *testing.T) {
	dev, err := devicetest.Open(0)
	must(t, err)
	defer dev.Close()
	m := alloc(t, dev, 128)
	onHost, view := new([2]uint64), &viewed{base: m.Addr()}
	for name, c := range map[string]struct {
		view     device.HostView
		lane     *Lane
		to, next Word
		a, b     *uint64
	}{
		"device": {nil, newLane(t, dev, framework.NoPeer), Word{Device: m.Addr()}, Word{Device: m.Addr() + 64}, dev.Word(m.Addr()), dev.Word(m.Addr() + 64)},
		"view":   {view, nil, Word{Device: m.Addr()}, Word{Device: m.Addr() + 64}, &view.at[0], &view.at[1]},
		"host":   {nil, nil, Word{Host: &onHost[0]}, Word{Host: &onHost[1]}, &onHost[0], &onHost[1]},
	} {
		t.Run(name, func(t *testing.T) {
			f := NewForwarder(c.view, c.lane, nil, Options{})
			inbox := new([2]uint64)
			inbox[0] = 1000 // of the process that had the number before
			atomic.StoreUint64(c.a, 70)
			first, err := f.Watch(&inbox[0], c.to, 70)
			must(t, err)
			_, err = f.Watch(&inbox[1], c.next, 0)
			must(t, err)
			for range 500 {
				atomic.AddUint64(&inbox[0], 1)
				atomic.AddUint64(&inbox[1], 2)
			}
			reaches(t, "a counter that began at 70", c.a, 570)
			reaches(t, "a counter that began at 0", c.b, 1000)
			f.Unwatch(first)
			atomic.AddUint64(&inbox[0], 1)
			atomic.AddUint64(&inbox[1], 1)
			reaches(t, "the other counter", c.b, 1001)
			if n := atomic.LoadUint64(c.a); n != 570 {
				t.Errorf("a counter that is not watched moved to %d", n)
			}
			if _, err := f.Watch(&inbox[0], c.to, 570); err != nil {
				t.Fatal(err)
			}
			atomic.AddUint64(&inbox[0], 3)
			reaches(t, "a counter that is watched again", c.a, 573)
			f.Stop()
			f.Stop()
			if _, err := f.Watch(&inbox[0], c.to, 0); !errors.Is(err, framework.ErrClosed) {
				t.Errorf("watch after Stop: %v", err)
			}
			if err := f.Err(); err != nil {
				t.Error(err)
			}
			if c.lane != nil {
				must(t, c.lane.Close(bound(t)))
			}
		})
	}
}

// A count is passed on only when what it stands for has been made visible, and a
// device that cannot do that ends the forwarder.
func TestForwarderFlushesFirst(t *testing.T) {
	inbox, counter := new(uint64), new(uint64)
	var flushed atomic.Uint64 // the highest count that was posted before a flush
	fail := make(chan error, 1)
	f := NewForwarder(nil, nil, func() error {
		select {
		case err := <-fail:
			return err
		default:
			flushed.Store(atomic.LoadUint64(inbox))
			return nil
		}
	}, Options{})
	_, err := f.Watch(inbox, Word{Host: counter}, 0)
	must(t, err)
	for n := uint64(1); n <= 200; n++ {
		atomic.AddUint64(inbox, 1)
		for end := time.Now().Add(20 * time.Second); ; {
			seen := atomic.LoadUint64(counter)
			if most := flushed.Load(); seen > most {
				t.Fatalf("the counter is %d, and %d was flushed", seen, most)
			}
			if seen == n {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("the counter is %d, expected %d", seen, n)
			}
		}
	}
	fail <- fmt.Errorf("%w: no more", framework.ErrUnavailable)
	atomic.AddUint64(inbox, 1)
	<-f.Done()
	if err := f.Err(); !errors.Is(err, framework.ErrUnavailable) {
		t.Errorf("%v: expected what the flush said", err)
	}
	if n := atomic.LoadUint64(counter); n != 200 {
		t.Errorf("the counter is %d after a flush that failed, expected 200", n)
	}
	f.Stop()
}

func TestForwarderWithoutARoute(t *testing.T) {
	f := NewForwarder(nil, nil, nil, Options{})
	if _, err := f.Watch(new(uint64), Word{Device: 4096}, 0); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("a word of a device, without a lane: %v", err)
	}
	f.Stop()
}

func TestForwarderWhoseStoresFail(t *testing.T) {
	refused := errors.New("the mapping is gone")
	f := NewForwarder(&viewed{err: refused}, nil, nil, Options{})
	inbox := new(uint64)
	_, err := f.Watch(inbox, Word{Device: 64}, 0)
	must(t, err)
	atomic.AddUint64(inbox, 1)
	<-f.Done()
	if err := f.Err(); !errors.Is(err, refused) {
		t.Errorf("%v: expected what the store said", err)
	}
}

// Between uses the thread sleeps, and wakes for the next.
func TestForwarderWithoutWork(t *testing.T) {
	f := NewForwarder(nil, nil, nil, Options{Spin: time.Nanosecond, Yield: time.Nanosecond})
	inbox, counter := new(uint64), new(uint64)
	for n := range uint64(20) {
		w, err := f.Watch(inbox, Word{Host: counter}, n)
		must(t, err)
		atomic.AddUint64(inbox, 1)
		reaches(t, "the counter", counter, n+1)
		f.Unwatch(w)
	}
	f.Stop()
	NewForwarder(nil, nil, nil, Options{}).Stop() // never started
}

func TestForwarderEndsWithTheDevice(t *testing.T) {
	dev, err := devicetest.Open(0)
	must(t, err)
	defer dev.Close()
	m := alloc(t, dev, 8)
	l := newLane(t, dev, framework.NoPeer)
	f := NewForwarder(nil, l, nil, Options{})
	inbox := new(uint64)
	_, err = f.Watch(inbox, Word{Device: m.Addr()}, 0)
	must(t, err)
	dev.Fail(errors.New("an uncorrectable error"))
	atomic.AddUint64(inbox, 1)
	<-f.Done()
	if err := f.Err(); !errors.Is(err, framework.ErrUnavailable) {
		t.Errorf("%v: expected what the device said", err)
	}
	if _, err := f.Watch(inbox, Word{Device: m.Addr()}, 0); !errors.Is(err, framework.ErrUnavailable) {
		t.Errorf("watch afterwards: %v", err)
	}
	f.Stop()
}
