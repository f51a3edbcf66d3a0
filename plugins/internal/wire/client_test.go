package wire

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/plugins/internal/fdsock"
	pb "github.com/mscclpp-go/mscclpp/plugins/proto"
)

// stub is a plugin that answers what a test says, whether or not that makes sense.
type stub struct {
	pb.TransportServiceClient
	configure *pb.ConfigureResponse
	register  *pb.RegisterResponse
	listen    *pb.ListenResponse
	connect   *pb.ConnectResponse
	attach    *pb.AttachResponse
	pieces    [][]byte // of an image
	err       error    // of every call but Close
	trailer   metadata.MD
	closed    []uint64
	deadline  bool // the last call had one
}

func (s *stub) note(ctx context.Context, opts []grpc.CallOption) error {
	_, s.deadline = ctx.Deadline()
	for _, o := range opts {
		if t, ok := o.(grpc.TrailerCallOption); ok {
			*t.TrailerAddr = s.trailer
		}
	}
	return s.err
}

func (s *stub) Configure(ctx context.Context, _ *pb.ConfigureRequest, o ...grpc.CallOption) (*pb.ConfigureResponse, error) {
	return s.configure, s.note(ctx, o)
}

func (s *stub) Register(ctx context.Context, _ *pb.RegisterRequest, o ...grpc.CallOption) (*pb.RegisterResponse, error) {
	return s.register, s.note(ctx, o)
}

func (s *stub) Listen(ctx context.Context, _ *pb.ListenRequest, o ...grpc.CallOption) (*pb.ListenResponse, error) {
	return s.listen, s.note(ctx, o)
}

func (s *stub) Connect(ctx context.Context, _ *pb.ConnectRequest, o ...grpc.CallOption) (*pb.ConnectResponse, error) {
	return s.connect, s.note(ctx, o)
}

func (s *stub) Attach(ctx context.Context, _ *pb.AttachRequest, o ...grpc.CallOption) (*pb.AttachResponse, error) {
	return s.attach, s.note(ctx, o)
}

func (s *stub) Close(_ context.Context, r *pb.CloseRequest, _ ...grpc.CallOption) (*pb.CloseResponse, error) {
	s.closed = append(s.closed, r.GetId())
	return &pb.CloseResponse{}, nil
}

func (s *stub) Image(ctx context.Context, _ *pb.ImageRequest, o ...grpc.CallOption) (grpc.ServerStreamingClient[pb.ImageResponse], error) {
	return &imageStream{stub: s}, s.note(ctx, o)
}

type imageStream struct {
	grpc.ServerStreamingClient[pb.ImageResponse]
	stub *stub
	at   int
}

func (s *imageStream) Recv() (*pb.ImageResponse, error) {
	if s.at == len(s.stub.pieces) {
		return nil, io.EOF
	}
	s.at++
	return &pb.ImageResponse{Data: s.stub.pieces[s.at-1]}, nil
}

// life is that of a process which ends when gone is closed.
type life struct {
	gone  chan struct{}
	cause error
}

func (l *life) Process() string       { return "in this process" }
func (l *life) Gone() <-chan struct{} { return l.gone }
func (l *life) Err() error            { return l.cause }

// sockets is a pair of descriptor sockets.
func sockets(t *testing.T) (host, plugin *fdsock.Conn) {
	t.Helper()
	a, b, err := fdsock.Pair()
	if err != nil {
		t.Fatal(err)
	}
	if host, err = fdsock.New(a, fdsock.Host); err == nil {
		plugin, err = fdsock.New(b, fdsock.Plugin)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.Close(); plugin.Close(); <-host.Done(); <-plugin.Done() })
	return host, plugin
}

func client(t *testing.T, s *stub) (*Client, *life) {
	t.Helper()
	host, _ := sockets(t)
	l := &life{gone: make(chan struct{}), cause: errors.Join(errors.New("it was killed"), framework.ErrPlugin)}
	return &Client{stub: s, fds: host, life: l, name: "test"}, l
}

// bound is far more than any of this takes.
func bound(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// wantError checks the class of an error, that it names operation and transport, and parts
// of its text.
func wantError(t *testing.T, what string, err, class error, parts ...string) {
	t.Helper()
	if framework.Class(err) != class {
		t.Errorf("%s: %v of class %v: expected %v", what, err, framework.Class(err), class)
		return
	}
	for _, p := range append(parts, "test ") {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%s: %v: expected it to say %q", what, err, p)
		}
	}
}

