// Package streamgate lets the streams of a device and the host work by turns, over words of host memory that
// the device maps.
package streamgate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lifetime"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/ring"
)

// Gate lets streams of a device and the host work by turns. A stream says that
// it has come to some work, by storing its number into a word; a thread of the host
// performs all work in order, and stores the number of the last that is done into
// another word, for which streams wait.
//
// The thread makes no calls of the driver, so that nothing which waits on a stream can
// hold it up. When the communicator ends it lets all streams go, whatever they wait for:
// what they do then is worth nothing, as with kernels that leave.
type Gate struct {
	device Device
	world  *comm.Communicator
	ready  *uint64 // written by streams
	done   *uint64 // and by the host
	words  Mapped

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

// Open makes a gate for streams of a device.
func Open(d Device, host device.Device, world *comm.Communicator) (*Gate, error) {
	g := &Gate{device: d, world: world, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	var err error
	if g.words, err = Map(d, host, gateBytes); err != nil {
		return nil, fmt.Errorf("words for streams: %w", err)
	}
	words := device.Bytes(g.words.Host)
	g.ready, g.done = (*uint64)(unsafe.Pointer(&words[readyAt])), (*uint64)(unsafe.Pointer(&words[doneAt]))
	g.life, g.end = context.WithCancel(context.Background())
	go g.run()
	return g, nil
}

// Enqueue has the host do something when the stream has come here, and returns its number.
func (g *Gate) Enqueue(s device.Stream, do func(ctx context.Context) error) (uint64, error) {
	if err := g.device.Write(s, g.words.Device.Addr()+readyAt, g.given+1); err != nil {
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

// Await makes the stream wait for some work, and all before it.
func (g *Gate) Await(s device.Stream, number uint64) error {
	if number <= g.awaited {
		return nil
	}
	if err := g.device.WaitValue(s, g.words.Device.Addr()+doneAt, number); err != nil {
		return err
	}
	g.awaited = number
	return nil
}

// run is the thread.
func (g *Gate) run() {
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
func (g *Gate) fail(err error) {
	if !errors.Is(err, framework.ErrInvalid) {
		select {
		case <-g.world.Done():
		case <-g.life.Done():
		case <-time.After(2 * lifetime.Patience):
		}
	}
	if g.life.Err() == nil {
		g.world.Abort(err)
	}
}

// perform does some work. It waits for other ranks as long as the communicator lives, or
// as long as its waits may take.
func (g *Gate) perform(w work) error {
	limit := time.Duration(g.world.ControlWords().Deadline)
	if limit <= 0 {
		return w.do(g.life)
	}
	ctx, cancel := context.WithTimeout(g.life, limit)
	defer cancel()
	return w.do(ctx)
}

// next is the work that is to be done next. The communicator's end is that of all ranks.
func (g *Gate) next() (work, bool) {
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
func (g *Gate) reached(number uint64) error {
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

// Close ends the thread. Streams that still wait go on.
func (g *Gate) Close() error {
	if g == nil {
		return nil
	}
	g.end()
	<-g.ended
	return g.words.Close()
}
