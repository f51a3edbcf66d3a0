package gpulink

import (
	"context"
	"fmt"
	"slices"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/topo"
	"github.com/mscclpp-go/mscclpp/transports/internal/fault"
	"github.com/mscclpp-go/mscclpp/transports/internal/ids"
	"github.com/mscclpp-go/mscclpp/transports/internal/link"
)

// endpoint is one side of a link.
type endpoint struct {
	config framework.EndpointConfig
	own    address
}

// connection is an endpoint that knows its peer.
type connection struct {
	config   framework.EndpointConfig
	peer     int
	own      address
	far      address
	relation relation
}

// remote reports whether the peer is on another host.
func (c *connection) remote() bool { return c.own.host != c.far.host }

// Listen makes one side of a link.
func (t *Transport) Listen(ctx context.Context, cfg framework.EndpointConfig) (framework.Endpoint, error) {
	e, err := t.listen(ctx, cfg)
	if err != nil {
		return framework.Endpoint{}, t.failure("listen", err)
	}
	return e, nil
}

func (t *Transport) listen(ctx context.Context, cfg framework.EndpointConfig) (framework.Endpoint, error) {
	var none framework.Endpoint
	if err := ctx.Err(); err != nil {
		return none, err
	}
	if err := t.checkConfig(cfg); err != nil {
		return none, err
	}
	g, id, err := t.machine.own(ctx, cfg.Device, cfg.Facts)
	if err != nil {
		return none, err
	}
	host := link.Host(cfg.Facts)
	cfg.Ranks = slices.Clone(cfg.Ranks)
	own := address{Side: link.SideOf(cfg), instance: t.instance, host: host, gpu: id}
	reach := []string{"host:" + host}
	if t.config.Fabric {
		if own.fabric = fabricToken(g); own.fabric != "" {
			reach = append(reach, "nvlink:"+own.fabric)
		}
	}
	for _, text := range own.texts() {
		if len(*text) > maxText {
			return none, fmt.Errorf("%w: name of %d bytes: expected up to %d: %.40q…", framework.ErrInvalid, len(*text), maxText, *text)
		}
	}
	return framework.Endpoint{
		ID: t.made.Keep(&endpoint{config: cfg, own: own}), Address: framework.Parcel{Data: own.append(t.maker.Parcels, nil)}, Reach: reach,
	}, nil
}

// fabricToken names the part of an NVLink network within which memory can be shared
// across hosts. A network of one host has no name.
func fabricToken(g topo.GPU) string {
	if g.Fabric == nil || g.Fabric.State != "completed" || g.Fabric.Cluster == "" {
		return ""
	}
	return fmt.Sprintf("%s/%d", g.Fabric.Cluster, g.Fabric.Clique)
}

func (t *Transport) checkConfig(cfg framework.EndpointConfig) error {
	if cfg.Kind != framework.KindMemory && cfg.Kind != framework.KindPort {
		return fmt.Errorf("%w: channels of %v", framework.ErrUnsupported, cfg.Kind)
	}
	if cfg.Device.Type != t.maker.Device {
		return fmt.Errorf("%w: kernels on %s: %s serves ranks whose kernels run on %s", framework.ErrUnsupported, cfg.Device, t.maker.name(), t.maker.GPUs)
	}
	return link.CheckRanks(cfg, 2)
}

// Connect checks that the peer's address belongs to the same link, and finds out how
// the two GPUs stand to each other.
func (t *Transport) Connect(ctx context.Context, local framework.ID, peers []framework.Peer) (framework.ID, error) {
	id, err := t.connect(ctx, local, peers)
	if err != nil {
		return 0, t.failure("connect", err)
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
	c := &connection{config: e.config, peer: others[0], own: e.own}
	if c.far, err = t.check(e, peers[0]); err != nil {
		return 0, fault.Of(c.peer, err)
	}
	if !c.remote() {
		c.relation = t.machine.relate(ctx, c.own.gpu, c.far.gpu)
	} else {
		c.relation = relation{path: t.maker.Link + " between hosts", links: 1}
	}
	if err := t.admit(c); err != nil {
		return 0, fault.Of(c.peer, err)
	}
	return t.made.KeepOn(local, c)
}

// check looks at the peer's address.
func (t *Transport) check(e *endpoint, p framework.Peer) (address, error) {
	a, err := decodeAddress(t.maker.Parcels, p.Address.Data)
	if err != nil {
		return a, err
	}
	if a.host != e.own.host && (e.own.fabric == "" || e.own.fabric != a.fabric) {
		return a, fmt.Errorf("%w: it is on host %q, this is %q, and no %s network spans both", framework.ErrPeer, a.host, e.own.host, t.maker.Link)
	}
	if len(p.Address.Shares) != 0 {
		return a, fmt.Errorf("%w: address with %d shares: expected none", framework.ErrPeer, len(p.Address.Shares))
	}
	return a, e.own.Check(p.Rank, a.Side)
}

// admit refuses a pair that the configuration does not want, and logs what
// is odd about one that it takes.
func (t *Transport) admit(c *connection) error {
	r := c.relation
	log := t.log.With("kind", c.config.Kind.String(), "rank", c.config.Rank, "peer", c.peer, "gpu", c.own.gpu.String(), "peer_gpu", c.far.gpu.String(), "path", r.path)
	switch {
	case t.config.RequireLinks && !r.same && r.links == 0:
		return fmt.Errorf("%w: %s and %s are not joined by %s (%s), and require_%s is on: expected GPUs with %s between them, or the option off",
			framework.ErrUnavailable, c.own.gpu, c.far.gpu, t.maker.Link, r.path, t.maker.linkKey(), t.maker.Link)
	case r.barrier != "" && c.config.Facts.Other[t.maker.fact("memory")] == "host":
		log.Debug("linked by memory of the host: the GPUs cannot address each other's", "reason", r.barrier)
	case r.barrier != "":
		log.Warn("the GPUs cannot address each other's memory: only registered host memory will do", "reason", r.barrier)
	case r.known && !r.atomics:
		log.Debug("linked, without atomics between the GPUs")
	default:
		log.Debug("linked")
	}
	return nil
}
