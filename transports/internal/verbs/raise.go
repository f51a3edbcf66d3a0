package verbs

// #include "shim.h"
import "C"

import (
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// A signal by itself is the shortest of requests, and this file is the path of one.
// Go's part of it takes as many instructions as the adapter's library and the call into C, so it
// goes without what others need: lists of requests, the lock of the proxy, a deferred call, and
// a function for each layer.

// Perform implements framework.Helper: one put that is one request, or a signal, or both to
// one peer, and a flush behind them.
func (p *proxy) Perform(fst, snd uint64) (taken, done bool) {
	t := kernel.Trigger{Fst: fst, Snd: snd}
	kind := t.Kind()
	if kind&^kernel.TriggerFlush != kernel.TriggerSignal || p.t.setup.Mode != Atomic {
		return p.performNow(t)
	}
	turn := p.Borrow()
	if turn == nil {
		return false, false
	}
	flush := kind&kernel.TriggerFlush != 0
	var err error
	if s := p.bound(t.Slot()); s != nil { // else the pusher gets the error
		var n uint64
		n, taken, done, err = s.flow.raise(s.to, flush)
		if flush && taken && !done && err == nil {
			done, err = p.answered(s.flow, n)
		}
	}
	if taken && err == nil { // nothing above panics
		turn.Took()
		return true, done && flush
	}
	turn.Return(t, taken, err, nil)
	return taken, false
}

// answered reports whether a request is done within the time that an answer takes, mostly.
func (p *proxy) answered(f *flow, request uint64) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := p.awaitAnswer(f, request)
	return err == nil && f.completed >= request, err
}

// raise posts a signal, if there is room; look: and takes completions, by the same call. It
// returns the number of the request, and whether it is known to be done.
func (f *flow) raise(to target, look bool) (n uint64, taken, done bool, err error) {
	f.mu.Lock()
	if room := f.err == nil && f.posted-f.completed+2 <= f.depth; !room {
		f.mu.Unlock()
		return 0, false, false, nil // the ordinary push reports the error, or waits
	}
	if f.pair.readyFor != to {
		f.prepare(to)
	}
	n = f.posted + 1
	f.dirty, f.marked = false, n
	r := f.pair.ready
	r.wr.wr_id, r.most = C.uint64_t(n), 0
	if look {
		r.most = batch
	}
	C.mscclpp_verbs_again(C.uintptr_t(uintptr(unsafe.Pointer(r))))
	if r.came == 1 && f.pair.sent[0].status == 0 { // as mostly
		f.posted, f.completed = n, max(f.completed, uint64(f.pair.sent[0].wr_id))
	} else {
		err = f.raised(n, int(r.came))
	}
	done = f.completed >= n
	f.mu.Unlock()
	return n, true, done, err
}

// prepare puts together the request by which raise signals: it is the same each time.
func (f *flow) prepare(to target) {
	var r request
	f.add(to, &r)
	r.flags = flagSignaled
	f.pair.stage(0, 0, &r)
	C.mscclpp_verbs_prepare(f.pair.ready, &f.pair.ops[0])
	f.pair.readyFor = to
}

// raised takes note of a signal that was posted, and of what came meanwhile, or of an error.
func (f *flow) raised(n uint64, came int) error {
	if came < 0 {
		f.failLocked(f.pair.notTaken(1, 1, came))
		return f.err
	}
	f.posted = n
	return f.sentLocked(came, nil)
}
