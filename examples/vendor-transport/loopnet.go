// Package loopnet is a transport as a vendor writes one: outside of the tree of
// mscclpp-go, in a module of its own, built as a plugin. It has port channels over
// TCP. Small as it is, it is complete: the conformance suite passes, and a job uses
// it by a configuration file alone.
//
// The plugin of the sender drains the ring and writes frames to a TCP connection;
// the plugin of the receiver reads them straight into registered memory, and raises
// semaphores. TCP keeps frames in order, so a signal never overtakes its data. A
// flush is a frame that the receiver answers.
//
//	loopnet.go   the control plane: what is registered, listening, connected
//	wire.go      addresses, keys and frames
//	receive.go   from TCP into memory
//	stream.go    one connection of the sender
//	proxy.go     from the ring to streams
package loopnet

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"slices"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/memfd"
)

const name = "loopnet"

// Transport implements framework.Transport and framework.Proxier.
type Transport struct {
	config Config
	secret [16]byte // a stream must know it: it travels in addresses

	mu       sync.Mutex
	listener net.Listener // made by the first Listen
	last     framework.ID
	made     map[framework.ID]any // *region, *endpoint or *connection
}

type endpoint struct{ cfg framework.EndpointConfig }

// connection is an endpoint that knows where its peer receives.
type connection struct {
	endpoint framework.ID
	peer     int
	address  address
}

// New makes a transport. The program's main hands it to plugins.Serve.
func New(c Config) (framework.Transport, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	t := &Transport{config: c, made: map[framework.ID]any{}}
	rand.Read(t.secret[:]) // never fails
	return t, nil
}

// Describe implements framework.Transport. It has no images: the kernels for port
// channels come with mscclpp-go, since they do not depend on the transport.
func (t *Transport) Describe(context.Context) (framework.Description, error) {
	return framework.Description{
		Name: name, Version: "0.1.0",
		Channels: []framework.Kind{framework.KindPort},
		Signal:   framework.SignalProxy,
		Needs:    []framework.Need{framework.NeedMemFD},
		Proxy:    framework.ProxyPlugin,
	}, nil
}

// Register implements framework.Transport. The memory is mapped here, so that puts
// can be sent from it and received into it.
func (t *Transport) Register(ctx context.Context, seg framework.Segment) (framework.Registration, error) {
	const op = "register"
	if err := ctx.Err(); err != nil {
		return framework.Registration{}, err
	}
	i := slices.IndexFunc(seg.Shares, func(s framework.Share) bool { return s.Kind == framework.ShareMemFD })
	if seg.Device.Type != framework.Host.Type || i < 0 {
		return framework.Registration{}, failure(op, framework.NoPeer, framework.ErrUnsupported,
			"memory of %s with %d shares: expected host memory with one of kind %s", seg.Device, len(seg.Shares), framework.ShareMemFD)
	}
	mem, err := memfd.Open(seg.Shares[i].FD, seg.Offset, seg.Bytes) // checks the range
	if err != nil {
		return framework.Registration{}, wrap(op, framework.NoPeer, err)
	}
	r := &region{mem: mem, users: 1}
	id := t.keep(r)
	return framework.Registration{ID: id, Key: framework.Parcel{Data: key{Owner: t.secret, ID: uint64(id), Bytes: seg.Bytes}.encode()}}, nil
}

// Listen implements framework.Transport.
func (t *Transport) Listen(ctx context.Context, cfg framework.EndpointConfig) (framework.Endpoint, error) {
	const op = "listen"
	if err := ctx.Err(); err != nil {
		return framework.Endpoint{}, err
	}
	if cfg.Kind != framework.KindPort {
		return framework.Endpoint{}, failure(op, framework.NoPeer, framework.ErrUnsupported, "%s links: expected port", cfg.Kind)
	}
	if len(cfg.Ranks) != 2 || cfg.Ranks[0] < 0 || cfg.Ranks[0] >= cfg.Ranks[1] || !slices.Contains(cfg.Ranks, cfg.Rank) {
		return framework.Endpoint{}, failure(op, framework.NoPeer, framework.ErrInvalid,
			"rank %d of %v: expected one of two ascending ranks", cfg.Rank, cfg.Ranks)
	}
	at, err := t.receive()
	if err != nil {
		return framework.Endpoint{}, err
	}
	a := address{Owner: t.secret, Rank: uint32(cfg.Rank), Host: at}
	return framework.Endpoint{
		ID:      t.keep(&endpoint{cfg}),
		Address: framework.Parcel{Data: a.encode()},
		Reach:   []string{t.config.reach(cfg.Facts.Host)},
	}, nil
}

