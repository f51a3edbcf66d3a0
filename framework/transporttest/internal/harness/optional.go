package harness

import (
	"context"

	"github.com/mscclpp-go/mscclpp/framework"
)

// The optional interfaces. A transport in this process may lack a method that it
// does not claim; a plugin's client has every method. Both must look the same, so
// a missing method counts as ErrUnsupported.

func (w *watched) Probe(ctx context.Context, facts framework.Facts) (framework.Live, error) {
	p, ok := w.Side.Transport.(framework.Prober)
	if !ok {
		return framework.Live{}, framework.ErrUnsupported
	}
	return call(ctx, w, "probe", nil, nil,
		func(ctx context.Context) (framework.Live, error) { return p.Probe(ctx, facts) })
}

func (w *watched) Image(ctx context.Context, id string) ([]byte, error) {
	p, ok := w.Side.Transport.(framework.Imager)
	if !ok {
		return nil, framework.ErrUnsupported
	}
	return call(ctx, w, "image", nil, nil,
		func(ctx context.Context) ([]byte, error) { return p.Image(ctx, id) })
}

func (w *watched) NewProxy(ctx context.Context) (framework.Proxy, error) {
	p, ok := w.Side.Transport.(framework.Proxier)
	if !ok {
		return nil, framework.ErrUnsupported
	}
	proxy, err := call(ctx, w, "new proxy", nil, nil,
		func(ctx context.Context) (framework.Proxy, error) { return p.NewProxy(ctx) })
	if err != nil {
		return nil, err
	}
	if proxy == nil {
		w.violation("new proxy", "returned neither a proxy nor an error")
		return nil, framework.ErrPlugin
	}
	return &watchedProxy{w: w, proxy: proxy}, nil
}

// watchedProxy applies the rules of watched to a proxy.
type watchedProxy struct {
	w     *watched
	proxy framework.Proxy
}

func (p *watchedProxy) do(ctx context.Context, op string, lent []framework.Share, f func(context.Context) error) error {
	_, err := call(ctx, p.w, op, lent, nil, func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) })
	return err
}

func (p *watchedProxy) BindMemory(ctx context.Context, slot uint32, m framework.MemoryBinding) error {
	return p.do(ctx, "bind memory", m.Key.Shares, func(ctx context.Context) error { return p.proxy.BindMemory(ctx, slot, m) })
}

func (p *watchedProxy) BindSemaphore(ctx context.Context, slot uint32, s framework.SemaphoreBinding) error {
	return p.do(ctx, "bind semaphore", s.Key.Shares, func(ctx context.Context) error { return p.proxy.BindSemaphore(ctx, slot, s) })
}

func (p *watchedProxy) Start(ctx context.Context, ring framework.Share) error {
	return p.do(ctx, "start proxy", []framework.Share{ring}, func(ctx context.Context) error { return p.proxy.Start(ctx, ring) })
}

func (p *watchedProxy) Wait(ctx context.Context) error {
	return p.do(ctx, "wait for proxy", nil, p.proxy.Wait)
}

func (p *watchedProxy) Stop(ctx context.Context) error {
	return p.do(ctx, "stop proxy", nil, p.proxy.Stop)
}
