// Package toylink joins toy accelerators of one host: a peer's memory is mapped, and kernels and copy engines reach into it. It
// returns data alone; the rank carries it out.
//
//	link.go    what is registered, listening, connected; recipes
//	wire.go    addresses and keys
//	images.go  the kernels, which were built for toys
package toylink

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
)

const (
	name       = "toylink"
	deviceType = "toy"
	shareKind  = framework.ShareKind("fd:toy") // of the device's table
)

// Config has the options under transport.toylink.
type Config struct {
	Kernels string `help:"Folder of the kernel images; empty: mscclpp-transport-toylink.kernels beside the plugin."`
}

// Defaults are the values of a Config without settings of the user.
func (Config) Defaults() Config { return Config{} }

// Transport implements framework.Transport and framework.Imager.
type Transport struct {
	secret [16]byte // of this instance: peers with the same share a process
	images *images

	mu   sync.Mutex
	last framework.ID
	made map[framework.ID]any // *registration, *endpoint or *connection
}

type registration struct{ offset, bytes uint64 }

type endpoint struct {
	cfg framework.EndpointConfig
	own address
}

type connection struct {
	endpoint framework.ID
	peer     int
	same     bool // the peer is in this process
}

// New makes a transport. The program's main hands it to plugins.Serve.
func New(c Config) (framework.Transport, error) {
	images, err := openImages(c.Kernels)
	if err != nil {
		return nil, wrap("open", framework.NoPeer, err)
	}
	t := &Transport{images: images, made: map[framework.ID]any{}}
	rand.Read(t.secret[:]) // never fails
	return t, nil
}

// Describe implements framework.Transport.
func (t *Transport) Describe(context.Context) (framework.Description, error) {
	return framework.Description{
		Name: name, Version: "0.1.0",
		Channels: []framework.Kind{framework.KindMemory, framework.KindPort},
		Signal:   framework.SignalDirect,
		Needs:    []framework.Need{framework.Need(shareKind)},
		Kernels:  t.images.kernels, Images: t.images.set.Infos(),
		Proxy: framework.ProxyRank,
	}, nil
}

// Image implements framework.Imager.
func (t *Transport) Image(_ context.Context, id string) ([]byte, error) {
	data, err := t.images.set.Read(id)
	return data, wrap("image", framework.NoPeer, err)
}

// kinds are the shares that a peer can use: those of the device, and of memory of the host that it has registered.
var kinds = []framework.ShareKind{framework.ShareLocal, shareKind, framework.ShareMemFD}

// usable are the shares of these kinds, in this order.
func usable(all []framework.Share) []framework.Share {
	var out []framework.Share
	for _, k := range kinds {
		if i := slices.IndexFunc(all, func(s framework.Share) bool { return s.Kind == k }); i >= 0 {
			out = append(out, all[i])
		}
	}
	return out
}

// Register implements framework.Transport.
func (t *Transport) Register(ctx context.Context, seg framework.Segment) (framework.Registration, error) {
	const op = "register"
	var none framework.Registration
	if err := ctx.Err(); err != nil {
		return none, err
	}
	offered := usable(seg.Shares)
	if seg.Device.Type != deviceType || len(offered) == 0 || len(offered) == 1 && offered[0].Kind == framework.ShareLocal {
		return none, failure(op, framework.NoPeer, framework.ErrUnsupported, "memory of %s with %d shares: expected memory of a toy with one of kind %s", seg.Device, len(seg.Shares), shareKind)
	}
	for _, s := range offered {
		if s.Kind.HasFD() != (s.FD != nil) {
			return none, failure(op, framework.NoPeer, framework.ErrInvalid, "%s share without its descriptor, or with one", s.Kind)
		}
	}
	if seg.Bytes == 0 || seg.Bytes > maxBytes || seg.Offset > maxBytes {
		return none, failure(op, framework.NoPeer, framework.ErrInvalid, "%d bytes at %d: expected 1 to %d", seg.Bytes, seg.Offset, uint64(maxBytes))
	}
	own, err := framework.DupShares(offered)
	if err != nil {
		return none, wrap(op, framework.NoPeer, err)
	}
	return framework.Registration{
		ID:  t.keep(&registration{seg.Offset, seg.Bytes}),
		Key: framework.Parcel{Data: key{Offset: seg.Offset, Bytes: seg.Bytes}.encode(), Shares: own},
	}, nil
}