// Answers that no rank could act on are ErrPlugin, and what they made is closed again.
func TestAnswersThatMakeNoSense(t *testing.T) {
	step := &pb.AttachResponse{Id: 9, Steps: []*pb.Step{{Op: pb.StepOp(99)}}}
	cited := &pb.Parcel{Shares: []*pb.Share{{Kind: string(framework.ShareMemFD)}}}
	strange := &pb.Parcel{Shares: []*pb.Share{{Kind: string(framework.ShareLegacyIPC), Fd: 3}}}
	for name, c := range map[string]struct {
		stub   stub
		call   func(*Client) error
		class  error
		want   string
		closed int
	}{
		"no id of memory":       {stub{register: &pb.RegisterResponse{}}, registers, framework.ErrPlugin, "register: plugin gone: the plugin answered with id 0", 0},
		"no descriptor":         {stub{register: &pb.RegisterResponse{Id: 7, Key: cited}}, registers, framework.ErrInvalid, "cites no descriptor", 7},
		"a descriptor too many": {stub{register: &pb.RegisterResponse{Id: 7, Key: strange}}, registers, framework.ErrInvalid, "cites a descriptor", 7},
		"no id of an endpoint":  {stub{listen: &pb.ListenResponse{}}, listens, framework.ErrPlugin, "id 0", 0},
		"an object of no bytes": {stub{listen: &pb.ListenResponse{Id: 8, Create: []*pb.Object{{Kind: 1, Ranks: 2}}}}, listens, framework.ErrPlugin, "object 0 of the endpoint", 8},
		"no id of a connection": {stub{connect: &pb.ConnectResponse{}}, connects, framework.ErrPlugin, "id 0", 0},
		"an unknown step":       {stub{attach: step}, attaches, framework.ErrPlugin, "step 0: verb 99", 9},
	} {
		t.Run(name, func(t *testing.T) {
			x, _ := client(t, &c.stub)
			wantError(t, name, c.call(x), c.class, c.want)
			if c.closed == 0 && len(c.stub.closed) != 0 || c.closed != 0 && (len(c.stub.closed) != 1 || int(c.stub.closed[0]) != c.closed) {
				t.Errorf("%v was closed: expected %d, if not 0", c.stub.closed, c.closed)
			}
			if !c.stub.deadline {
				t.Error("the call had no bound")
			}
		})
	}
}

func registers(c *Client) error {
	_, err := c.Register(context.Background(), framework.Segment{})
	return err
}

func listens(c *Client) error {
	_, err := c.Listen(context.Background(), framework.EndpointConfig{})
	return err
}

func connects(c *Client) error {
	_, err := c.Connect(context.Background(), 1, []framework.Peer{{Rank: 4}})
	return err
}

func attaches(c *Client) error {
	_, err := c.Attach(context.Background(), 1, 0, nil)
	return err
}

func TestDescriptionOfNothing(t *testing.T) {
	x, _ := client(t, &stub{configure: &pb.ConfigureResponse{}})
	wantError(t, "no description", x.Configure(bound(t), nil, nil), framework.ErrPlugin, "configure", "without a name")
	if x.Description().Name != "" || x.Options() != nil {
		t.Errorf("%+v was kept", x.Description())
	}
	good := &pb.Description{Name: "else", Channels: []pb.Kind{1}}
	x, _ = client(t, &stub{configure: &pb.ConfigureResponse{Description: good, Options: []*pb.Option{{Name: "speed"}}}})
	if err := x.Configure(bound(t), nil, nil); err != nil || x.Description().Name != "else" || len(x.Options()) != 1 {
		t.Errorf("%v, %+v", err, x.Description())
	}
	if err := registers(x); err == nil || !strings.HasPrefix(err.Error(), "else register") {
		t.Errorf("%v: expected an error that has the name of the description", err)
	}
}

// Shares that do not hold what their kind needs never reach the plugin.
func TestBadSharesAreNotSent(t *testing.T) {
	s := &stub{register: &pb.RegisterResponse{Id: 1}}
	x, _ := client(t, s)
	for want, share := range map[string]framework.Share{
		"without a descriptor": {Kind: framework.ShareMemFD},
		"with a descriptor":    {Kind: framework.ShareLegacyIPC, FD: os.Stdin},
	} {
		_, err := x.Register(bound(t), framework.Segment{Shares: []framework.Share{share}})
		wantError(t, want, err, framework.ErrInvalid, want)
	}
	if s.deadline {
		t.Error("the plugin was called")
	}
}

