package shm

import (
	"context"
	"fmt"
	"slices"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/transports/internal/fault"
	"github.com/mscclpp-go/mscclpp/transports/internal/ids"
	"github.com/mscclpp-go/mscclpp/transports/internal/link"
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
	config framework.EndpointConfig
	peers  []int           // ascending
	object framework.Share // of a switch group, where its root is a peer
}

func (c *connection) close() { _ = c.object.Close() }

// Listen makes one side of a link.
func (t *Transport) Listen(ctx context.Context, cfg framework.EndpointConfig) (framework.Endpoint, error) {
	e, err := t.listen(ctx, cfg)
	if err != nil {
		return framework.Endpoint{}, failure("listen", err)
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
	host := link.Host(cfg.Facts)
	if len(host) > maxHost {
		return framework.Endpoint{}, fmt.Errorf("%w: name of the host has %d bytes: expected up to %d", framework.ErrInvalid, len(host), maxHost)
	}
	cfg.Ranks = slices.Clone(cfg.Ranks)
	own := address{Side: link.SideOf(cfg), host: host}
	e := framework.Endpoint{
		ID:      t.made.Keep(&endpoint{config: cfg, own: own}),
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
	return link.CheckRanks(cfg, members)
}

// Connect checks that the peers' addresses belong to the same link.
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
	e, err := ids.Find[*endpoint](&t.made, local, "endpoint")
	if err != nil {
		return 0, err
	}
	others, err := link.Others(e.config, peers)
	if err != nil {
		return 0, err
	}
	c := &connection{config: e.config, peers: others}
	for _, p := range peers {
		object, err := e.check(p)
		if err != nil {
			c.close()
			return 0, fault.Of(p.Rank, err)
		}
		if object.FD != nil {
			c.object = object
		}
	}
	id, err := t.made.KeepOn(local, c)
	if err != nil {
		c.close()
	}
	return id, err
}

// check looks at one peer's address, and keeps the object that a root sent along.
func (e *endpoint) check(p framework.Peer) (framework.Share, error) {
	var none framework.Share
	a, err := decodeAddress(p.Address.Data)
	if err != nil {
		return none, err
	}
	if err := link.SameHost(e.own.host, a.host); err != nil {
		return none, err
	}
	if err := e.own.Check(p.Rank, a.Side); err != nil {
		return none, err
	}
	return link.Object(e.config, p, framework.ShareMemFD)
}
