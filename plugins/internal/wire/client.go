package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/plugins/internal/fdsock"
	pb "github.com/mscclpp-go/mscclpp/plugins/proto"
)

// CallBound limits a call whose context has no deadline, so that a stopped plugin
// cannot hold its host forever.
const CallBound = 60 * time.Second

// promptBound is after how long the error of a call that was canceled says that the plugin
// had not answered. A call takes some milliseconds, unless it waits for a peer.
const promptBound = time.Second

// causeBound is how long a call that lost its connection waits for the cause.
const causeBound = 100 * time.Millisecond

// Client is the host's side of a plugin: a framework.Transport with every optional method. A call
// that the plugin does not claim fails with ErrUnsupported.
type Client struct {
	stub  pb.TransportServiceClient
	fds   *fdsock.Conn
	life  Life
	calls atomic.Uint64

	name        string // in errors: the file until the description is known
	description framework.Description
	options     []*pb.Option
}

// Life is what a client knows about its plugin's process.
type Life interface {
	Gone() <-chan struct{} // closed when the process is gone
	Err() error            // why, then
	Process() string       // which one it is, and its state
}

// NewClient makes a client. It closes none of its arguments.
func NewClient(name string, conn grpc.ClientConnInterface, fds *fdsock.Conn, life Life) *Client {
	return &Client{stub: pb.NewTransportServiceClient(conn), fds: fds, life: life, name: name}
}

// Configure makes the plugin's transport, and tells the plugin which kernels this program
// can launch: of its ABI, with arguments of these layouts. It is called once, before
// anything else.
func (c *Client) Configure(ctx context.Context, options []byte, layouts []string) error {
	resp, err := do(ctx, c, request{op: "configure"}, c.stub.Configure, &pb.ConfigureRequest{Options: options, DeviceAbi: kernel.ABI, Layouts: layouts})
	if err != nil {
		return err
	}
	d := DescriptionIn(resp.GetDescription())
	if err := checkDescription(d); err != nil {
		return c.wrap("configure", framework.NoPeer, err)
	}
	c.name, c.description, c.options = d.Name, d, resp.GetOptions()
	return nil
}

// Schema asks for the options that Configure accepts.
func (c *Client) Schema(ctx context.Context) ([]*pb.Option, error) {
	resp, err := do(ctx, c, request{op: "schema"}, c.stub.Schema, &pb.SchemaRequest{})
	return resp.GetOptions(), err
}

// Description returns what Configure learned.
func (c *Client) Description() framework.Description { return c.description }

// Options returns what Configure learned.
func (c *Client) Options() []*pb.Option { return c.options }

// request says how a call is made.
type request struct {
	op      string
	peer    int     // NoPeer is set by do when Connect has not
	blame   bool    // peer is meant
	number  uint64  // of a call that may carry descriptors; 0 for none
	pack    *packer // descriptors that the request cites
	endless bool    // WaitProxy: no bound of its own
}

// do makes one call.
func do[Req, Resp any](ctx context.Context, c *Client, r request, f func(context.Context, *Req, ...grpc.CallOption) (*Resp, error), req *Req) (*Resp, error) {
	if !r.blame {
		r.peer = framework.NoPeer
	}
	if _, ok := ctx.Deadline(); !ok && !r.endless {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, CallBound)
		defer cancel()
	}
	select {
	case <-c.life.Gone():
		return nil, c.wrap(r.op, r.peer, c.life.Err())
	default:
	}
	if err := ctx.Err(); err != nil && !r.endless { // the plugin has not been asked, so it is not late
		return nil, c.wrap(r.op, r.peer, err)
	}
	if r.pack != nil {
		if err := r.pack.send(ctx, c.fds, r.number); err != nil {
			c.fds.Abandon(r.number)
			return nil, c.wrap(r.op, r.peer, c.explain(err))
		}
	}
	var trailer metadata.MD
	start := time.Now()
	resp, err := f(ctx, req, grpc.Trailer(&trailer))
	if err != nil {
		if r.number != 0 {
			c.fds.Abandon(r.number)
		}
		return nil, c.failed(ctx, r, err, trailer, time.Since(start))
	}
	return resp, nil
}

