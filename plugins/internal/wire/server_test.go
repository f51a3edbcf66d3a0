package wire

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/plugins/internal/fdsock"
	pb "github.com/mscclpp-go/mscclpp/plugins/proto"
)

// bare is a transport that claims nothing and notes what it is asked to close.
type bare struct {
	framework.Transport
	describe error
	share    framework.Share // of every key and address
	closed   []framework.ID
	segment  framework.Segment
}

func (b *bare) Describe(context.Context) (framework.Description, error) {
	return framework.Description{Name: "bare"}, b.describe
}

func (b *bare) parcel() framework.Parcel {
	p := framework.Parcel{Data: []byte("key")}
	if b.share.Kind != "" {
		p.Shares = []framework.Share{b.share}
	}
	return p
}

func (b *bare) Register(_ context.Context, s framework.Segment) (framework.Registration, error) {
	b.segment = s
	return framework.Registration{ID: 5, Key: b.parcel()}, nil
}

func (b *bare) Listen(context.Context, framework.EndpointConfig) (framework.Endpoint, error) {
	return framework.Endpoint{ID: 6, Address: b.parcel()}, nil
}

func (b *bare) Connect(context.Context, framework.ID, []framework.Peer) (framework.ID, error) {
	return 7, nil
}

func (b *bare) Attach(context.Context, framework.ID, framework.ID, []framework.Parcel) (framework.Attachment, error) {
	return framework.Attachment{ID: 8}, nil
}

func (b *bare) Close(_ context.Context, id framework.ID) error {
	b.closed = append(b.closed, id)
	return nil
}

func server(t *testing.T, inner framework.Transport) (*Server, *fdsock.Conn) {
	t.Helper()
	host, plugin := sockets(t)
	s := NewServer(Factory{Create: func([]byte) (framework.Transport, error) { return inner, nil }}, plugin)
	return s, host
}

func configured(t *testing.T, inner framework.Transport) (*Server, *fdsock.Conn) {
	t.Helper()
	s, host := server(t, inner)
	if _, err := s.Configure(bound(t), &pb.ConfigureRequest{}); err != nil {
		t.Fatal(err)
	}
	return s, host
}

// images is a stream to which nobody listens.
type images struct {
	grpc.ServerStreamingServer[pb.ImageResponse]
	ctx context.Context
}

func (i images) Context() context.Context { return i.ctx }

// calls are all that need a transport.
func calls(ctx context.Context, s *Server) map[string]error {
	all := map[string]error{}
	_, all["describe"] = s.Describe(ctx, &pb.DescribeRequest{})
	_, all["probe"] = s.Probe(ctx, &pb.ProbeRequest{})
	_, all["register"] = s.Register(ctx, &pb.RegisterRequest{})
	_, all["listen"] = s.Listen(ctx, &pb.ListenRequest{Kind: pb.Kind_KIND_MEMORY})
	_, all["connect"] = s.Connect(ctx, &pb.ConnectRequest{Peers: []*pb.Peer{{Rank: 1}}})
	_, all["attach"] = s.Attach(ctx, &pb.AttachRequest{Keys: []*pb.Parcel{{}}})
	_, all["close"] = s.Close(ctx, &pb.CloseRequest{})
	_, all["new proxy"] = s.NewProxy(ctx, &pb.NewProxyRequest{})
	all["image"] = s.Image(&pb.ImageRequest{}, images{ctx: ctx})
	return all
}

func TestCallsBeforeConfigure(t *testing.T) {
	s, _ := server(t, &bare{})
	for op, err := range calls(bound(t), s) {
		if !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), "expected Configure before") {
			t.Errorf("%s: %v: expected ErrInvalid that says what comes first", op, err)
		}
	}
	if s.Transport() != nil {
		t.Error("there is a transport")
	}
}

func TestConfigureRefuses(t *testing.T) {
	s, _ := configured(t, &bare{})
	if _, err := s.Configure(bound(t), &pb.ConfigureRequest{}); !errors.Is(err, framework.ErrInvalid) || s.Transport() == nil {
		t.Errorf("a second time: %v: expected ErrInvalid", err)
	}
	s, _ = server(t, nil)
	if _, err := s.Configure(bound(t), &pb.ConfigureRequest{}); !errors.Is(err, framework.ErrPlugin) || s.Transport() != nil {
		t.Errorf("no transport: %v: expected ErrPlugin", err)
	}
	s, _ = server(t, &bare{describe: framework.ErrUnavailable})
	if _, err := s.Configure(bound(t), &pb.ConfigureRequest{}); !errors.Is(err, framework.ErrUnavailable) || s.Transport() != nil {
		t.Errorf("a transport that cannot say what it is: %v: expected its error", err)
	}
	s.factory.Create = func([]byte) (framework.Transport, error) { return nil, framework.ErrInvalid }
	if _, err := s.Configure(bound(t), &pb.ConfigureRequest{}); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("options that are refused: %v: expected the factory's error", err)
	}
}

// A call that a description does not claim is refused by the server, whatever the transport has.
func TestUnclaimedIsRefused(t *testing.T) {
	s, _ := configured(t, &bare{})
	all := calls(bound(t), s)
	for _, op := range []string{"describe", "register", "listen", "connect", "attach", "close"} {
		if all[op] != nil {
			t.Errorf("%s, which every transport has: %v", op, all[op])
		}
	}
	for op, field := range map[string]string{"probe": "Probe", "new proxy": "Proxy", "image": "Images"} {
		err := all[op]
		if !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), "bare "+op) || !strings.Contains(err.Error(), "Description."+field) {
			t.Errorf("%s: %v: expected ErrUnsupported that names transport, operation and field", op, err)
		}
	}
}

