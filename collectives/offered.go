package collectives

import (
	"sync"
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/internal/fastpath"
)

// offers are the algorithms of each collective.
type offers [collectives][]*engine.Algorithm

// choice is what algorithms are chosen from, and what was chosen. mu guards it, but for last, which only the call
// that is in progress uses, and for what is atomic.
type choice struct {
	ranks  int
	device string

	mu         sync.Mutex
	selector   Selector
	tables     choose.Tables
	basis      string                 // the origin of the built-in table, in words; or ""
	offers     atomic.Pointer[offers] // replaced as a whole, so that threads of engines can read it
	generation atomic.Uint64          // counts changes of all that: what was chosen before a change counts no more
	planned    *fastpath.Table        // calls that need no choice; may be nil
	last       choose.Answers
}

// of lists the algorithms of a collective.
func (x *choice) of(k Collective) []*engine.Algorithm {
	if all := x.offers.Load(); all != nil {
		return all[k]
	}
	return nil
}

// refresh asks engines for what they offer now.
func (x *choice) refresh(engines []engine.Engine) {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := &offers{}
	x.tables.Builtin, x.tables.Last, x.tables.Unplaced, x.basis = nil, nil, nil, ""
	for _, e := range engines {
		o := e.Offers()
		for _, a := range o.Algorithms {
			all[a.Collective] = append(all[a.Collective], a)
		}
		x.tables.Builtin = append(x.tables.Builtin, o.Rows...)
		x.tables.Last = append(x.tables.Last, o.Last...)
		x.tables.Unplaced = append(x.tables.Unplaced, o.Unplaced...)
		if o.Basis != "" {
			x.basis = o.Basis
		}
	}
	for k := AllToAllV; k < SendRecv; k++ {
		all[k] = all[SendRecv]
	}
	x.offers.Store(all)
	x.changed()
}

// changed has each call be chosen for again, also those that C would repeat.
func (x *choice) changed() {
	x.generation.Add(1)
	x.planned.Invalidate()
}

// all lists everything that is offered.
func (x *choice) all() (list []*engine.Algorithm) {
	for k := AllReduce; k < collectives; k++ {
		list = append(list, x.of(k)...)
	}
	return list
}

// name finds the name of an algorithm by its number. Any goroutine may ask.
func (x *choice) name(k Collective, id uint32) string {
	if k.Valid() {
		for _, a := range x.of(k) {
			if a.ID == id {
				return a.Name
			}
		}
	}
	return ""
}

// start chooses the algorithm of a call, and makes it ready. The program's selector is asked once, whatever it answers. A call like the one before it
// needs no lock: as long as the generation is the same, the tables would say the same, and no selector has been set since.
func (x *choice) start(call *engine.Call, name string) error {
	if x.last.Repeats(call, name, x.generation.Load()) {
		if again, err := ready(call); err != nil || !again {
			return err
		}
		x.changed()
	}
	x.mu.Lock()
	by := x.named(&call.Request, name)
	x.mu.Unlock()
	call.Named = by != ""
	for {
		if err := x.choose(call, name, by); err != nil {
			return err
		}
		if again, err := ready(call); err != nil || !again {
			return err
		}
		x.changed()
	}
}

func ready(call *engine.Call) (again bool, err error) {
	if call.Algorithm.Ready == nil {
		return false, nil
	}
	return call.Algorithm.Ready(call)
}

// chosen lists the algorithms that calls of a collective choose by the tables.
func (x *choice) chosen(k Collective, t kernel.DataType) []*engine.Algorithm {
	if k.Messages() {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return choose.All(&x.tables, x.of(k), k, t, x.ranks, x.device)
}

// choose finds the algorithm for a call, and how it is launched, by the name that the caller gave or, without one, by that of the selector.
func (x *choice) choose(call *engine.Call, name, by string) (err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if call.Algorithm, call.Launch, err = x.find(&call.Query, by); err != nil {
		return err
	}
	if call.Repeats = name == "" && x.selector == nil; call.Repeats || name != "" {
		x.last.Keep(call, name, x.generation.Load())
	}
	return nil
}

// find looks for the algorithm.
func (x *choice) find(q *engine.Query, name string) (*engine.Algorithm, device.Launch, error) {
	a, row, err := choose.Find(&x.tables, x.of(q.Collective), q, name)
	if err != nil {
		return nil, device.Launch{}, err
	}
	var l device.Launch
	if a.Shape != nil {
		l = a.Shape(q, row)
	}
	return a, l, nil
}

// named is the name that a call gives to its algorithm, or the selector; or "".
func (x *choice) named(r *Request, name string) string {
	if name == "" && x.selector != nil {
		return x.selector(r)
	}
	return name
}

// messagesBy is the algorithm of messages with a name; "": whatever is best.
func (x *choice) messagesBy(name string) (*engine.Algorithm, error) {
	list := x.of(SendRecv)
	if name == "" {
		return nil, nil
	}
	if a := engine.Find(list, name); a != nil {
		return a, nil
	}
	return nil, choose.NoSuch(list, nil, SendRecv, name)
}

// noKernel says why no transport has kernels of a kind, and what to do.
func noKernel(c *comm.Communicator, what, kind string) error {
	return c.NoKernel(what, kernelargs.Layout(), func(k framework.KernelInfo) bool { return k.Collective == kind })
}
