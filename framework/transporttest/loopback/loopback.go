// Package loopback is the reference transport: all three kinds of channel over
// sealed memory of one host, in plain Go. It is the shortest complete example of
// the contract, and what the conformance suite is itself tested with. It makes no
// attempt at speed: its proxy is a goroutine. Jobs use transports/shm.
package loopback

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/memfd"
)

// Transport implements framework.Transport and framework.Proxier.
type Transport struct {
	byRank bool // ranks drive port channels

	mu   sync.Mutex
	last framework.ID
	made map[framework.ID]any // *registration, *endpoint or *connection
}

// registration is local memory. It keeps a descriptor for puts that start there.
type registration struct {
	share         framework.Share
	offset, bytes uint64
}

type endpoint struct {
	cfg framework.EndpointConfig
}

// connection is an endpoint that knows the other side.
type connection struct {
	endpoint framework.ID
	cfg      framework.EndpointConfig
	peers    []int           // ascending
	object   framework.Share // switch: what identifies the window; none for the root
}

// New returns a transport with nothing in it.
func New() *Transport { return &Transport{made: map[framework.ID]any{}} }

// NewByRank returns a transport whose port channels are driven by the copy engines of
// the ranks' devices, and which takes memory of any device: keys are what the device
// exports. It is what a transport between GPUs looks like. It has no switch.
func NewByRank() *Transport {
	t := New()
	t.byRank = true
	return t
}

// Describe implements framework.Transport.
func (t *Transport) Describe(context.Context) (framework.Description, error) {
	if t.byRank {
		return framework.Description{
			Name: "loopback", Version: "1.0.0",
			Channels: []framework.Kind{framework.KindMemory, framework.KindPort},
			Signal:   framework.SignalDirect,
			Proxy:    framework.ProxyRank,
		}, nil
	}
	return framework.Description{
		Name: "loopback", Version: "1.0.0",
		Channels: []framework.Kind{framework.KindMemory, framework.KindPort, framework.KindSwitch},
		Signal:   framework.SignalDirect,
		Needs:    []framework.Need{framework.NeedMemFD},
		Proxy:    framework.ProxyPlugin,
	}, nil
}

// Register implements framework.Transport.
func (t *Transport) Register(ctx context.Context, seg framework.Segment) (framework.Registration, error) {
	fail := func(class error, format string, args ...any) (framework.Registration, error) {
		return framework.Registration{}, failure("register", framework.NoPeer, class, format, args...)
	}
	if err := ctx.Err(); err != nil {
		return framework.Registration{}, err
	}
	if t.byRank {
		return t.registerShares(seg)
	}
	if seg.Device.Type != framework.Host.Type {
		return fail(framework.ErrUnsupported, "memory of %s: expected host memory", seg.Device)
	}
	i := slices.IndexFunc(seg.Shares, func(s framework.Share) bool { return s.Kind == framework.ShareMemFD })
	if i < 0 {
		return fail(framework.ErrUnsupported, "memory without a share of kind %s", framework.ShareMemFD)
	}
	if err := memfd.Check(seg.Shares[i].FD, seg.Offset, seg.Bytes); err != nil {
		return framework.Registration{}, &framework.Error{Op: "register", Transport: "loopback", Peer: framework.NoPeer, Err: err}
	}
	kept, err := framework.DupShares([]framework.Share{seg.Shares[i], seg.Shares[i]})
	if err != nil {
		return fail(framework.ErrUnavailable, "%v", err)
	}
	key := framework.Parcel{Data: encode(wireKey, seg.Offset, seg.Bytes), Shares: kept[:1]}
	id := t.keep(&registration{share: kept[1], offset: seg.Offset, bytes: seg.Bytes})
	return framework.Registration{ID: id, Key: key}, nil
}

