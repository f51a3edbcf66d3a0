package wire

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/mscclpp-go/mscclpp/framework"
	pb "github.com/mscclpp-go/mscclpp/plugins/proto"
)

// proxyStub is a plugin with one proxy, whose calls end when a test lets them.
type proxyStub struct {
	stub
	stop     func(context.Context) (*pb.StopProxyResponse, error)
	wait     func(context.Context) error
	failure  error // of a wait, with its trailer
	stopping atomic.Int64
	waiting  atomic.Int64
}

func (s *proxyStub) NewProxy(context.Context, *pb.NewProxyRequest, ...grpc.CallOption) (*pb.NewProxyResponse, error) {
	return &pb.NewProxyResponse{Proxy: 3}, nil
}

func (s *proxyStub) StopProxy(ctx context.Context, _ *pb.StopProxyRequest, _ ...grpc.CallOption) (*pb.StopProxyResponse, error) {
	s.stopping.Add(1)
	return s.stop(ctx)
}

func (s *proxyStub) WaitProxy(ctx context.Context, _ *pb.WaitProxyRequest, opts ...grpc.CallOption) (*pb.WaitProxyResponse, error) {
	s.waiting.Add(1)
	if s.failure != nil {
		for _, o := range opts {
			if t, ok := o.(grpc.TrailerCallOption); ok {
				*t.TrailerAddr = trailerOf(s.failure)
			}
		}
		return nil, statusOf(s.failure)
	}
	return &pb.WaitProxyResponse{}, s.wait(ctx)
}

func (s *proxyStub) BindMemory(ctx context.Context, _ *pb.BindMemoryRequest, o ...grpc.CallOption) (*pb.BindMemoryResponse, error) {
	return &pb.BindMemoryResponse{}, s.note(ctx, o)
}

func newProxy(t *testing.T, s *proxyStub) framework.Proxy {
	t.Helper()
	host, _ := sockets(t)
	c := &Client{stub: s, fds: host, life: &life{gone: make(chan struct{})}, name: "test"}
	p, err := c.NewProxy(bound(t))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// untilCanceled is a call that the plugin does not end.
func untilCanceled(ctx context.Context) error {
	<-ctx.Done()
	return status.FromContextError(ctx.Err()).Err()
}

// A proxy is stopped once, for all callers; its outcome is what Stop brought, for all.
func TestStopBringsTheOutcome(t *testing.T) {
	cause := &framework.Error{Op: "proxy", Transport: "test", Peer: 2, Err: framework.ErrPeer}
	s := &proxyStub{wait: untilCanceled}
	s.stop = func(context.Context) (*pb.StopProxyResponse, error) {
		return &pb.StopProxyResponse{Cause: failureOf(cause)}, nil
	}
	p := newProxy(t, s)
	waited := make(chan error, 1)
	go func() { waited <- p.Wait(context.Background()) }() // ends with the outcome, not with a bound of its own
	for range 3 {
		if err := p.Stop(bound(t)); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{<-waited, p.Wait(bound(t))} {
		if !errors.Is(err, framework.ErrPeer) || framework.PeerOf(err) != 2 {
			t.Errorf("%v: expected the cause that Stop brought", err)
		}
	}
	if n := s.stopping.Load(); n != 1 {
		t.Errorf("the plugin was asked %d times to stop, expected once", n)
	}
}

// A Stop that failed may be made again, and one that waits for another gives up when
// its context ends.
func TestStopThatFails(t *testing.T) {
	s := &proxyStub{}
	entered, leave := make(chan struct{}), make(chan struct{})
	s.stop = func(context.Context) (*pb.StopProxyResponse, error) {
		close(entered)
		<-leave
		return nil, status.Error(codes.DeadlineExceeded, "late")
	}
	p := newProxy(t, s)
	first := make(chan error, 1)
	go func() { first <- p.Stop(context.Background()) }()
	<-entered
	ctx, cancel := context.WithCancel(bound(t))
	cancel()
	if err := p.Stop(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "test stop proxy") {
		t.Errorf("beside another: %v: expected Canceled that names the call", err)
	}
	close(leave)
	if err := <-first; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v: expected DeadlineExceeded", err)
	}
	s.stop = func(context.Context) (*pb.StopProxyResponse, error) { return &pb.StopProxyResponse{}, nil }
	if err := errors.Join(p.Stop(bound(t)), p.Wait(bound(t))); err != nil {
		t.Errorf("again: %v", err)
	}
	if n, w := s.stopping.Load(), s.waiting.Load(); n != 2 || w != 0 {
		t.Errorf("%d calls to stop, %d to wait: expected 2 and, as the outcome is known, none", n, w)
	}
}

// The end of a wait is not the end of the proxy; its own failure is, and is kept.
func TestWaitThatEnds(t *testing.T) {
	s := &proxyStub{wait: untilCanceled}
	p := newProxy(t, s)
	ctx, cancel := context.WithCancel(bound(t))
	cancel()
	if err := p.Wait(ctx); !errors.Is(err, context.Canceled) || framework.Class(err) != nil {
		t.Errorf("%v: expected Canceled of no class", err)
	}
	s.failure = &framework.Error{Op: "proxy", Transport: "test", Peer: 1, Err: framework.ErrPeer}
	for range 2 {
		if err := p.Wait(bound(t)); !errors.Is(err, framework.ErrPeer) || framework.PeerOf(err) != 1 {
			t.Errorf("%v: expected the failure of the proxy", err)
		}
	}
	if n := s.waiting.Load(); n != 2 {
		t.Errorf("the plugin was asked %d times, expected 2: a failure is known from then on", n)
	}
}

// The plugin's error for a binding comes back with the name of the call.
func TestBindingsThatFail(t *testing.T) {
	s := &proxyStub{stub: stub{err: status.Error(codes.InvalidArgument, "slot 9 is taken"), trailer: metadata.MD{}}}
	p := newProxy(t, s)
	wantError(t, "a refusal", p.BindMemory(bound(t), 9, framework.MemoryBinding{Local: 1}), framework.ErrInvalid, "test bind memory", "slot 9 is taken")
	s.deadline = false
	bad := framework.MemoryBinding{Conn: 1, Key: framework.Parcel{Shares: []framework.Share{{Kind: framework.ShareMemFD}}}}
	wantError(t, "a share without its descriptor", p.BindMemory(bound(t), 9, bad), framework.ErrInvalid, "without a descriptor")
	if s.deadline {
		t.Error("the plugin was called")
	}
}
