package hook

import (
	"context"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
)

// missing is the answer where the transport below lacks an optional method.
func missing(op string) error {
	return &framework.Error{Op: op, Peer: framework.NoPeer, Err: fmt.Errorf("the transport has no such method: %w", framework.ErrUnsupported)}
}

func (w *wrapped) Probe(ctx context.Context, facts framework.Facts) (framework.Live, error) {
	p, ok := w.t.(framework.Prober)
	if !ok {
		return framework.Live{}, missing("probe")
	}
	return do(ctx, w.around, "probe", 0, nil, func(ctx context.Context) (framework.Live, error) { return p.Probe(ctx, facts) })
}

func (w *wrapped) Image(ctx context.Context, id string) ([]byte, error) {
	p, ok := w.t.(framework.Imager)
	if !ok {
		return nil, missing("image")
	}
	return do(ctx, w.around, "image", 0, nil, func(ctx context.Context) ([]byte, error) { return p.Image(ctx, id) })
}

func (w *wrapped) NewProxy(ctx context.Context) (framework.Proxy, error) {
	p, ok := w.t.(framework.Proxier)
	if !ok {
		return nil, missing("new proxy")
	}
	drop := func(p framework.Proxy) { _ = p.Stop(context.Background()) }
	made, err := do(ctx, w.around, "new proxy", 0, drop, p.NewProxy)
	if err != nil {
		return nil, err
	}
	return &proxy{made, w.around}, nil
}

// proxy is a proxy with layers around it.
type proxy struct {
	p      framework.Proxy
	around Layer
}

func (p *proxy) BindMemory(ctx context.Context, slot uint32, m framework.MemoryBinding) error {
	return p.around(ctx, &Call{Op: "bind memory", ID: max(m.Local, m.Conn)},
		func(ctx context.Context) error { return p.p.BindMemory(ctx, slot, m) })
}

func (p *proxy) BindSemaphore(ctx context.Context, slot uint32, s framework.SemaphoreBinding) error {
	return p.around(ctx, &Call{Op: "bind semaphore", ID: s.Conn},
		func(ctx context.Context) error { return p.p.BindSemaphore(ctx, slot, s) })
}

func (p *proxy) Start(ctx context.Context, ring framework.Share) error {
	return p.around(ctx, &Call{Op: "start proxy"}, func(ctx context.Context) error { return p.p.Start(ctx, ring) })
}

func (p *proxy) Wait(ctx context.Context) error {
	return p.around(ctx, &Call{Op: "wait for proxy"}, p.p.Wait)
}

func (p *proxy) Stop(ctx context.Context) error {
	return p.around(ctx, &Call{Op: "stop proxy"}, p.p.Stop)
}
