package exec

import (
	"errors"
	"unsafe"
)

// mostWindows is how many pairs of exchanged memory are remembered.
const mostWindows = 32

// direct reports whether input and output of other ranks can be reached where they are: those that share memory are all,
// and ports and windows of switches, which are bound to memory beforehand, have no part in it.
func (e *setting) direct() bool {
	return e.use.apart && !e.use.ports && !e.switched && e.reach.comm == e.comm
}

// inPlace decides where the buffers of a call are if ranks reach each other's directly; false: they have to be staged.
func (e *Executor) inPlace(c *Call, b buffers, p *placed) bool {
	if !e.direct() {
		return false
	}
	p.in, p.out = c.Input, c.Output
	switch {
	case e.use.alias:
		in, out, bytes := overlap(e.plan.Collective, e.comm.Rank(), b)
		if bytes <= b.out {
			if p.in = unsafe.Add(c.Output, in); p.in != c.Input {
				p.before = moves{{p.in, c.Input, b.in}}
			}
		} else if unsafe.Add(c.Input, out) != c.Output {
			return false
		}
	case touch(c.Input, b.in, c.Output, b.out), c.KeepInput && e.use.writes[0]:
		return false
	}
	return e.reached(0, p.in, b.in, p) && e.reached(1, p.out, b.out, p)
}

// reached finds the memory in which a buffer lies; false: it was not exchanged.
func (e *Executor) reached(i int, addr unsafe.Pointer, bytes uint64, p *placed) (ok bool) {
	if !e.use.named[i] {
		return true
	}
	p.found[i].in, p.found[i].from, ok = e.comm.Find(uintptr(addr), bytes)
	return ok
}

// window returns the table of the exchanges of a call's buffers.
func (e *Executor) window(found *[2]located) (uintptr, error) {
	for i := range e.windows {
		if w := &e.windows[i]; w.in == found[0].id() && w.out == found[1].id() {
			w.used = e.calls
			return w.memory.Addr(), nil
		}
	}
	if len(e.windows) >= mostWindows {
		if err := e.forget(); err != nil {
			return 0, err
		}
	}
	list := make([]window, e.comm.Size())
	for r := range list {
		list[r] = window{Input: found[0].at(r), Output: found[1].at(r)}
		if e.use.mates[e.comm.Rank()][r] {
			list[r].Mate = 1
		}
	}
	var b builder
	put(&b, list)
	m, err := e.comm.Device().Alloc(uint64(len(b.bytes)))
	if err != nil {
		return 0, err
	}
	if err := write(e.comm.Device(), m.Addr(), b.bytes); err != nil {
		return 0, errors.Join(err, m.Close())
	}
	e.windows = append(e.windows, windows{found[0].id(), found[1].id(), m, e.calls})
	return m.Addr(), nil
}

// forget gives up the table that was not used for the longest time.
func (e *Executor) forget() error {
	oldest := 0
	for i := range e.windows {
		if e.windows[i].used < e.windows[oldest].used {
			oldest = i
		}
	}
	m := e.windows[oldest].memory
	e.windows = append(e.windows[:oldest], e.windows[oldest+1:]...)
	return e.release(m.Close)
}
