package wire

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/plugins/internal/fdsock"
	pb "github.com/mscclpp-go/mscclpp/plugins/proto"
)

// Factory makes the transport of a plugin.
type Factory struct {
	Options []*pb.Option                                      // the options that Create understands
	Create  func(options []byte) (framework.Transport, error) // from a JSON object
	Host    func(abi uint32, layouts []string)                // called before Create with what the host can launch; nil: it is not called
}

// Server answers the calls of a host with a transport. It borrows descriptors of
// requests for the time of the call, as the contract wants, and hands those of
// answers over.
type Server struct {
	pb.UnimplementedTransportServiceServer
	factory Factory
	fds     *fdsock.Conn

	configuring sync.Mutex

	mu          sync.Mutex
	transport   framework.Transport
	description framework.Description
	proxies     map[uint64]framework.Proxy
	lastProxy   uint64
}

// NewServer makes a server. The descriptor socket is not closed by it.
func NewServer(f Factory, fds *fdsock.Conn) *Server {
	return &Server{factory: f, fds: fds, proxies: map[uint64]framework.Proxy{}}
}

// ServerOptions are the gRPC options that a server of this service needs.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(MaxMessage),
		grpc.MaxSendMsgSize(MaxMessage),
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			resp, err := handle(ctx, req)
			if err != nil {
				// An error here leaves the status, which is enough.
				_ = grpc.SetTrailer(ctx, trailerOf(err))
				err = statusOf(err)
			}
			return resp, err
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			if _, ours := srv.(*Server); !ours {
				return handle(srv, stream)
			}
			err := handle(srv, stream)
			if err != nil {
				stream.SetTrailer(trailerOf(err))
				err = statusOf(err)
			}
			return err
		}),
	}
}

// Transport returns what Configure made, nil before.
func (s *Server) Transport() framework.Transport {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.transport
}

func (s *Server) configured() (framework.Transport, framework.Description, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.transport == nil {
		return nil, framework.Description{}, fmt.Errorf("%w: expected Configure before any other call", framework.ErrInvalid)
	}
	return s.transport, s.description, nil
}

// Schema implements the service.
func (s *Server) Schema(context.Context, *pb.SchemaRequest) (*pb.SchemaResponse, error) {
	return &pb.SchemaResponse{Options: s.factory.Options}, nil
}

