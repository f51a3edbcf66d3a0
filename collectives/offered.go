package collectives

import (
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// choice is what algorithms are chosen from, and what was chosen.
type choice struct {
	selector Selector
	tables   choose.Tables
	basis    string // the origin of the built-in table, in words; or ""
	offers   [collectives][]*engine.Algorithm
	names    atomic.Pointer[map[numbered]string] // of what is offered; watchers of engines ask while calls change it

	// The last answer of the tables. Programs repeat themselves: one entry a collective is enough.
	last [collectives]struct {
		query  engine.Query
		chosen *engine.Algorithm
		launch device.Launch
	}
}

// numbered is what signatures say of an algorithm.
type numbered struct {
	of Collective
	id uint32
}

// refresh asks engines for what they offer now.
func (x *choice) refresh(engines []engine.Engine) {
	clear(x.offers[:])
	clear(x.last[:])
	x.tables.Builtin, x.tables.Last, x.basis = nil, nil, ""
	for _, e := range engines {
		o := e.Offers()
		for _, a := range o.Algorithms {
			x.offers[a.Collective] = append(x.offers[a.Collective], a)
		}
		x.tables.Builtin = append(x.tables.Builtin, o.Rows...)
		x.tables.Last = append(x.tables.Last, o.Last...)
		if o.Basis != "" {
			x.basis = o.Basis
		}
	}
	for k := AllToAllV; k < SendRecv; k++ {
		x.offers[k] = x.offers[SendRecv]
	}
	names := map[numbered]string{}
	for k, list := range x.offers {
		for _, a := range list {
			names[numbered{Collective(k), a.ID}] = a.Name
		}
	}
	x.names.Store(&names)
}

// all lists everything that is offered.
func (x *choice) all() (list []*engine.Algorithm) {
	for k := AllReduce; k < collectives; k++ {
		list = append(list, x.offers[k]...)
	}
	return list
}

// name finds the name of an algorithm by its number. Any goroutine may ask.
func (x *choice) name(k Collective, id uint32) string {
	if names := x.names.Load(); names != nil {
		return (*names)[numbered{k, id}]
	}
	return ""
}

// choose finds the algorithm for a call, and how it is launched. The name is that of the caller, or of the selector.
func (x *choice) choose(q *engine.Query, name string) (*engine.Algorithm, device.Launch, error) {
	last := &x.last[q.Collective]
	if name == "" && last.chosen != nil && last.query == *q {
		return last.chosen, last.launch, nil
	}
	a, row, err := choose.Find(&x.tables, x.offers[q.Collective], q, name)
	if err != nil {
		return nil, device.Launch{}, err
	}
	var l device.Launch
	if a.Shape != nil {
		l = a.Shape(q, row)
	}
	if name == "" {
		last.query, last.chosen, last.launch = *q, a, l
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
	list := x.offers[SendRecv]
	if name == "" {
		return nil, nil
	}
	if a := engine.Find(list, name); a != nil {
		return a, nil
	}
	return nil, choose.NoSuch(list, name)
}

// noKernel says why no transport has kernels of a kind, and what to do.
func noKernel(c *comm.Communicator, what, kind string) error {
	return c.NoKernel(what, kernelargs.Layout(), func(k framework.KernelInfo) bool { return k.Collective == kind })
}