// Connect implements framework.Transport. Nothing is dialed yet: each proxy that
// uses the connection has a stream of its own.
func (t *Transport) Connect(_ context.Context, local framework.ID, peers []framework.Peer) (framework.ID, error) {
	const op = "connect"
	end, err := find[*endpoint](t, op, local)
	if err != nil {
		return 0, err
	}
	if len(peers) != 1 {
		return 0, failure(op, framework.NoPeer, framework.ErrInvalid, "%d peers: expected 1", len(peers))
	}
	peer := peers[0]
	if peer.Rank == end.cfg.Rank || !slices.Contains(end.cfg.Ranks, peer.Rank) {
		return 0, failure(op, peer.Rank, framework.ErrInvalid, "not the other of %v", end.cfg.Ranks)
	}
	a, err := decodeAddress(peer.Address)
	if err != nil {
		return 0, wrap(op, peer.Rank, err)
	}
	if int(a.Rank) != peer.Rank {
		return 0, failure(op, peer.Rank, framework.ErrPeer, "address of rank %d", a.Rank)
	}
	return t.keep(&connection{endpoint: local, peer: peer.Rank, address: a}), nil
}

// Attach implements framework.Transport. There is nothing to map: the recipe is
// empty, but what it would be made from is checked.
func (t *Transport) Attach(_ context.Context, conn, local framework.ID, keys []framework.Parcel) (framework.Attachment, error) {
	const op = "attach"
	c, err := find[*connection](t, op, conn)
	if err != nil {
		return framework.Attachment{}, err
	}
	if local != 0 {
		if _, err := find[*region](t, op, local); err != nil {
			return framework.Attachment{}, err
		}
	}
	if len(keys) != 1 {
		return framework.Attachment{}, failure(op, c.peer, framework.ErrInvalid, "%d keys: expected 1", len(keys))
	}
	_, err = c.key(keys[0])
	return framework.Attachment{}, wrap(op, c.peer, err)
}

// key decodes a key and checks that it comes from the peer of the connection.
func (c *connection) key(p framework.Parcel) (key, error) {
	k, err := decodeKey(p)
	if err == nil && k.Owner != c.address.Owner {
		err = fmt.Errorf("key of another rank's memory: %w", framework.ErrPeer)
	}
	return k, err
}

// Close implements framework.Transport.
func (t *Transport) Close(_ context.Context, id framework.ID) error {
	t.mu.Lock()
	made := t.made[id]
	delete(t.made, id)
	if _, ok := made.(*endpoint); ok {
		for other, x := range t.made {
			if c, ok := x.(*connection); ok && c.endpoint == id {
				delete(t.made, other)
			}
		}
	}
	t.mu.Unlock()
	if r, ok := made.(*region); ok {
		r.release()
	}
	return nil
}

func (t *Transport) keep(made any) framework.ID {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	t.made[t.last] = made
	return t.last
}

// find returns what id names. An id that was closed is a mistake of another kind
// than one that never was.
func find[M any](t *Transport, op string, id framework.ID) (M, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m, ok := t.made[id].(M)
	switch {
	case ok:
		return m, nil
	case t.made[id] == nil && id != 0 && id <= t.last:
		return m, failure(op, framework.NoPeer, framework.ErrClosed, "id %d", id)
	}
	return m, failure(op, framework.NoPeer, framework.ErrInvalid, "id %d: expected a %T", id, m)
}

func failure(op string, peer int, class error, format string, args ...any) error {
	return wrap(op, peer, fmt.Errorf(format+": %w", append(args, class)...))
}

func wrap(op string, peer int, err error) error {
	if err == nil {
		return nil
	}
	return &framework.Error{Op: op, Transport: name, Peer: peer, Err: err}
}

var (
	_ framework.Transport = (*Transport)(nil)
	_ framework.Proxier   = (*Transport)(nil)
)
