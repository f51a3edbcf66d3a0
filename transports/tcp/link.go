package tcp

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/topo"
	"github.com/mscclpp-go/mscclpp/transports/internal/fault"
	"github.com/mscclpp-go/mscclpp/transports/internal/link"
)

// Listen makes one side of a link.
func (t *Transport) Listen(ctx context.Context, cfg framework.EndpointConfig) (framework.Endpoint, error) {
	e, err := t.listen(ctx, cfg)
	if err != nil {
		return framework.Endpoint{}, failure("listen", err)
	}
	return e, nil
}

func (t *Transport) listen(ctx context.Context, cfg framework.EndpointConfig) (framework.Endpoint, error) {
	var none framework.Endpoint
	if err := ctx.Err(); err != nil {
		return none, err
	}
	if err := t.check(cfg); err != nil {
		return none, err
	}
	localAddresses, err := t.config.localAddresses()
	if err != nil {
		return none, err
	}
	reach := t.config.reach(t.stack, localAddresses)
	if cfg.Facts.Other[topo.FactReach] == "host" {
		localAddresses = loopbacks(localAddresses)
	}
	places, err := t.open(localAddresses)
	if err != nil {
		return none, err
	}
	cfg.Ranks = slices.Clone(cfg.Ranks)
	e := &endpoint{owner: t, config: cfg, groups: map[[16]byte]*inbound{}, ready: make(chan struct{})}
	_, _ = rand.Read(e.secret[:]) // never fails
	id := t.made.Keep(e)
	own := address{owner: t.owner, endpoint: uint64(id), rank: uint32(cfg.Rank), secret: e.secret, stack: t.stack, places: places}
	return framework.Endpoint{
		ID:      id,
		Address: framework.Parcel{Data: own.append(nil)},
		Reach:   reach,
	}, nil
}

func (t *Transport) check(cfg framework.EndpointConfig) error {
	if cfg.Kind != framework.KindPort {
		return fmt.Errorf("%w: channels of %v: %s has port channels alone", framework.ErrUnsupported, cfg.Kind, Name)
	}
	t.mu.Lock()
	lacking := t.lacking[cfg.Device]
	t.mu.Unlock()
	if lacking {
		return fmt.Errorf("%w: memory of %s cannot be reached by sockets: set gpu_memory to host", framework.ErrUnavailable, cfg.Device)
	}
	return link.CheckRanks(cfg, 2)
}

// close says goodbye to all peers that have streams to the endpoint.
func (e *endpoint) close(t *Transport) {
	e.mu.Lock()
	groups, unclaimed := e.groups, e.handed
	e.groups, e.handed, e.closed = nil, nil, true
	e.mu.Unlock()
	unclaimed.close(t)
	for _, g := range groups {
		g.leave()
	}
	t.unlisten()
}

// Connect keeps what the peer's address says. Nothing is dialed yet: each proxy that
// uses the connection has streams of its own.
func (t *Transport) Connect(ctx context.Context, local framework.ID, peers []framework.Peer) (framework.ID, error) {
	id, err := t.connect(ctx, local, peers)
	if err != nil {
		return 0, failure("connect", err)
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
	others, err := link.Others(e.config, peers)
	if err != nil {
		return 0, err
	}
	other := others[0]
	a, err := decodeAddress(peers[0].Address)
	if err != nil {
		return 0, fault.Of(other, err)
	}
	if int(a.rank) != other {
		return 0, fault.Of(other, fmt.Errorf("%w: address of rank %d", framework.ErrPeer, a.rank))
	}
	return t.made.KeepOn(local, &connection{local: e, on: local, config: e.config, peer: other, address: a, sameHost: sameHost(a.stack, t.stack)})
}

// Attach has nothing to map, and no inbox: counters are where the receiving plugin
// can raise them. The material of a recipe is checked all the same. Without
// keys the streams are handed to the rank.
func (t *Transport) Attach(ctx context.Context, conn, local framework.ID, keys []framework.Parcel) (framework.Attachment, error) {
	if local == 0 && len(keys) == 0 && t.config.Drive == driveRank {
		a, err := t.hand(ctx, conn)
		if err != nil {
			return framework.Attachment{}, failure("attach", err)
		}
		return a, nil
	}
	if err := t.attach(ctx, conn, local, keys); err != nil {
		return framework.Attachment{}, failure("attach", err)
	}
	return framework.Attachment{}, nil
}

func (t *Transport) attach(ctx context.Context, conn, local framework.ID, keys []framework.Parcel) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c, err := find[*connection](t, conn, "connection")
	if err != nil {
		return err
	}
	if local != 0 {
		if _, err := find[*region](t, local, "registration"); err != nil {
			return err
		}
	}
	if len(keys) != 1 {
		return fmt.Errorf("%w: %d keys: expected 1", framework.ErrInvalid, len(keys))
	}
	_, err = c.key(keys[0])
	return err
}

// key decodes a key and checks that it comes from the peer of the connection.
func (c *connection) key(p framework.Parcel) (key, error) {
	k, err := decodeKey(p)
	if err == nil && k.owner != c.address.owner {
		err = fmt.Errorf("%w: key of another rank's memory", framework.ErrPeer)
	}
	if err != nil {
		return k, fault.Of(c.peer, err)
	}
	return k, nil
}