// failed turns the error of a call that took so long into one of the contract.
func (c *Client) failed(ctx context.Context, r request, err error, trailer metadata.MD, took time.Duration) error {
	switch status.Code(err) {
	case codes.DeadlineExceeded:
		if len(trailer.Get(FailureKey)) > 0 || r.endless {
			break
		}
		return c.wrap(r.op, r.peer, c.late(took, context.DeadlineExceeded))
	case codes.Unavailable, codes.Canceled, codes.Internal:
		if len(trailer.Get(FailureKey)) > 0 {
			break
		}
		if err := ctx.Err(); err != nil {
			if took < promptBound || r.endless {
				break
			}
			if cause := context.Cause(ctx); !errors.Is(cause, err) {
				err = fmt.Errorf("%w: %w", err, cause)
			} else {
				err = cause
			}
			return c.wrap(r.op, r.peer, c.late(took, err))
		}
		// The connection broke. The cause of death is known in a moment.
		err := fmt.Errorf("%w: connection lost: %s", framework.ErrPlugin, status.Convert(err).Message())
		return c.wrap(r.op, r.peer, c.explain(err))
	case codes.ResourceExhausted:
		return c.wrap(r.op, r.peer, fmt.Errorf("%w: message exceeds %d MiB: %s", framework.ErrInvalid, MaxMessage>>20, status.Convert(err).Message()))
	}
	return c.wrap(r.op, r.peer, errorFrom(err, trailer))
}

// late is the error of a call that ended without an answer: err alone would not tell
// whether a peer is late or the plugin.
func (c *Client) late(took time.Duration, err error) error {
	return fmt.Errorf("the plugin has not answered for %v (%s): %w", took.Round(time.Millisecond), c.life.Process(), err)
}

// explain replaces an error that says that the plugin is gone by one that says why.
func (c *Client) explain(err error) error {
	if !errors.Is(err, framework.ErrPlugin) {
		return err
	}
	timer := time.NewTimer(causeBound)
	defer timer.Stop()
	select {
	case <-c.life.Gone():
		return c.life.Err()
	case <-timer.C:
		return err
	}
}

// wrap names operation, transport and peer, unless the plugin did.
func (c *Client) wrap(op string, peer int, err error) error {
	if e, ok := err.(*framework.Error); ok && e.Transport != "" { //nolint:errorlint // the outermost error only
		return err
	}
	return &framework.Error{Op: op, Transport: c.name, Peer: peer, Err: err}
}

// open starts a call that may carry descriptors. The returned function ends it.
func (c *Client) open(op string) (request, func()) {
	n := c.calls.Add(1)
	c.fds.Begin(n)
	return request{op: op, number: n, pack: &packer{}}, func() { c.fds.End(n) }
}

// take claims the descriptors of an answer: f converts it. They become the
// caller's, or are closed.
func take[T any](ctx context.Context, c *Client, r request, f func(*opener) T) (T, error) {
	o := &opener{ctx: ctx, fds: c.fds, call: r.number}
	v := f(o)
	if o.err == nil {
		o.keep()
		return v, nil
	}
	o.close()
	var zero T
	return zero, c.wrap(r.op, framework.NoPeer, c.explain(o.err))
}

// Describe implements framework.Transport.
func (c *Client) Describe(ctx context.Context) (framework.Description, error) {
	resp, err := do(ctx, c, request{op: "describe"}, c.stub.Describe, &pb.DescribeRequest{})
	if err != nil {
		return framework.Description{}, err
	}
	return DescriptionIn(resp.GetDescription()), nil
}

// Probe implements framework.Prober.
func (c *Client) Probe(ctx context.Context, facts framework.Facts) (framework.Live, error) {
	resp, err := do(ctx, c, request{op: "probe"}, c.stub.Probe, &pb.ProbeRequest{Facts: factsOut(facts)})
	if err != nil {
		return framework.Live{}, err
	}
	return liveIn(resp), nil
}

// Register implements framework.Transport.
func (c *Client) Register(ctx context.Context, seg framework.Segment) (framework.Registration, error) {
	r, end := c.open("register")
	defer end()
	req := &pb.RegisterRequest{Call: r.number, Segment: &pb.Segment{
		Device: deviceOut(seg.Device), Shares: r.pack.sharesOf(seg.Shares), Offset: seg.Offset, Bytes: seg.Bytes,
	}}
	resp, err := do(ctx, c, r, c.stub.Register, req)
	if err != nil {
		return framework.Registration{}, err
	}
	id := framework.ID(resp.GetId())
	key, err := take(ctx, c, r, func(o *opener) framework.Parcel { return o.parcel(resp.GetKey()) })
	if err == nil {
		err = c.valid(r.op, id)
	}
	if err != nil {
		return framework.Registration{}, c.release(ctx, id, err, key.Close)
	}
	return framework.Registration{ID: id, Key: key}, nil
}

