package direct

import (
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/enqueue"
	"github.com/mscclpp-go/mscclpp/framework/collective"
)

// call is one call that is being enqueued.
type call struct {
	*enqueue.Enqueued
	d *Engine
}

// run enqueues it.
func (t *call) run() {
	switch t.Call.Collective {
	case collective.AllReduce:
		t.allReduce()
	case collective.AllGather:
		t.allGather()
	case collective.ReduceScatter:
		t.reduceScatter()
	case collective.Broadcast:
		t.broadcast()
	case collective.Reduce:
		t.reduce()
	case collective.AllToAll:
		t.allToAll()
	default:
		t.barrier()
	}
}
