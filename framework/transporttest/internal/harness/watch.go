package harness

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
)

// watched stands between the suite and a side, and checks on every call what
// holds for all of them: it returns in time, an error has a class and hands
// nothing over, an id is new, and lent descriptors stay open. So every test of the
// suite is also a test of these rules.
type watched struct {
	T    *T
	name string // "rank 1", for findings
	Side *Side
	Ids  *idSet
	hung atomic.Bool // a call did not return: the side is not called again
}

// idSet holds what one transport has returned: ids are never reused.
type idSet struct {
	mu   sync.Mutex
	seen map[framework.ID]string // the call that returned it
}

// NewIDs returns an empty set of ids.
func NewIDs() *idSet { return &idSet{seen: map[framework.ID]string{}} }

// All is a copy of the set.
func (s *idSet) All() map[framework.ID]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.seen)
}

// errHung is what the caller of a hung call gets, so that its test goes on to
// clean up.
var errHung = fmt.Errorf("the call did not return: %w", framework.ErrUnavailable)

func (w *watched) violation(op, format string, args ...any) {
	w.T.Errorf("%s %s: %s", w.name, op, fmt.Sprintf(format, args...))
}

// call performs one call in its own goroutine.
func call[R any](ctx context.Context, w *watched, op string, lent []framework.Share, owned func(R) []framework.Share, f func(context.Context) (R, error)) (R, error) {
	type outcome struct {
		r   R
		err error
	}
	ctx, cancel := context.WithTimeout(ctx, w.T.Options.CallLimit)
	defer cancel()
	lent = open(lent)
	if w.hung.Load() {
		var none R
		return none, errHung
	}
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		defer func() {
			if p := recover(); p != nil {
				o.err = fmt.Errorf("panic: %v: %w", p, framework.ErrPlugin)
				w.violation(op, "panic: %v\n%s", p, stack())
			}
			done <- o
		}()
		o.r, o.err = f(ctx)
	}()
	var o outcome
	select {
	case o = <-done:
	case <-late(ctx):
		w.hung.Store(true)
		w.violation(op, "hung: no answer %v after its deadline", Grace)
		return o.r, errHung
	}
	if len(open(lent)) < len(lent) {
		w.violation(op, "closed a descriptor that it was lent")
	}
	if o.err != nil {
		if framework.Class(o.err) == nil && !errors.Is(o.err, context.Canceled) && !errors.Is(o.err, context.DeadlineExceeded) {
			w.violation(op, "error of no class: %v", o.err)
		}
		if owned != nil && len(owned(o.r)) > 0 {
			w.violation(op, "an error came with %d shares that nobody will close", len(owned(o.r)))
			_ = framework.Parcel{Shares: owned(o.r)}.Close()
		}
		return o.r, o.err
	}
	if owned != nil {
		w.checkOwned(op, lent, owned(o.r))
	}
	return o.r, nil
}

// open lists the shares whose descriptors are open.
func open(shares []framework.Share) []framework.Share {
	var list []framework.Share
	for _, s := range shares {
		if s.FD != nil {
			if _, err := s.FD.Stat(); !errors.Is(err, os.ErrClosed) {
				list = append(list, s)
			}
		}
	}
	return list
}

// late fires when ctx has ended and the grace is over.
func late(ctx context.Context) <-chan struct{} {
	c := make(chan struct{})
	context.AfterFunc(ctx, func() { time.AfterFunc(Grace, func() { close(c) }) })
	return c
}

func (w *watched) checkOwned(op string, lent, owned []framework.Share) {
	for i, s := range owned {
		switch {
		case s.Kind.HasFD() && (s.FD == nil || s.Blob != nil):
			w.violation(op, "share %d of kind %s has no descriptor, or a blob as well", i, s.Kind)
		case !s.Kind.HasFD() && s.FD != nil:
			w.violation(op, "share %d of kind %s has a descriptor", i, s.Kind)
		}
		for _, l := range lent {
			if s.FD != nil && s.FD == l.FD {
				w.violation(op, "returned a descriptor that it was lent instead of a duplicate")
			}
		}
	}
}

// fresh checks an id that op made.
func (w *watched) fresh(op string, id framework.ID) {
	w.Ids.mu.Lock()
	defer w.Ids.mu.Unlock()
	if id == 0 {
		w.violation(op, "returned id 0, which is never valid")
	} else if by, used := w.Ids.seen[id]; used {
		w.violation(op, "returned id %d again, first returned by %s", id, by)
	}
	w.Ids.seen[id] = op
}

func (w *watched) Describe(ctx context.Context) (framework.Description, error) {
	return call(ctx, w, "describe", nil, nil, w.Side.Describe)
}

func (w *watched) Register(ctx context.Context, seg framework.Segment) (framework.Registration, error) {
	r, err := call(ctx, w, "register", seg.Shares,
		func(r framework.Registration) []framework.Share { return r.Key.Shares },
		func(ctx context.Context) (framework.Registration, error) { return w.Side.Register(ctx, seg) })
	if err == nil {
		w.fresh("register", r.ID)
	}
	return r, err
}

func (w *watched) Listen(ctx context.Context, cfg framework.EndpointConfig) (framework.Endpoint, error) {
	e, err := call(ctx, w, "listen", nil,
		func(e framework.Endpoint) []framework.Share { return e.Address.Shares },
		func(ctx context.Context) (framework.Endpoint, error) { return w.Side.Listen(ctx, cfg) })
	if err == nil {
		w.fresh("listen", e.ID)
	}
	return e, err
}

func (w *watched) Connect(ctx context.Context, local framework.ID, peers []framework.Peer) (framework.ID, error) {
	var lent []framework.Share
	for _, p := range peers {
		lent = append(lent, p.Address.Shares...)
	}
	id, err := call(ctx, w, "connect", lent, nil,
		func(ctx context.Context) (framework.ID, error) { return w.Side.Connect(ctx, local, peers) })
	if err == nil {
		w.fresh("connect", id)
	}
	return id, err
}

func (w *watched) Attach(ctx context.Context, conn, local framework.ID, keys []framework.Parcel) (framework.Attachment, error) {
	var lent []framework.Share
	for _, k := range keys {
		lent = append(lent, k.Shares...)
	}
	a, err := call(ctx, w, "attach", lent, SharesOf,
		func(ctx context.Context) (framework.Attachment, error) { return w.Side.Attach(ctx, conn, local, keys) })
	if err == nil && a.ID != 0 {
		w.fresh("attach", a.ID)
	}
	return a, err
}

func (w *watched) Close(ctx context.Context, id framework.ID) error {
	_, err := call(ctx, w, "close", nil, nil,
		func(ctx context.Context) (struct{}, error) { return struct{}{}, w.Side.Transport.Close(ctx, id) })
	return err
}

// SharesOf lists what the receiver of a recipe owns.
func SharesOf(a framework.Attachment) []framework.Share {
	var all []framework.Share
	for _, m := range a.Mappings {
		all = append(all, m.Shares...)
	}
	for _, s := range a.Steps {
		if s.Share != nil {
			all = append(all, *s.Share)
		}
	}
	return all
}