// Configure implements the service.
func (s *Server) Configure(ctx context.Context, req *pb.ConfigureRequest) (*pb.ConfigureResponse, error) {
	s.configuring.Lock()
	defer s.configuring.Unlock()
	if s.Transport() != nil {
		return nil, fmt.Errorf("%w: Configure was called before", framework.ErrInvalid)
	}
	if s.factory.Host != nil {
		s.factory.Host(req.GetDeviceAbi(), req.GetLayouts())
	}
	t, err := s.factory.Create(req.GetOptions())
	if err != nil {
		return nil, err
	}
	if t == nil {
		return nil, fmt.Errorf("%w: the plugin made no transport", framework.ErrPlugin)
	}
	d, err := t.Describe(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.transport, s.description = t, d
	s.mu.Unlock()
	return &pb.ConfigureResponse{Description: DescriptionOut(d), Options: s.factory.Options}, nil
}

// Describe implements the service.
func (s *Server) Describe(ctx context.Context, _ *pb.DescribeRequest) (*pb.DescribeResponse, error) {
	t, _, err := s.configured()
	if err != nil {
		return nil, err
	}
	d, err := t.Describe(ctx)
	if err != nil {
		return nil, err
	}
	return &pb.DescribeResponse{Description: DescriptionOut(d)}, nil
}

// Probe implements the service.
func (s *Server) Probe(ctx context.Context, req *pb.ProbeRequest) (*pb.ProbeResponse, error) {
	t, d, err := s.configured()
	if err != nil {
		return nil, err
	}
	p, ok := t.(framework.Prober)
	if !ok || !d.Probe {
		return nil, claim(d, "probe", "Probe", d.Probe)
	}
	live, err := p.Probe(ctx, factsIn(req.GetFacts()))
	if err != nil {
		return nil, err
	}
	return liveOut(live), nil
}

// claim is the error for a call that the description does not claim, or that it claims
// and the transport has no method for.
func claim(d framework.Description, op, what string, claimed bool) error {
	why := "does not claim it"
	if claimed {
		why = "claims it, and the transport has no such method"
	}
	return &framework.Error{
		Op: op, Transport: d.Name, Peer: framework.NoPeer,
		Err: fmt.Errorf("%w: Description.%s %s", framework.ErrUnsupported, what, why),
	}
}

// serve runs one call that may carry descriptors: open claims those of the
// request, which are closed when the call ends; answer sends those of the result,
// which are closed as well, for the host has its own now.
func (s *Server) opener(ctx context.Context, call uint64) (*opener, func()) {
	o := &opener{ctx: ctx, fds: s.fds, call: call}
	return o, func() {
		o.close()
		s.fds.End(call)
	}
}

// answer sends the descriptors of a result. When the host no longer listens, or
// cannot be reached, what was made under id is closed again.
func (s *Server) answer(ctx context.Context, t framework.Transport, p *packer, call uint64, id framework.ID) error {
	err := ctx.Err()
	if err == nil {
		err = p.send(ctx, s.fds, call)
	}
	if err != nil && id != 0 {
		_ = t.Close(context.WithoutCancel(ctx), id)
	}
	return err
}

// Register implements the service.
func (s *Server) Register(ctx context.Context, req *pb.RegisterRequest) (*pb.RegisterResponse, error) {
	o, end := s.opener(ctx, req.GetCall())
	defer end()
	m := req.GetSegment()
	seg := framework.Segment{Device: deviceIn(m.GetDevice()), Shares: o.sharesOf(m.GetShares()), Offset: m.GetOffset(), Bytes: m.GetBytes()}
	t, _, err := s.configured()
	if err == nil {
		err = o.err
	}
	if err != nil {
		return nil, err
	}
	r, err := t.Register(ctx, seg)
	if err != nil {
		return nil, err
	}
	defer r.Key.Close()
	p := &packer{}
	resp := &pb.RegisterResponse{Id: uint64(r.ID), Key: p.parcel(r.Key)}
	return resp, s.answer(ctx, t, p, req.GetCall(), r.ID)
}

// Listen implements the service.
func (s *Server) Listen(ctx context.Context, req *pb.ListenRequest) (*pb.ListenResponse, error) {
	defer s.fds.End(req.GetCall())
	t, _, err := s.configured()
	if err != nil {
		return nil, err
	}
	cfg := configIn(req)
	if cfg.Kind < framework.KindMemory || cfg.Kind > framework.KindSwitch {
		return nil, fmt.Errorf("%w: listen for a link of kind %d: expected a kind of this version", framework.ErrInvalid, req.GetKind())
	}
	e, err := t.Listen(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer e.Address.Close()
	p := &packer{}
	resp := &pb.ListenResponse{Id: uint64(e.ID), Address: p.parcel(e.Address), Create: objectsOut(e.Create), Reach: e.Reach}
	return resp, s.answer(ctx, t, p, req.GetCall(), e.ID)
}

// Connect implements the service.
func (s *Server) Connect(ctx context.Context, req *pb.ConnectRequest) (*pb.ConnectResponse, error) {
	o, end := s.opener(ctx, req.GetCall())
	defer end()
	peers := make([]framework.Peer, len(req.GetPeers()))
	for i, m := range req.GetPeers() {
		peers[i] = framework.Peer{Rank: int(m.GetRank()), Address: o.parcel(m.GetAddress())}
	}
	t, _, err := s.configured()
	if err == nil {
		err = o.err
	}
	if err != nil {
		return nil, err
	}
	conn, err := t.Connect(ctx, framework.ID(req.GetLocal()), peers)
	if err != nil {
		return nil, err
	}
	return &pb.ConnectResponse{Conn: uint64(conn)}, s.answer(ctx, t, &packer{}, req.GetCall(), conn)
}

// Attach implements the service.
func (s *Server) Attach(ctx context.Context, req *pb.AttachRequest) (*pb.AttachResponse, error) {
	o, end := s.opener(ctx, req.GetCall())
	defer end()
	keys := make([]framework.Parcel, len(req.GetKeys()))
	for i, m := range req.GetKeys() {
		keys[i] = o.parcel(m)
	}
	t, _, err := s.configured()
	if err == nil {
		err = o.err
	}
	if err != nil {
		return nil, err
	}
	a, err := t.Attach(ctx, framework.ID(req.GetConn()), framework.ID(req.GetLocal()), keys)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	p := &packer{}
	resp := p.attachment(a)
	return resp, s.answer(ctx, t, p, req.GetCall(), a.ID)
}

// Close implements the service.
func (s *Server) Close(ctx context.Context, req *pb.CloseRequest) (*pb.CloseResponse, error) {
	t, _, err := s.configured()
	if err != nil {
		return nil, err
	}
	return &pb.CloseResponse{}, t.Close(ctx, framework.ID(req.GetId()))
}

// Image implements the service.
func (s *Server) Image(req *pb.ImageRequest, stream grpc.ServerStreamingServer[pb.ImageResponse]) error {
	t, d, err := s.configured()
	if err != nil {
		return err
	}
	i, ok := t.(framework.Imager)
	if !ok || len(d.Images) == 0 {
		return claim(d, "image", "Images", len(d.Images) > 0)
	}
	data, err := i.Image(stream.Context(), req.GetId())
	for err == nil && len(data) > 0 {
		n := min(len(data), ImagePiece)
		err = stream.Send(&pb.ImageResponse{Data: data[:n]})
		data = data[n:]
	}
	return err
}