// Listen implements framework.Transport.
func (c *Client) Listen(ctx context.Context, cfg framework.EndpointConfig) (framework.Endpoint, error) {
	r, end := c.open("listen")
	defer end()
	req := configOut(cfg)
	req.Call = r.number
	resp, err := do(ctx, c, r, c.stub.Listen, req)
	if err != nil {
		return framework.Endpoint{}, err
	}
	id := framework.ID(resp.GetId())
	address, err := take(ctx, c, r, func(o *opener) framework.Parcel { return o.parcel(resp.GetAddress()) })
	e := framework.Endpoint{ID: id, Address: address, Create: objectsIn(resp.GetCreate()), Reach: resp.GetReach()}
	if err == nil {
		err = c.valid(r.op, id)
	}
	if err == nil {
		err = c.sane(r.op, checkEndpoint(e))
	}
	if err != nil {
		return framework.Endpoint{}, c.release(ctx, id, err, address.Close)
	}
	return e, nil
}

// valid rejects an id that the contract does not allow.
func (c *Client) valid(op string, id framework.ID) error {
	if id != 0 {
		return nil
	}
	return c.wrap(op, framework.NoPeer, fmt.Errorf("%w: the plugin answered with id 0", framework.ErrPlugin))
}

// sane names the operation of an answer that was checked.
func (c *Client) sane(op string, err error) error {
	if err == nil {
		return nil
	}
	return c.wrap(op, framework.NoPeer, err)
}

// release closes what a call made whose answer cannot be used.
func (c *Client) release(ctx context.Context, id framework.ID, err error, descriptors func() error) error {
	_ = descriptors()
	if id != 0 {
		_ = c.Close(context.WithoutCancel(ctx), id)
	}
	return err
}

// Connect implements framework.Transport.
func (c *Client) Connect(ctx context.Context, local framework.ID, peers []framework.Peer) (framework.ID, error) {
	r, end := c.open("connect")
	defer end()
	if len(peers) == 1 {
		r.peer, r.blame = peers[0].Rank, true
	}
	req := &pb.ConnectRequest{Call: r.number, Local: uint64(local)}
	for _, p := range peers {
		req.Peers = append(req.Peers, &pb.Peer{Rank: i32(p.Rank), Address: r.pack.parcel(p.Address)})
	}
	resp, err := do(ctx, c, r, c.stub.Connect, req)
	if err != nil {
		return 0, err
	}
	id := framework.ID(resp.GetConn())
	return id, c.valid(r.op, id)
}

// Attach implements framework.Transport.
func (c *Client) Attach(ctx context.Context, conn, local framework.ID, keys []framework.Parcel) (framework.Attachment, error) {
	r, end := c.open("attach")
	defer end()
	req := &pb.AttachRequest{Call: r.number, Conn: uint64(conn), Local: uint64(local)}
	for _, k := range keys {
		req.Keys = append(req.Keys, r.pack.parcel(k))
	}
	resp, err := do(ctx, c, r, c.stub.Attach, req)
	if err != nil {
		return framework.Attachment{}, err
	}
	a, err := take(ctx, c, r, func(o *opener) framework.Attachment { return o.attachment(resp) })
	if err == nil {
		err = c.sane(r.op, checkAttachment(a))
	}
	if err != nil {
		return framework.Attachment{}, c.release(ctx, framework.ID(resp.GetId()), err, a.Close)
	}
	return a, nil
}

// Close implements framework.Transport.
func (c *Client) Close(ctx context.Context, id framework.ID) error {
	_, err := do(ctx, c, request{op: "close"}, c.stub.Close, &pb.CloseRequest{Id: uint64(id)})
	return err
}

// Image implements framework.Imager.
func (c *Client) Image(ctx context.Context, id string) ([]byte, error) {
	out := make([]byte, 0, c.imageBytes(id))
	_, err := do(ctx, c, request{op: "image"}, func(ctx context.Context, req *pb.ImageRequest, opts ...grpc.CallOption) (*struct{}, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := c.stub.Image(ctx, req, opts...)
		if err != nil {
			return nil, err
		}
		for {
			piece, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return &struct{}{}, nil
			}
			if err != nil {
				return nil, err
			}
			if len(out)+len(piece.GetData()) > MaxImage {
				return nil, status.Errorf(codes.ResourceExhausted, "image %s is larger than %d bytes", id, MaxImage)
			}
			out = append(out, piece.GetData()...)
		}
	}, &pb.ImageRequest{Id: id})
	if err != nil {
		return nil, err
	}
	return out, c.checkImage(id, out)
}