// boastful claims all that it has no method for.
type boastful struct{ bare }

func (b *boastful) Describe(context.Context) (framework.Description, error) {
	return framework.Description{Name: "bare", Probe: true, Proxy: framework.ProxyPlugin, Images: []framework.ImageInfo{{ID: "one"}}}, nil
}

func TestClaimedAndMissing(t *testing.T) {
	s, _ := configured(t, &boastful{})
	all := calls(bound(t), s)
	for _, op := range []string{"probe", "new proxy", "image"} {
		if err := all[op]; !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), "claims it, and the transport has no such method") {
			t.Errorf("%s: %v: expected ErrUnsupported that says that the method is missing", op, err)
		}
	}
}

func TestProxiesThatAreNotThere(t *testing.T) {
	s, _ := configured(t, &bare{})
	ctx, key := bound(t), &pb.Parcel{}
	all := map[string]error{}
	_, all["bind memory"] = s.BindMemory(ctx, &pb.BindMemoryRequest{Proxy: 3, Key: key})
	_, all["bind semaphore"] = s.BindSemaphore(ctx, &pb.BindSemaphoreRequest{Proxy: 3, Key: key})
	_, all["start"] = s.StartProxy(ctx, &pb.StartProxyRequest{Proxy: 3, Ring: &pb.Share{Kind: string(framework.ShareLegacyIPC)}})
	_, all["wait"] = s.WaitProxy(ctx, &pb.WaitProxyRequest{Proxy: 3})
	_, all["stop"] = s.StopProxy(ctx, &pb.StopProxyRequest{Proxy: 3})
	for op, err := range all {
		if !errors.Is(err, framework.ErrClosed) || !strings.Contains(err.Error(), "proxy 3") {
			t.Errorf("%s: %v: expected ErrClosed that names the proxy", op, err)
		}
	}
}

// Requests whose shares do not hold together never reach the transport.
func TestRequestsWithBadShares(t *testing.T) {
	inner := &bare{}
	s, _ := configured(t, inner)
	ctx := bound(t)
	for name, share := range map[string]*pb.Share{
		"no descriptor":         {Kind: string(framework.ShareMemFD)},
		"a descriptor too many": {Kind: string(framework.ShareFabric), Fd: 4},
	} {
		bad := []*pb.Parcel{{Shares: []*pb.Share{share}}}
		all := map[string]error{}
		_, all["register"] = s.Register(ctx, &pb.RegisterRequest{Segment: &pb.Segment{Bytes: 77, Shares: bad[0].Shares}})
		_, all["connect"] = s.Connect(ctx, &pb.ConnectRequest{Peers: []*pb.Peer{{Address: bad[0]}}})
		_, all["attach"] = s.Attach(ctx, &pb.AttachRequest{Keys: bad})
		for op, err := range all {
			if !errors.Is(err, framework.ErrInvalid) {
				t.Errorf("%s, %s: %v: expected ErrInvalid", op, name, err)
			}
		}
	}
	if inner.segment.Bytes != 0 {
		t.Errorf("the transport was asked to register %+v", inner.segment)
	}
	// A descriptor that is cited and does not come is waited for as long as the call.
	gone, cancel := context.WithCancel(ctx)
	cancel()
	_, err := s.Register(gone, &pb.RegisterRequest{Call: 2, Segment: &pb.Segment{Shares: []*pb.Share{{Kind: string(framework.ShareMemFD), Fd: 1}}}})
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "descriptor 1 of call 2") {
		t.Errorf("%v: expected an error that names the descriptor", err)
	}
}

// Objects that were made for a host that no longer listens are closed again, and so are the
// descriptors that would have been sent.
func TestAnswersThatCannotBeSent(t *testing.T) {
	file := func() *os.File {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	inner := &bare{}
	s, host := configured(t, inner)
	gone, cancel := context.WithCancel(bound(t))
	cancel()
	first := file()
	inner.share = framework.Share{Kind: framework.ShareMemFD, FD: first}
	if _, err := s.Register(gone, &pb.RegisterRequest{Call: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("register: %v: expected Canceled", err)
	}
	host.Close()
	second := file()
	inner.share = framework.Share{Kind: framework.ShareMemFD, FD: second}
	<-s.fds.Done()
	if _, err := s.Listen(bound(t), &pb.ListenRequest{Call: 2, Kind: pb.Kind_KIND_MEMORY}); err == nil {
		t.Error("listen: descriptors were sent to nobody")
	}
	if len(inner.closed) != 2 || inner.closed[0] != 5 || inner.closed[1] != 6 {
		t.Errorf("closed %v: expected what was made, 5 and 6", inner.closed)
	}
	for _, f := range []*os.File{first, second} {
		if _, err := f.Stat(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("a descriptor of the answer is open: %v", err)
		}
	}
	// A transport whose share lacks its descriptor has made a mistake, and keeps nothing.
	inner.share = framework.Share{Kind: framework.ShareMemFD}
	if _, err := s.Register(bound(t), &pb.RegisterRequest{Call: 3}); !errors.Is(err, framework.ErrInvalid) || len(inner.closed) != 3 {
		t.Errorf("a share without its descriptor: %v, closed %v: expected ErrInvalid", err, inner.closed)
	}
}