// Listen implements framework.Transport.
func (t *Transport) Listen(ctx context.Context, cfg framework.EndpointConfig) (framework.Endpoint, error) {
	const op = "listen"
	if err := ctx.Err(); err != nil {
		return framework.Endpoint{}, err
	}
	if cfg.Kind != framework.KindMemory && cfg.Kind != framework.KindPort || cfg.Device.Type != deviceType {
		return framework.Endpoint{}, failure(op, framework.NoPeer, framework.ErrUnsupported, "%s links of %s: expected memory or port, between toys", cfg.Kind, cfg.Device)
	}
	if len(cfg.Ranks) != 2 || cfg.Ranks[0] < 0 || cfg.Ranks[0] >= cfg.Ranks[1] || !slices.Contains(cfg.Ranks, cfg.Rank) {
		return framework.Endpoint{}, failure(op, framework.NoPeer, framework.ErrInvalid, "rank %d of %v: expected one of two ascending ranks", cfg.Rank, cfg.Ranks)
	}
	own := address{Owner: t.secret, Rank: uint32(cfg.Rank)}
	return framework.Endpoint{
		ID: t.keep(&endpoint{cfg, own}), Address: framework.Parcel{Data: own.encode()}, Reach: reach(cfg.Facts),
	}, nil
}

// reach has a token for the device itself, which ranks on one device share, and for each pair of devices that links join. A
// device that says nothing of links reaches all of its host.
func reach(f framework.Facts) []string {
	self := f.Other[deviceType+"/uuid"]
	if !f.LinksKnown || self == "" {
		return []string{"host:" + f.Host}
	}
	tokens := []string{name + ":" + f.Host + "/" + self}
	for _, l := range f.Links {
		tokens = append(tokens, name+":"+f.Host+"/"+min(self, l.Peer)+"+"+max(self, l.Peer))
	}
	return tokens
}

// Connect implements framework.Transport.
func (t *Transport) Connect(_ context.Context, local framework.ID, peers []framework.Peer) (framework.ID, error) {
	const op = "connect"
	end, err := find[*endpoint](t, op, local)
	if err != nil {
		return 0, err
	}
	if len(peers) != 1 || peers[0].Rank == end.cfg.Rank || !slices.Contains(end.cfg.Ranks, peers[0].Rank) {
		return 0, failure(op, framework.NoPeer, framework.ErrInvalid, "%d peers: expected the other of %v", len(peers), end.cfg.Ranks)
	}
	a, err := decodeAddress(peers[0].Address)
	if err == nil && int(a.Rank) != peers[0].Rank {
		err = fmt.Errorf("address of rank %d: %w", a.Rank, framework.ErrPeer)
	}
	if err != nil {
		return 0, wrap(op, peers[0].Rank, err)
	}
	return t.keep(&connection{endpoint: local, peer: peers[0].Rank, same: a.Owner == t.secret}), nil
}

// Attach implements framework.Transport: one mapping, of the peer's memory.
func (t *Transport) Attach(_ context.Context, conn, local framework.ID, keys []framework.Parcel) (framework.Attachment, error) {
	const op = "attach"
	var none framework.Attachment
	c, err := find[*connection](t, op, conn)
	if err != nil {
		return none, err
	}
	if local != 0 {
		if _, err := find[*registration](t, op, local); err != nil {
			return none, err
		}
	}
	if len(keys) != 1 {
		return none, failure(op, c.peer, framework.ErrInvalid, "%d keys: expected 1", len(keys))
	}
	k, err := decodeKey(keys[0].Data)
	if err != nil {
		return none, wrap(op, c.peer, err)
	}
	offered := usable(keys[0].Shares)
	if !c.same { // the device that maps a local share of its own process recognizes it: it is the last that others try
		slices.SortStableFunc(offered, func(a, b framework.Share) int { return local1(a) - local1(b) })
	}
	if len(offered) == 0 {
		return none, failure(op, c.peer, framework.ErrPeer, "key with %d shares: expected one of kind %s", len(keys[0].Shares), shareKind)
	}
	shares, err := framework.DupShares(offered)
	if err != nil {
		return none, wrap(op, c.peer, err)
	}
	return framework.Attachment{
		Mappings: []framework.Mapping{{Role: framework.RolePeer, Peer: c.peer, Shares: shares, Offset: k.Offset, Bytes: k.Bytes}},
		Steps:    []framework.Step{{Op: framework.StepMap, Mapping: 0}},
	}, nil
}

// local1 is 1 for shares within a process.
func local1(s framework.Share) int {
	if s.Kind == framework.ShareLocal {
		return 1
	}
	return 0
}

// Close implements framework.Transport.
func (t *Transport) Close(_ context.Context, id framework.ID) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	made := t.made[id]
	delete(t.made, id)
	if _, ok := made.(*endpoint); ok {
		for other, x := range t.made {
			if c, ok := x.(*connection); ok && c.endpoint == id {
				delete(t.made, other)
			}
		}
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

// find returns what id names. An id that was closed is a mistake of another kind than one that never was.
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
	_ framework.Imager    = (*Transport)(nil)
)
