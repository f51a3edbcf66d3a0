package staged

import (
	"context"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/crosshost"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/enqueue"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/offers"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/streamgate"
	"github.com/mscclpp-go/mscclpp/framework/comm"
)

// call is one call that is being enqueued.
type call struct {
	*enqueue.Enqueued
	e *Engine
	h *crosshost.Level
}

func (e *Engine) call(t *enqueue.Enqueued) *call { return &call{t, e, e.level} }

func (t *call) ranks() int { return t.Session.Comm.Size() }

func (t *call) rank() int { return t.Session.Comm.Rank() }

// perform enqueues what f says; within Session.Do.
func (t *call) perform(f func()) error {
	if err := t.World.Check(); err != nil {
		return err
	}
	if err := t.Eager(); err != nil {
		return err
	}
	return t.Perform(f)
}

func (t *call) reduction() crosshost.Reduction {
	return crosshost.Reduction{Type: t.Call.Type, Op: t.Call.Op}
}

// region is room on the host for a piece. The stream waits until the host has done with
// what was in it before.
func (t *call) region(purpose int) *region {
	r := &t.e.regions[purpose*regions+t.e.turns[purpose]%regions]
	t.e.turns[purpose]++
	t.await(r.last)
	return r
}

// onHost has the host do something with regions when the stream has come here.
func (t *call) onHost(do func(ctx context.Context) error, used ...*region) (number uint64) {
	if t.Err != nil {
		return 0
	}
	sign, l := t.Sign, t.Session.Lanes
	number, t.Err = t.e.streamGate.Enqueue(t.Stream, func(ctx context.Context) error {
		l.Call = sign
		return do(ctx)
	})
	for _, r := range used {
		r.last = number
	}
	return number
}

// await has the stream wait for some work of the host, and all before it.
func (t *call) await(number uint64) {
	if t.Err == nil {
		t.Err = t.e.streamGate.Await(t.Stream, number)
	}
}

// Flat performs calls whose buffers are on the host.
type Flat interface {
	Perform(ctx context.Context, c *engine.Call) error
}

// Engine performs them.
type Engine struct {
	offers.List
	queue *enqueue.Queue
	level *crosshost.Level // nil where there are no two levels
	flat  Flat

	// Preamble, if it is set, has counterparts compare on the device what a call is, before the host takes
	// part in it: they may be in a call in which it does not.
	Preamble func(t *enqueue.Enqueued)

	hostTwin   *comm.Communicator // of the same ranks, whose device is the host
	streamGate *streamgate.Gate
	stage      streamgate.Mapped
	regions    [2 * regions]region
	turns      [2]int
	rooms      []*room // for groups of messages
	closed     chan struct{}
}

// The memory of the host that everything passes through: regions for what is sent, and
// for results, each used by turns. A call has up to three results under way.
const (
	regions = 3

	forSending = 0
	forResults = 1
)

// region is a part of that memory.
type region struct {
	bytes []byte  // as the host sees it
	addr  uintptr // as the device does
	last  uint64  // work that reads or writes it
}

// room is memory of the host for a whole group of messages. That of earlier calls stays
// until the end: streams may still use it.
type room struct {
	streamgate.Mapped
	region
}
