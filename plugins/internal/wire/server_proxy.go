package wire

import (
	"context"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
	pb "github.com/mscclpp-go/mscclpp/plugins/proto"
)

func (s *Server) proxy(id uint64) (framework.Proxy, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.proxies[id]
	if p == nil {
		return nil, fmt.Errorf("%w: no proxy %d: it was stopped or never made", framework.ErrClosed, id)
	}
	return p, nil
}

// NewProxy implements the service.
func (s *Server) NewProxy(ctx context.Context, _ *pb.NewProxyRequest) (*pb.NewProxyResponse, error) {
	t, d, err := s.configured()
	if err != nil {
		return nil, err
	}
	maker, ok := t.(framework.Proxier)
	if !ok || d.Proxy != framework.ProxyPlugin {
		return nil, claim(d, "new proxy", "Proxy", d.Proxy == framework.ProxyPlugin)
	}
	p, err := maker.NewProxy(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastProxy++
	s.proxies[s.lastProxy] = p
	return &pb.NewProxyResponse{Proxy: s.lastProxy}, nil
}

// BindMemory implements the service.
func (s *Server) BindMemory(ctx context.Context, req *pb.BindMemoryRequest) (*pb.BindMemoryResponse, error) {
	o, end := s.opener(ctx, req.GetCall())
	defer end()
	b := framework.MemoryBinding{Local: framework.ID(req.GetLocal()), Conn: framework.ID(req.GetConn()), Key: o.parcel(req.GetKey())}
	p, err := s.proxy(req.GetProxy())
	if err == nil {
		err = o.err
	}
	if err != nil {
		return nil, err
	}
	return &pb.BindMemoryResponse{}, p.BindMemory(ctx, req.GetSlot(), b)
}

// BindSemaphore implements the service.
func (s *Server) BindSemaphore(ctx context.Context, req *pb.BindSemaphoreRequest) (*pb.BindSemaphoreResponse, error) {
	o, end := s.opener(ctx, req.GetCall())
	defer end()
	b := framework.SemaphoreBinding{Conn: framework.ID(req.GetConn()), Key: o.parcel(req.GetKey()), Offset: req.GetOffset()}
	p, err := s.proxy(req.GetProxy())
	if err == nil {
		err = o.err
	}
	if err != nil {
		return nil, err
	}
	return &pb.BindSemaphoreResponse{}, p.BindSemaphore(ctx, req.GetSlot(), b)
}

// StartProxy implements the service.
func (s *Server) StartProxy(ctx context.Context, req *pb.StartProxyRequest) (*pb.StartProxyResponse, error) {
	o, end := s.opener(ctx, req.GetCall())
	defer end()
	ring := o.share(req.GetRing())
	p, err := s.proxy(req.GetProxy())
	if err == nil {
		err = o.err
	}
	if err != nil {
		return nil, err
	}
	return &pb.StartProxyResponse{}, p.Start(ctx, ring)
}

// WaitProxy implements the service.
func (s *Server) WaitProxy(ctx context.Context, req *pb.WaitProxyRequest) (*pb.WaitProxyResponse, error) {
	p, err := s.proxy(req.GetProxy())
	if err != nil {
		return nil, err
	}
	return &pb.WaitProxyResponse{}, p.Wait(ctx)
}

// StopProxy implements the service. A proxy that was stopped is forgotten, so its
// outcome travels with the answer.
func (s *Server) StopProxy(ctx context.Context, req *pb.StopProxyRequest) (*pb.StopProxyResponse, error) {
	p, err := s.proxy(req.GetProxy())
	if err != nil {
		return nil, err
	}
	if err := p.Stop(ctx); err != nil {
		return nil, err
	}
	cause := p.Wait(ctx)
	if cause != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	s.mu.Lock()
	delete(s.proxies, req.GetProxy())
	s.mu.Unlock()
	return &pb.StopProxyResponse{Cause: failureOf(cause)}, nil
}
