package staged

import (
	"context"

	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/crosshost"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/enqueue"
	"github.com/mscclpp-go/mscclpp/framework/collective"
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
	number, t.Err = t.e.gate.Enqueue(t.Stream, func(ctx context.Context) error {
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
		t.Err = t.e.gate.Await(t.Stream, number)
	}
}
