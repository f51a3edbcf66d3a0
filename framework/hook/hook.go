// Package hook puts layers around a transport: to watch its calls, or to make them
// fail. A layer works on any transport, embedded or in a plugin, because a
// transport is an interface of data.
//
//	t = hook.Wrap(t, hook.Trace(log))
//	t = hook.Wrap(t, hook.Fault(hook.Rule{Op: "attach", Nth: 3, Err: framework.ErrPeer}))
//
// Only the control plane passes through here. Messages go through mapped memory
// and rings, which no layer sees.
package hook

import (
	"context"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Call is one call of a transport or of one of its proxies.
type Call struct {
	Op       string       // "register", "bind memory": as in framework.Error
	ID       framework.ID // the first id in the arguments; 0 if none
	Duration time.Duration
	Err      error
}

// Layer surrounds a call. It calls next, once, or not at all; then what it returns
// is the error of the call. It may be called concurrently.
type Layer func(ctx context.Context, c *Call, next func(context.Context) error) error

// Wrap puts layers around t, the first outermost. The result has every optional
// method; ask t's description which of them mean something.
func Wrap(t framework.Transport, layers ...Layer) framework.Transport {
	return &wrapped{t: t, around: compose(layers)}
}

func compose(layers []Layer) Layer {
	return func(ctx context.Context, c *Call, next func(context.Context) error) error {
		for i := len(layers) - 1; i >= 0; i-- {
			layer, inner := layers[i], next
			next = func(ctx context.Context) error { return layer(ctx, c, inner) }
		}
		return next(ctx)
	}
}

type wrapped struct {
	t      framework.Transport
	around Layer
}

// do makes one call through the layers. A layer that turns success into an error
// owes the caller nothing, so the result goes to drop.
func do[R any](ctx context.Context, around Layer, op string, id framework.ID, drop func(R), f func(context.Context) (R, error)) (R, error) {
	var r R
	made := false
	err := around(ctx, &Call{Op: op, ID: id}, func(ctx context.Context) error {
		var err error
		r, err = f(ctx)
		made = err == nil
		return err
	})
	if err != nil {
		if made && drop != nil {
			drop(r)
		}
		var none R
		return none, err
	}
	return r, nil
}

func (w *wrapped) Describe(ctx context.Context) (framework.Description, error) {
	return do(ctx, w.around, "describe", 0, nil, w.t.Describe)
}

func (w *wrapped) Register(ctx context.Context, seg framework.Segment) (framework.Registration, error) {
	drop := func(r framework.Registration) { _ = r.Key.Close(); w.free(r.ID) }
	return do(ctx, w.around, "register", 0, drop, func(ctx context.Context) (framework.Registration, error) {
		return w.t.Register(ctx, seg)
	})
}

func (w *wrapped) Listen(ctx context.Context, cfg framework.EndpointConfig) (framework.Endpoint, error) {
	drop := func(e framework.Endpoint) { _ = e.Address.Close(); w.free(e.ID) }
	return do(ctx, w.around, "listen", 0, drop, func(ctx context.Context) (framework.Endpoint, error) {
		return w.t.Listen(ctx, cfg)
	})
}

func (w *wrapped) Connect(ctx context.Context, local framework.ID, peers []framework.Peer) (framework.ID, error) {
	return do(ctx, w.around, "connect", local, w.free, func(ctx context.Context) (framework.ID, error) {
		return w.t.Connect(ctx, local, peers)
	})
}

func (w *wrapped) Attach(ctx context.Context, conn, local framework.ID, keys []framework.Parcel) (framework.Attachment, error) {
	drop := func(a framework.Attachment) { _ = a.Close(); w.free(a.ID) }
	return do(ctx, w.around, "attach", conn, drop, func(ctx context.Context) (framework.Attachment, error) {
		return w.t.Attach(ctx, conn, local, keys)
	})
}

func (w *wrapped) Close(ctx context.Context, id framework.ID) error {
	return w.around(ctx, &Call{Op: "close", ID: id}, func(ctx context.Context) error { return w.t.Close(ctx, id) })
}

// free closes what a layer has made unreachable.
func (w *wrapped) free(id framework.ID) {
	if id != 0 {
		_ = w.t.Close(context.Background(), id)
	}
}
