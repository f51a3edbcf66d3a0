// Package staged performs collectives of ranks on GPUs that do not all share memory by staging: what has
// to cross a network goes through memory of the host that the GPU maps, and is sent
// by the host, over lanes of a second communicator of the same ranks whose device is the host. So it takes whatever
// transport the host can use, and the plugins need to know nothing of GPUs.
//
// A call enqueues all of its work on the caller's stream and returns: kernels of the
// ranks of a host, copies to and from the host, and in between the two sides of a stream gate.
package staged

import (
	"context"
	"errors"
	"fmt"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/crosshost"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/enqueue"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lanes"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lifetime"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/streamgate"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// New makes the engine. It opens nothing. level is nil where there are no two levels; each rank may have a host of
// its own.
func New(q *enqueue.Queue, level *crosshost.Level, flat Flat) *Engine {
	e := &Engine{queue: q, level: level, flat: flat, closed: make(chan struct{})}
	if level != nil && level.Most > 1 {
		level.Table(func(row engine.Row, fits func(*engine.Request) bool) {
			run := (*call).large
			if row.Algorithm == crosshost.NameSmall {
				run = (*call).small
			}
			e.offer(row, fits, run)
		})
	}
	return e
}

// OfferFlat offers the calls without levels.
func (e *Engine) OfferFlat(kinds []collective.Kind) {
	for _, k := range kinds {
		e.offer(engine.Row{Collective: k, Algorithm: lanes.Name}, nil, (*call).flat)
	}
}

func (e *Engine) offer(row engine.Row, fits func(*engine.Request) bool, f func(*call)) {
	s := e.queue.Session
	e.Add(e, row, fits, func(c *engine.Call) error {
		return s.Do(func() error {
			t := e.call(e.queue.Begin(c, row.Algorithm))
			return t.perform(func() {
				s.Counted()
				if e.Preamble != nil {
					e.Preamble(t.Enqueued)
				}
				f(t)
			})
		})
	})
}

// Open makes the second communicator and the memory. It is collective.
func (e *Engine) Open(ctx context.Context) (err error) {
	q := e.queue
	if e.hostTwin, err = q.World.OnDevice(ctx, q.HostDevice); err != nil {
		return err
	}
	q.Session.Comm = e.hostTwin
	go lifetime.Bind(q.World, e.hostTwin, e.closed, func(err error) error { return err })
	if e.stage, err = streamgate.Map(q.Device, q.HostDevice, uint64(len(e.regions))*crosshost.RegionBytes); err != nil {
		return fmt.Errorf("memory between device and host: %w", err)
	}
	all := device.Bytes(e.stage.Host)
	for i := range e.regions {
		e.regions[i] = region{bytes: all[i*crosshost.RegionBytes:][:crosshost.RegionBytes], addr: e.stage.Device.Addr() + uintptr(i*crosshost.RegionBytes)}
	}
	e.streamGate, err = streamgate.Open(q.Device, q.HostDevice, q.World)
	return err
}

// Close is for when the streams with calls on them have ended. It comes before the
// lanes, which the thread of the gate works with.
func (e *Engine) Close() error {
	all := []error{e.streamGate.Close(), e.stage.Close()}
	for _, r := range e.rooms {
		all = append(all, r.Close())
	}
	return errors.Join(all...)
}

// CloseHostTwin is for when nothing uses the second communicator any more.
func (e *Engine) CloseHostTwin() error {
	close(e.closed)
	if e.hostTwin == nil {
		return nil
	}
	return e.hostTwin.Close()
}

// small enqueues a call of little data.
func (t *call) small() {
	switch t.Call.Collective {
	case collective.AllReduce:
		t.allReduceSmall()
	case collective.AllGather:
		t.allGatherSmall()
	case collective.ReduceScatter:
		t.reduceScatterSmall()
	case collective.Broadcast:
		t.broadcastSmall()
	case collective.Reduce:
		t.reduceSmall()
	case collective.AllToAll:
		t.allToAllSmall()
	default:
		t.barrier()
	}
}

// large enqueues one of much.
func (t *call) large() {
	switch t.Call.Collective {
	case collective.AllReduce:
		t.allReduceLarge()
	case collective.AllGather:
		t.allGatherLarge()
	case collective.ReduceScatter:
		t.reduceScatterLarge()
	case collective.Broadcast:
		t.broadcastLarge()
	case collective.Reduce:
		t.reduceLarge()
	default:
		t.allToAllLarge()
	}
}
