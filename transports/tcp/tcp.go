// Package tcp carries bytes over TCP sockets, for hosts without RDMA. It has port
// channels, and needs nothing but a network.
//
// The plugin of the sender maps the sender's memory and writes from it to sockets;
// that of the receiver reads from sockets into the receiver's memory, and raises
// semaphores. So the kernels copy, and nobody else does.
//
// A proxy has a few connections to each peer, its streams. The first carries
// everything in order: puts, signals, flushes. A large put is cut into stripes, one
// for each stream; the first stream says when the others may be performed, and
// waits for them before it goes on. So no signal overtakes its data, whatever the
// order in which streams deliver.
//
//	tcp.go        what ids stand for
//	config.go     the options
//	link.go       listen, connect, attach
//	region.go     registered memory
//	parcel.go     addresses and keys
//	frame.go      what streams carry
//	handshake.go  how both ends of a stream prove who they are
//	network.go    addresses of this host, and who can reach it
//	accept.go     the listener
//	wire.go       streams outside of Go's poller
//	stream.c      straight into memory, and out of it; reader.go calls it
//	inbound.go    from streams into memory
//	dial.go       how streams are made
//	congestion.go of streams within a host
//	outbound.go   from memory into streams
//	answers.go    what the peer says to that
//	alive.go      hosts that have gone silent
//	slots.go      what the triggers of a proxy cite
//	proxy.go      from the ring to streams
package tcp

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/transports/internal/fault"
	"github.com/mscclpp-go/mscclpp/transports/internal/ids"
)

// Version of the transport.
const Version = "1.0.0"

// Transport implements framework.Transport and framework.Proxier.
type Transport struct {
	config Config
	owner  [16]byte // the maker of a key; random
	stack  string   // names the network stack of this process among all

	proofTime time.Duration // of connections in their handshake; tests have more

	made ids.Table[closer] // *region, *endpoint or *connection; its users are proxies

	mu       sync.Mutex
	listener *listener                 // while there are endpoints
	usual    string                    // congestion control of connections between hosts
	lacking  map[framework.Device]bool // memory of these has no descriptor
}

// New returns a transport. It is how plugins.Serve and programs that embed the
// transport make one.
func New(c Config) (framework.Transport, error) {
	t, err := newTransport(c)
	if err != nil {
		return nil, err
	}
	return t, nil
}

func newTransport(c Config) (*Transport, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	t := &Transport{config: c, stack: networkStack(), proofTime: proofTime, lacking: map[framework.Device]bool{}}
	_, _ = rand.Read(t.owner[:]) // never fails
	return t, nil
}

// Describe says what the transport can do. It has no images: kernels for port
// channels do not depend on the transport.
func (t *Transport) Describe(context.Context) (framework.Description, error) {
	return framework.Description{
		Name:     Name,
		Version:  Version,
		Channels: []framework.Kind{framework.KindPort},
		Signal:   framework.SignalProxy,
		Needs:    []framework.Need{framework.NeedMemFD},
		Proxy:    framework.ProxyPlugin,
		Streams:  t.config.Drive == driveRank,
	}, nil
}

// closer is what ids stand for. The transport's lock is not held.
type closer interface{ close(t *Transport) }

// Close frees what was made under id. Proxies lose the slots that were bound with
// it before this returns.
func (t *Transport) Close(_ context.Context, id framework.ID) error {
	t.made.Close(id, func(m closer) { m.close(t) })
	return nil
}

func find[X closer](t *Transport, id framework.ID, what string) (X, error) {
	return ids.Find[X](&t.made, id, what)
}

func failure(op string, err error) error { return fault.In(Name, op, err) }

var (
	_ framework.Transport = (*Transport)(nil)
	_ framework.Proxier   = (*Transport)(nil)
)

// endpoint is one side of a link: where a peer's proxies connect to.
type endpoint struct {
	owner  *Transport
	config framework.EndpointConfig
	secret [32]byte

	mu     sync.Mutex
	groups map[[16]byte]*inbound
	handed *handed       // streams for the rank that were made from the other end
	ready  chan struct{} // closed when all of them are there
	closed bool
}

// connection is an endpoint that knows where its peer receives.
type connection struct {
	local    *endpoint
	on       framework.ID // the endpoint's
	config   framework.EndpointConfig
	peer     int
	address  address
	sameHost bool // the peer is on this host
}

func (*connection) close(*Transport) {}
