package shm

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/mscclpp-go/mscclpp/framework"
)

// maxRanks bounds a switch group: its window needs address space for each member.
const maxRanks = 1 << 16

// endpoint is one side of a link.
type endpoint struct {
	config framework.EndpointConfig
	own    address
}

func (*endpoint) close() {}

// connection is an endpoint that knows its peers.
type connection struct {
	endpoint framework.ID
	config   framework.EndpointConfig
	peers    []int           // ascending
	object   framework.Share // of a switch group, where its root is a peer
}

func (c *connection) close() { _ = c.object.Close() }

// Listen makes one side of a link.
func (t *Transport) Listen(ctx context.Context, cfg framework.EndpointConfig) (framework.Endpoint, error) {
	e, err := t.listen(ctx, cfg)
	if err != nil {
		return framework.Endpoint{}, failure("listen", framework.NoPeer, err)
	}
	return e, nil
}

func (t *Transport) listen(ctx context.Context, cfg framework.EndpointConfig) (framework.Endpoint, error) {
	if err := ctx.Err(); err != nil {
		return framework.Endpoint{}, err
	}
	if err := checkConfig(cfg); err != nil {
		return framework.Endpoint{}, err
	}
	host := cfg.Facts.Host
	if host == "" {
		host = t.host
	}
	if len(host) > maxHost {
		return framework.Endpoint{}, fmt.Errorf("%w: name of the host has %d bytes: expected up to %d", framework.ErrInvalid, len(host), maxHost)
	}
	cfg.Ranks = slices.Clone(cfg.Ranks)
	own := address{kind: cfg.Kind, rank: uint32(cfg.Rank), digest: digest(cfg), host: host}
	e := framework.Endpoint{
		ID:      t.keep(&endpoint{config: cfg, own: own}),
		Address: framework.Parcel{Data: own.append(nil)},
		Reach:   []string{"host:" + host},
	}
	if cfg.Kind == framework.KindSwitch && cfg.Root() {
		e.Create = []framework.Object{{Kind: framework.ObjectMulticast, Bytes: cfg.Bytes, Ranks: len(cfg.Ranks)}}
	}
	return e, nil
}

func checkConfig(cfg framework.EndpointConfig) error {
	members := 2
	switch cfg.Kind {
	case framework.KindMemory, framework.KindPort:
	case framework.KindSwitch:
		members = len(cfg.Ranks)
		if cfg.Bytes == 0 || members < 1 || members > maxRanks {
			return fmt.Errorf("%w: switch of %d bytes for %d ranks: expected at least 1 byte and 1 to %d ranks", framework.ErrInvalid, cfg.Bytes, members, maxRanks)
		}
	default:
		return fmt.Errorf("%w: channels of %v", framework.ErrUnsupported, cfg.Kind)
	}
	if !onHost(cfg.Device) {
		return fmt.Errorf("%w: kernels on %s: %s serves ranks whose kernels run on the CPU", framework.ErrUnsupported, cfg.Device, Name)
	}
	ascending := true
	for i := 1; i < len(cfg.Ranks); i++ {
		ascending = ascending && cfg.Ranks[i-1] < cfg.Ranks[i]
	}
	if len(cfg.Ranks) != members || !ascending || cfg.Ranks[0] < 0 || cfg.Ranks[members-1] > math.MaxInt32 || !slices.Contains(cfg.Ranks, cfg.Rank) {
		return fmt.Errorf("%w: ranks %v with own rank %d: expected %d, ascending, with the own one", framework.ErrInvalid, cfg.Ranks, cfg.Rank, members)
	}
	return nil
}

// Connect checks that the peers' addresses belong to the same link.
func (t *Transport) Connect(ctx context.Context, local framework.ID, peers []framework.Peer) (framework.ID, error) {
	id, err := t.connect(ctx, local, peers)
	if err != nil {
		return 0, failure("connect", peerOf(err), err)
	}
	return id, nil
}

func (t *Transport) connect(ctx context.Context, local framework.ID, peers []framework.Peer) (framework.ID, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	e, err := find[*endpoint](t, local, "endpoint")
	if err != nil {
		return 0, err
	}
	others := slices.DeleteFunc(slices.Clone(e.config.Ranks), func(r int) bool { return r == e.config.Rank })
	if !slices.EqualFunc(peers, others, func(p framework.Peer, r int) bool { return p.Rank == r }) {
		return 0, fmt.Errorf("%w: %d peers: expected ranks %v", framework.ErrInvalid, len(peers), others)
	}
	c := &connection{endpoint: local, config: e.config, peers: others}
	for _, p := range peers {
		object, err := e.check(p)
		if err != nil {
			c.close()
			return 0, &framework.Error{Peer: p.Rank, Err: err}
		}
		if object.FD != nil {
			c.object = object
		}
	}
	return t.keep(c), nil
}

// check looks at one peer's address, and keeps the object that a root sent along.
func (e *endpoint) check(p framework.Peer) (framework.Share, error) {
	var none framework.Share
	a, err := decodeAddress(p.Address.Data)
	if err != nil {
		return none, err
	}
	switch {
	case a.host != e.own.host:
		return none, fmt.Errorf("%w: it is on host %q, this is %q", framework.ErrPeer, a.host, e.own.host)
	case a.kind != e.own.kind:
		return none, fmt.Errorf("%w: address of a %v link: expected %v", framework.ErrPeer, a.kind, e.own.kind)
	case int(a.rank) != p.Rank:
		return none, fmt.Errorf("%w: address of rank %d", framework.ErrPeer, a.rank)
	case a.digest != e.own.digest:
		return none, fmt.Errorf("%w: address of a link of another group, with other ranks, or of another size", framework.ErrPeer)
	}
	want := 0
	if a.kind == framework.KindSwitch && p.Rank == e.config.Ranks[0] {
		want = 1
	}
	if len(p.Address.Shares) != want {
		return none, fmt.Errorf("%w: address with %d shares: expected %d", framework.ErrPeer, len(p.Address.Shares), want)
	}
	if want == 0 {
		return none, nil
	}
	s := p.Address.Shares[0]
	if s.Kind != framework.ShareMemFD || s.FD == nil {
		return none, fmt.Errorf("%w: group object as %s: expected %s", framework.ErrPeer, s.Kind, framework.ShareMemFD)
	}
	return s.Dup()
}

// peerOf returns the rank that an inner error blames, so that the outer one, which
// has the operation, says it instead.
func peerOf(err error) int { return framework.PeerOf(err) }
