// Package direct performs collectives over hosts without the host: kernels drive port channels, and adapters of the
// network reach memory of the GPU.
package direct

import (
	"slices"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/crosshost"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/enqueue"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// New makes the engine. It opens nothing. blocks is the most of one launch.
func New(q *enqueue.Queue, kernels map[string]*engine.Kernel, blocks uint32) *Engine {
	d := &Engine{queue: q, exchange: kernels["exchange"], sum: kernels["sum"], blocks: min(sumBlocks, blocks)}
	d.sendrecv = &sendrecv{direct: d, kernel: kernels["sendrecv"]}
	for _, k := range []collective.Kind{
		collective.AllReduce, collective.ReduceScatter, collective.AllGather, collective.Barrier, collective.Broadcast, collective.Reduce, collective.AllToAll,
	} {
		fits := func(r *engine.Request) bool { return d.carries.Load() && (!k.Reduces() || d.canReduce(r.Type, r.Op)) }
		d.Add(d, engine.Row{Collective: k, Algorithm: crosshost.NameDirect}, fits, d.perform)
	}
	return d
}

// perform enqueues one call of all ranks in which the host takes no part: on a
// stream that is captured as well.
func (d *Engine) perform(c *engine.Call) error {
	s := d.queue.Session
	return s.Do(func() error {
		t := &call{d.queue.Begin(c, crosshost.NameDirect), d}
		if err := t.Capture(); err != nil {
			return err
		}
		if err := d.prepare(c.Collective, c.Type); err != nil {
			return err
		}
		return t.Perform(func() {
			s.Counted()
			t.run()
		})
	})
}

// Preamble has the counterparts compare what a call is, before one in which the host
// takes part: they may be in a call in which it does not, and the two would wait for
// each other for ever.
func (d *Engine) Preamble(t *enqueue.Enqueued) {
	if d.carries.Load() {
		(&call{t, d}).exchange(t.Stream, traffic{})
	}
}

// Prepare loads what kernels between hosts need for calls of a collective, as far as there
// are any; a job's first call finds that out.
func (d *Engine) Prepare(k collective.Kind, t kernel.DataType, _ []*engine.Algorithm) error {
	return d.queue.Session.Do(func() error {
		if !d.carries.Load() || k.Messages() && !d.Delivers() || k.Reduces() && !d.canReduce(t, kernel.Sum) {
			return nil
		}
		return d.prepare(k, t)
	})
}

// Delivers reports whether messages between hosts go from memory of a GPU to memory of a GPU.
func (d *Engine) Delivers() bool { return d.delivers.Load() }

// BlocksInside is the most blocks of kernels inside a host, of so many for other calls, on a device with so many
// multiprocessors for each rank: they leave room for the kernels between hosts.
func BlocksInside(most uint32, multiprocessors int) int {
	if multiprocessors <= 0 {
		return 0
	}
	return int(min(most, uint32(max(1, multiprocessors-exchangeBlocks))))
}

// canReduce reports whether there are kernels for a reduction.
func (d *Engine) canReduce(t kernel.DataType, op kernel.Op) bool {
	return (d.queue.Most == 1 || crosshost.Partial(t, op)) && slices.Contains(d.sum.Types, t.String())
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