// registerShares makes a key of all that the memory's device exports.
func (t *Transport) registerShares(seg framework.Segment) (framework.Registration, error) {
	if _, err := framework.ParseDevice(seg.Device.String()); err != nil {
		return framework.Registration{}, failure("register", framework.NoPeer, framework.ErrUnsupported, "%v", err)
	}
	if len(seg.Shares) == 0 || len(seg.Shares) > maxShares {
		return framework.Registration{}, failure("register", framework.NoPeer, framework.ErrUnsupported,
			"memory of %s with %d shares: expected 1 to %d", seg.Device, len(seg.Shares), maxShares)
	}
	for _, s := range seg.Shares {
		if err := checkShare(s, seg.Offset, seg.Bytes); err != nil {
			return framework.Registration{}, failure("register", framework.NoPeer, framework.ErrInvalid, "%v", err)
		}
	}
	shares, err := framework.DupShares(seg.Shares)
	if err != nil {
		return framework.Registration{}, failure("register", framework.NoPeer, framework.ErrUnavailable, "%v", err)
	}
	id := t.keep(&registration{offset: seg.Offset, bytes: seg.Bytes})
	return framework.Registration{ID: id, Key: framework.Parcel{Data: encode(keyOf(len(shares)), seg.Offset, seg.Bytes), Shares: shares}}, nil
}

// Listen implements framework.Transport.
func (t *Transport) Listen(ctx context.Context, cfg framework.EndpointConfig) (framework.Endpoint, error) {
	fail := func(class error, format string, args ...any) (framework.Endpoint, error) {
		return framework.Endpoint{}, failure("listen", framework.NoPeer, class, format, args...)
	}
	if err := ctx.Err(); err != nil {
		return framework.Endpoint{}, err
	}
	least := 2
	switch cfg.Kind {
	case framework.KindMemory, framework.KindPort:
		if len(cfg.Ranks) != 2 {
			return fail(framework.ErrInvalid, "%d ranks on a %s link: expected 2", len(cfg.Ranks), cfg.Kind)
		}
	case framework.KindSwitch:
		if t.byRank {
			return fail(framework.ErrUnsupported, "no switch reaches the memory of devices")
		}
		if cfg.Bytes == 0 {
			return fail(framework.ErrInvalid, "a switch window of 0 bytes")
		}
		least = 1
	default:
		return fail(framework.ErrUnsupported, "channel kind %d", cfg.Kind)
	}
	if len(cfg.Ranks) < least || cfg.Ranks[0] < 0 || !slices.Contains(cfg.Ranks, cfg.Rank) || !ascending(cfg.Ranks) {
		return fail(framework.ErrInvalid, "ranks %v with own rank %d: expected ascending ranks that contain it", cfg.Ranks, cfg.Rank)
	}
	cfg.Ranks = slices.Clone(cfg.Ranks)
	end := framework.Endpoint{
		ID:      t.keep(&endpoint{cfg: cfg}),
		Address: framework.Parcel{Data: encode(wireAddress, uint64(cfg.Kind), uint64(cfg.Rank))},
		Reach:   []string{"host:" + cfg.Facts.Host},
	}
	if cfg.Kind == framework.KindSwitch && cfg.Root() {
		end.Create = []framework.Object{{Kind: framework.ObjectMulticast, Bytes: cfg.Bytes, Ranks: len(cfg.Ranks)}}
	}
	return end, nil
}

func ascending(ranks []int) bool {
	for i := 1; i < len(ranks); i++ {
		if ranks[i-1] >= ranks[i] {
			return false
		}
	}
	return true
}

// Close implements framework.Transport.
func (t *Transport) Close(_ context.Context, id framework.ID) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var err error
	switch m := t.made[id].(type) {
	case *registration:
		err = m.share.Close()
	case *connection:
		err = m.object.Close()
	case *endpoint:
		for other, x := range t.made {
			if c, ok := x.(*connection); ok && c.endpoint == id {
				c.object.Close()
				delete(t.made, other)
			}
		}
	}
	delete(t.made, id)
	return err
}

func (t *Transport) keep(made any) framework.ID {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	t.made[t.last] = made
	return t.last
}

// find returns what id names. The caller holds t.mu, so that Close cannot take
// the descriptors away meanwhile.
func find[M any](t *Transport, op, what string, id framework.ID) (M, error) {
	m, ok := t.made[id].(M)
	switch {
	case ok:
		return m, nil
	case id > 0 && id <= t.last && t.made[id] == nil:
		return m, failure(op, framework.NoPeer, framework.ErrClosed, "%s %d", what, id)
	}
	return m, failure(op, framework.NoPeer, framework.ErrInvalid, "id %d: expected a %s", id, what)
}

func failure(op string, peer int, class error, format string, args ...any) error {
	return &framework.Error{Op: op, Transport: "loopback", Peer: peer, Err: fmt.Errorf(format+": %w", append(args, class)...)}
}

var (
	_ framework.Transport = (*Transport)(nil)
	_ framework.Proxier   = (*Transport)(nil)
)
