package streamgate

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
)

// prompt is a device whose one stream is the caller: what is enqueued is done at once.
type prompt struct{ *host.Device }

func (prompt) NewStream() (device.Stream, error)                  { return 1, nil }
func (prompt) CloseStream(device.Stream) error                    { return nil }
func (prompt) Copy(device.Stream, uintptr, uintptr, uint64) error { return errors.New("not here") }
func (prompt) Query(device.Stream) (device.StreamState, error)    { return device.StreamIdle, nil }
func (prompt) Sync(device.Stream) error                           { return nil }
func (prompt) NewMark() (device.Mark, error)                      { return nil, errors.New("not here") }
func (prompt) Write(_ device.Stream, addr uintptr, value uint64) error {
	atomic.StoreUint64(word(addr), value)
	return nil
}

// word is one in mapped memory, which Go does not manage.
func word(addr uintptr) *uint64 { return *(**uint64)(unsafe.Pointer(&addr)) }

// WaitValue compares as streams do: by the difference.
func (prompt) WaitValue(_ device.Stream, addr uintptr, value uint64) error {
	for end := time.Now().Add(10 * time.Second); int64(atomic.LoadUint64(word(addr))-value) < 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return errors.New("a stream waits for ever")
		}
	}
	return nil
}

// gated opens a gate in a job of one rank, with a limit for waits.
func gated(t *testing.T, limit time.Duration) (*Gate, *comm.Communicator) {
	t.Helper()
	h, err := host.Open()
	if err != nil {
		t.Fatal(err)
	}
	boot := bootstrap.InProcess(1)[0]
	world, err := comm.New(t.Context(), boot, comm.Options{Device: h, Deadline: uint64(limit)})
	if err != nil {
		t.Fatal(err)
	}
	g, err := Open(prompt{h}, h, world)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(world.Close(), boot.Close(), h.Close()); err != nil {
			t.Error(err)
		}
	})
	return g, world
}

func (g *Gate) enqueued(t *testing.T, do func(ctx context.Context) error) uint64 {
	t.Helper()
	n, err := g.Enqueue(1, do)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Work is done in order, each when the stream has come to it, and waiting for the last is
// waiting for all.
func TestGateKeepsOrder(t *testing.T) {
	g, _ := gated(t, 0)
	var mu sync.Mutex // for the race detector, which does not see what streams wait for
	var done []int
	last := uint64(0)
	for i := range 100 {
		last = g.enqueued(t, func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			done = append(done, i)
			return nil
		})
	}
	if err := errors.Join(g.Await(1, last), g.Await(1, 1)); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	if len(done) != 100 || !slices.IsSorted(done) {
		t.Errorf("done: %v", done)
	}
	mu.Unlock()
	// A stream that has not come here holds the work up.
	g.mu.Lock()
	g.waiting = append(g.waiting, work{last + 1, func(context.Context) error { done = nil; return nil }})
	g.mu.Unlock()
	if err := g.Close(); err != nil || len(done) != 100 {
		t.Errorf("%v, %d done: expected the work of a stream that never came not to be", err, len(done))
	}
}

// Work that fails ends the communicator, and lets streams go that wait for it, or for
// what is behind it.
func TestGateOpensForGood(t *testing.T) {
	g, world := gated(t, 0)
	g.enqueued(t, func(context.Context) error { return errors.New("torn") })
	behind := g.enqueued(t, func(context.Context) error {
		t.Error("the work behind a failure was done")
		return nil
	})
	if err := g.Await(1, behind); err != nil {
		t.Error(err)
	}
	if err := world.Err(); err == nil || !strings.Contains(err.Error(), "torn") {
		t.Errorf("%v, expected what has failed", err)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
}

// The end of the communicator, of the gate, and of the time that a wait may take end the
// work that is under way.
func TestGateEndsWork(t *testing.T) {
	for name, end := range map[string]func(g *Gate, world *comm.Communicator){
		"abort":    func(_ *Gate, world *comm.Communicator) { world.Abort(errors.New("enough")) },
		"close":    func(g *Gate, _ *comm.Communicator) { g.end() },
		"deadline": nil,
	} {
		t.Run(name, func(t *testing.T) {
			limit := time.Duration(0)
			if end == nil {
				limit = 20 * time.Millisecond
			}
			g, world := gated(t, limit)
			begun := make(chan struct{})
			n := g.enqueued(t, func(ctx context.Context) error {
				close(begun)
				select {
				case <-ctx.Done():
				case <-world.Done():
				}
				return errors.New("was waiting")
			})
			<-begun
			if end != nil {
				end(g, world)
			}
			if err := g.Await(1, n); err != nil {
				t.Error(err)
			}
			<-g.ended
			if failed := world.Err() != nil; failed != (name != "close") {
				t.Errorf("the communicator: %v", world.Err())
			}
			if err := g.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