// The error for a context that was over before the call does not blame the plugin.
func TestCallWithoutTime(t *testing.T) {
	s := &stub{err: status.Error(codes.DeadlineExceeded, "late")}
	x, _ := client(t, s)
	ctx, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	_, err := x.Attach(ctx, 1, 0, nil)
	if !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "has not answered") || s.deadline {
		t.Errorf("%v, asked %v: expected the deadline, and that the plugin was not asked", err, s.deadline)
	}
}

// The error of gRPC for a call that no server answered becomes one of the contract.
func TestCallsThatFail(t *testing.T) {
	lost := status.Error(codes.Unavailable, "EOF")
	s := &stub{err: lost}
	x, l := client(t, s)
	wantError(t, "a connection that is lost", connects(x), framework.ErrPlugin, "connect rank 4", "connection lost: EOF")

	s.err = status.Error(codes.ResourceExhausted, "too big")
	wantError(t, "a message that is too large", connects(x), framework.ErrInvalid, "message exceeds 64 MiB")

	// A plugin that is alive and says Unavailable means it.
	busy := &framework.Error{Op: "connect", Transport: "test inner", Peer: 4, Err: framework.ErrPlugin}
	s.err, s.trailer = statusOf(busy), trailerOf(busy)
	wantError(t, "a failure of the plugin's own", connects(x), framework.ErrPlugin, "test inner connect rank 4")
	s.trailer = nil

	s.err = status.Error(codes.DeadlineExceeded, "late")
	if err := connects(x); !errors.Is(err, context.DeadlineExceeded) || framework.PeerOf(err) != 4 {
		t.Errorf("%v: expected DeadlineExceeded that names the peer", err)
	}

	// Once the process is gone the cause is known, and no call is made.
	s.err = lost
	close(l.gone)
	wantError(t, "a plugin that died", connects(x), framework.ErrPlugin, "connect rank 4", "it was killed")
	s.deadline = false
	wantError(t, "a plugin that is dead", registers(x), framework.ErrPlugin, "register", "it was killed")
	if s.deadline {
		t.Error("a dead plugin was called")
	}
}

// The cause of death may be known a moment after the connection broke.
func TestCauseIsAwaited(t *testing.T) {
	x, l := client(t, &stub{})
	waiting := make(chan error, 1)
	go func() { waiting <- x.explain(framework.ErrPlugin) }()
	close(l.gone)
	if err := <-waiting; err == nil || !strings.Contains(err.Error(), "it was killed") {
		t.Errorf("%v: expected the cause", err)
	}
	if err := x.explain(framework.ErrInvalid); err != framework.ErrInvalid {
		t.Errorf("%v: expected an error that has another cause as it is", err)
	}
}

func TestImagesAreChecked(t *testing.T) {
	whole := []byte("kernel image")
	sum := sha256.Sum256(whole)
	s := &stub{pieces: [][]byte{whole[:5], nil, whole[5:]}}
	x, _ := client(t, s)
	x.description.Images = []framework.ImageInfo{
		{ID: "good", SHA256: hex.EncodeToString(sum[:]), Bytes: uint64(len(whole))},
		{ID: "torn", SHA256: hex.EncodeToString(make([]byte, 32)), Bytes: 1 << 62}, // not a size to believe
		{ID: "plain"},
	}
	for _, id := range []string{"good", "plain", "not listed"} {
		if got, err := x.Image(bound(t), id); err != nil || string(got) != string(whole) {
			t.Errorf("%s: %q, %v", id, got, err)
		}
	}
	if n := x.imageBytes("torn"); n != MaxImage {
		t.Errorf("%d bytes are kept for an image: expected at most %d", n, MaxImage)
	}
	x.description.Images[1].Bytes = 3
	_, err := x.Image(bound(t), "torn")
	wantError(t, "another file", err, framework.ErrPlugin, "image torn: expected sha256 000000")
	s.err = status.Error(codes.Unimplemented, "no images")
	_, err = x.Image(bound(t), "good")
	wantError(t, "no images", err, framework.ErrUnsupported, "test image", "no images")
}
