package collectives

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/ring"
)

// waiter is a device whose streams can wait for a word: those of package cuda.
type waiter interface {
	device.Device
	device.Engine
	device.Marker
	WaitValue(s device.Stream, addr uintptr, value uint64) error
}

// gate lets streams of a device and the host work by turns. A stream tells the host that
// it has come to some work, by storing its number into a word; a thread of the host
// performs all work in order, and stores the number of the last that is done into
// another word, for which streams wait.
//
// The thread makes no calls of the driver, so that nothing which waits on a stream can
// hold it up. When the communicator ends it lets all streams go, whatever they wait for:
// what they do then is worth nothing, as with kernels that leave.
type gate struct {
	device waiter
	world  *comm.Communicator
	ready  *uint64 // written by streams
	done   *uint64 // and by the host
	words  shared

	given   uint64 // number of the last work; the caller sees to it that one at a time gives
	awaited uint64 // up to where the stream has waited

	mu      sync.Mutex
	waiting []work
	wake    chan struct{}
	life    context.Context
	end     context.CancelFunc
	ended   chan struct{}
}

// work is what the host is to do when a stream has come to it.
type work struct {
	number uint64
	do     func(ctx context.Context) error
}

const (
	readyAt   = 0
	doneAt    = 128
	gateBytes = 4096

	// released is what a gate that has ended says is done. Streams compare the
	// difference with what they wait for, so that it must not be too far away.
	released = uint64(math.MaxInt64)
)

// openGate makes a gate for streams of a device.
func openGate(d waiter, host device.Device, world *comm.Communicator) (*gate, error) {
	g := &gate{device: d, world: world, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	var err error
	if g.words, err = lend(d, host, gateBytes); err != nil {
		return nil, fmt.Errorf("words for streams: %w", err)
	}
	g.ready, g.done = (*uint64)(at(g.words.host.Addr()+readyAt)), (*uint64)(at(g.words.host.Addr()+doneAt))
	g.life, g.end = context.WithCancel(context.Background())
	go g.run()
	return g, nil
}

// tell has the host do something when the stream has come here, and returns its number.
func (g *gate) tell(s device.Stream, do func(ctx context.Context) error) (uint64, error) {
	if err := g.device.Write(s, g.words.mapped.Addr()+readyAt, g.given+1); err != nil {
		return 0, err
	}
	g.given++
	g.mu.Lock()
	g.waiting = append(g.waiting, work{g.given, do})
	g.mu.Unlock()
	select {
	case g.wake <- struct{}{}:
	default:
	}
	return g.given, nil
}

// await makes the stream wait for some work, and all before it.
func (g *gate) await(s device.Stream, number uint64) error {
	if number <= g.awaited {
		return nil
	}
	if err := g.device.WaitValue(s, g.words.mapped.Addr()+doneAt, number); err != nil {
		return err
	}
	g.awaited = number
	return nil
}

// run is the thread.
func (g *gate) run() {
	defer close(g.ended)
	defer atomic.StoreUint64(g.done, released)
	for {
		w, ok := g.next()
		if !ok {
			return
		}
		if g.reached(w.number) != nil {
			return
		}
		if err := g.perform(w); err != nil {
			g.fail(err)
			return
		}
		atomic.StoreUint64(g.done, w.number)
	}
}

// fail ends the communicator: other ranks wait for what will not come. A wait that has
// ended knows of a channel that does not work any more, and others why.
func (g *gate) fail(err error) {
	if !errors.Is(err, framework.ErrInvalid) {
		select {
		case <-g.world.Done():
		case <-g.life.Done():
		case <-time.After(2 * bindPatience):
		}
	}
	if g.life.Err() == nil {
		g.world.Abort(err)
	}
}

// perform does some work. It waits for other ranks as long as the communicator lives, or
// as long as its waits may take.
func (g *gate) perform(w work) error {
	limit := time.Duration(g.world.ControlWords().Deadline)
	if limit <= 0 {
		return w.do(g.life)
	}
	ctx, cancel := context.WithTimeout(g.life, limit)
	defer cancel()
	return w.do(ctx)
}

// next is the work that is to be done next. The communicator's end is everybody's.
func (g *gate) next() (work, bool) {
	for {
		g.mu.Lock()
		if len(g.waiting) > 0 {
			w := g.waiting[0]
			g.waiting[0] = work{}
			g.waiting = g.waiting[1:]
			g.mu.Unlock()
			return w, true
		}
		g.mu.Unlock()
		select {
		case <-g.wake:
		case <-g.world.Done():
			return work{}, false
		case <-g.life.Done():
			return work{}, false
		}
	}
}

// reached waits until the stream has come to some work: as long as that takes, since what
// stands before it is the program's.
func (g *gate) reached(number uint64) error {
	var pace ring.Pace
	for n := 0; atomic.LoadUint64(g.ready) < number; n++ {
		if n%64 != 63 {
			continue
		}
		if err := g.world.Err(); err != nil {
			return err
		}
		if err := g.life.Err(); err != nil {
			return err
		}
		if n < 64 {
			pace = ring.Begin(nil, false)
		}
		pace.Rest()
	}
	return nil
}

// close ends the thread. Streams that still wait go on.
func (g *gate) close() error {
	if g == nil {
		return nil
	}
	g.end()
	<-g.ended
	return g.words.close()
}

// shared is memory of the host that a device maps.
type shared struct {
	host   device.Memory
	mapped device.Memory
}

// lend allocates memory of the host and maps it on a device.
func lend(d, host device.Device, bytes uint64) (shared, error) {
	m, err := host.Alloc(bytes)
	if err != nil {
		return shared{}, err
	}
	s, err := expose(d, m)
	if err != nil {
		m.Close()
	}
	return s, err
}

// expose maps memory of the host on a device.
func expose(d device.Device, m device.Memory) (shared, error) {
	shares, err := m.Export()
	if err != nil {
		return shared{}, err
	}
	mapping := framework.Mapping{Role: framework.RolePeer, Peer: framework.NoPeer, Shares: shares, Bytes: m.Bytes()}
	defer framework.Attachment{Mappings: []framework.Mapping{mapping}}.Close()
	mapped, err := d.Map(mapping)
	if err != nil {
		return shared{}, err
	}
	return shared{m, mapped}, nil
}

func (s shared) close() error {
	var first error
	for _, m := range []device.Memory{s.mapped, s.host} {
		if m == nil {
			continue
		}
		if err := m.Close(); err != nil && first == nil {
			first = err
		}
	}
	return first
}
