package wire

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
	pb "github.com/mscclpp-go/mscclpp/plugins/proto"
)

// imageBytes is how long an image is by the description; what arrives decides.
func (c *Client) imageBytes(id string) uint64 {
	for _, info := range c.description.Images {
		if info.ID == id {
			return min(info.Bytes, MaxImage)
		}
	}
	return 0
}

// checkImage compares an image with what the description promised, so that a torn
// or exchanged file is found here and not by a crash of the device.
func (c *Client) checkImage(id string, data []byte) error {
	for _, info := range c.description.Images {
		if info.ID != id || info.SHA256 == "" {
			continue
		}
		sum := sha256.Sum256(data)
		if seen := hex.EncodeToString(sum[:]); seen != info.SHA256 {
			return c.wrap("image", framework.NoPeer, fmt.Errorf("%w: image %s: expected sha256 %s, got %s", framework.ErrPlugin, id, info.SHA256, seen))
		}
	}
	return nil
}

// NewProxy implements framework.Proxier.
func (c *Client) NewProxy(ctx context.Context) (framework.Proxy, error) {
	resp, err := do(ctx, c, request{op: "new proxy"}, c.stub.NewProxy, &pb.NewProxyRequest{})
	if err != nil {
		return nil, err
	}
	return &proxy{c: c, id: resp.GetProxy(), stopping: make(chan struct{}, 1), ended: make(chan struct{})}, nil
}

// proxy is a proxy in the plugin.
type proxy struct {
	c  *Client
	id uint64

	stopping chan struct{} // holds one value while Stop runs
	stopped  bool          // guarded by stopping

	mu    sync.Mutex
	ended chan struct{} // closed when cause is known
	cause error
}

func (p *proxy) end(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.ended:
	default:
		p.cause = cause
		close(p.ended)
	}
}

func (p *proxy) outcome() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cause
}

func (p *proxy) isEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// BindMemory implements framework.Proxy.
func (p *proxy) BindMemory(ctx context.Context, slot uint32, m framework.MemoryBinding) error {
	r, end := p.c.open("bind memory")
	defer end()
	_, err := do(ctx, p.c, r, p.c.stub.BindMemory, &pb.BindMemoryRequest{
		Call: r.number, Proxy: p.id, Slot: slot, Local: uint64(m.Local), Conn: uint64(m.Conn), Key: r.pack.parcel(m.Key),
	})
	return err
}

// BindSemaphore implements framework.Proxy.
func (p *proxy) BindSemaphore(ctx context.Context, slot uint32, s framework.SemaphoreBinding) error {
	r, end := p.c.open("bind semaphore")
	defer end()
	_, err := do(ctx, p.c, r, p.c.stub.BindSemaphore, &pb.BindSemaphoreRequest{
		Call: r.number, Proxy: p.id, Slot: slot, Conn: uint64(s.Conn), Key: r.pack.parcel(s.Key), Offset: s.Offset,
	})
	return err
}

// Start implements framework.Proxy.
func (p *proxy) Start(ctx context.Context, ring framework.Share) error {
	r, end := p.c.open("start proxy")
	defer end()
	_, err := do(ctx, p.c, r, p.c.stub.StartProxy, &pb.StartProxyRequest{Call: r.number, Proxy: p.id, Ring: r.pack.share(ring)})
	return err
}

// Wait implements framework.Proxy. The outcome is kept: the plugin forgets a proxy
// that was stopped.
func (p *proxy) Wait(ctx context.Context) error {
	if p.isEnded() {
		return p.outcome()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	go func() { // a Stop from elsewhere ends the call that would tell the same
		select {
		case <-p.ended:
			cancel()
		case <-stop:
		}
	}()
	_, err := do(ctx, p.c, request{op: "wait proxy", endless: true}, p.c.stub.WaitProxy, &pb.WaitProxyRequest{Proxy: p.id})
	if errors.Is(err, framework.ErrClosed) && p.enter(ctx) == nil {
		// A Stop that has not returned yet may be the reason; now it has.
		<-p.stopping
	}
	switch {
	case p.isEnded():
	case framework.Class(err) == nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)):
		return err // of the wait; ctx itself may learn of it a moment later
	default:
		p.end(err)
	}
	return p.outcome()
}

// enter waits until no Stop runs. On success the caller takes a value from stopping.
func (p *proxy) enter(ctx context.Context) error {
	select {
	case p.stopping <- struct{}{}:
		return nil
	case <-ctx.Done():
		return p.c.wrap("stop proxy", framework.NoPeer, ctx.Err())
	}
}

// Stop implements framework.Proxy. The plugin forgets a proxy that was stopped, so
// one Stop at a time asks it, and only until one has succeeded.
func (p *proxy) Stop(ctx context.Context) error {
	if err := p.enter(ctx); err != nil {
		return err
	}
	defer func() { <-p.stopping }()
	if p.stopped {
		return nil
	}
	resp, err := do(ctx, p.c, request{op: "stop proxy"}, p.c.stub.StopProxy, &pb.StopProxyRequest{Proxy: p.id})
	if err != nil {
		return err
	}
	p.stopped = true
	p.end(errorOf(resp.GetCause()))
	return nil
}
