package nvls

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/topo"
	"github.com/mscclpp-go/mscclpp/transports/internal/fault"
	"github.com/mscclpp-go/mscclpp/transports/internal/ids"
	"github.com/mscclpp-go/mscclpp/transports/internal/link"
)

const (
	deviceType = "cuda"
	maxRanks   = 32 // GPUs that one switch joins are fewer
)

// endpoint is one side of a group.
type endpoint struct {
	config framework.EndpointConfig
	own    address
}

func (*endpoint) close() {}

// connection is an endpoint that knows the other members.
type connection struct {
	config framework.EndpointConfig
	peers  []int           // ascending
	object framework.Share // the multicast object, where its root is a peer
}

func (c *connection) close() { _ = c.object.Close() }

// Listen makes one side of a group.
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
	if err := checkConfig(cfg); err != nil {
		return none, err
	}
	if why := t.lacking(cfg.Facts); why != "" {
		return none, fmt.Errorf("%w: %s", framework.ErrUnavailable, why)
	}
	own := address{Side: link.SideOf(cfg), host: link.Host(cfg.Facts), gpu: gpuOf(cfg.Facts)}
	if strings.HasPrefix(own.gpu, "MIG-") {
		return none, fmt.Errorf("%w: %s is a part of a GPU: expected a whole one, since parts have no multicast", framework.ErrUnavailable, own.gpu)
	}
	if len(own.host) > maxText || len(own.gpu) > maxText {
		return none, fmt.Errorf("%w: names of %d and %d bytes: expected up to %d", framework.ErrInvalid, len(own.host), len(own.gpu), maxText)
	}
	cfg.Ranks = slices.Clone(cfg.Ranks)
	e := framework.Endpoint{
		ID:      t.made.Keep(&endpoint{config: cfg, own: own}),
		Address: framework.Parcel{Data: own.append(nil)},
		Reach:   []string{"host:" + own.host},
	}
	if cfg.Root() {
		e.Create = []framework.Object{{Kind: framework.ObjectMulticast, Bytes: cfg.Bytes, Ranks: len(cfg.Ranks)}}
	}
	return e, nil
}

// gpuOf names the GPU of a rank, or the part of one.
func gpuOf(f framework.Facts) string {
	if id := f.Other[topo.FactUUID]; id != "" {
		return id
	}
	return strings.ToLower(f.Other[topo.FactPCI])
}

func checkConfig(cfg framework.EndpointConfig) error {
	if cfg.Kind != framework.KindSwitch {
		return fmt.Errorf("%w: channels of %v: %s has those of a switch alone", framework.ErrUnsupported, cfg.Kind, Name)
	}
	if cfg.Device.Type != deviceType {
		return fmt.Errorf("%w: kernels on %s: %s serves ranks whose kernels run on NVIDIA GPUs", framework.ErrUnsupported, cfg.Device, Name)
	}
	if n := len(cfg.Ranks); cfg.Bytes == 0 || n < 2 || n > maxRanks {
		return fmt.Errorf("%w: switch of %d bytes for %d ranks: expected at least 1 byte and 2 to %d ranks", framework.ErrInvalid, cfg.Bytes, n, maxRanks)
	}
	return link.CheckRanks(cfg, len(cfg.Ranks))
}

// Connect checks that the addresses of all members belong to the same group.
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
	members := map[string]int{e.own.gpu: e.config.Rank}
	for _, p := range peers {
		if err := e.join(c, p, members); err != nil {
			c.close()
			return 0, fault.Of(p.Rank, err)
		}
	}
	id, err := t.made.KeepOn(local, c)
	if err != nil {
		c.close()
	}
	return id, err
}

// join looks at one peer's address, and keeps the object that a root sent along.
func (e *endpoint) join(c *connection, p framework.Peer, members map[string]int) error {
	a, err := decodeAddress(p.Address.Data)
	if err != nil {
		return err
	}
	if err := link.SameHost(e.own.host, a.host); err != nil {
		return err
	}
	if err := e.own.Check(p.Rank, a.Side); err != nil {
		return err
	}
	if r, twice := members[a.gpu]; twice && a.gpu != "" {
		return fmt.Errorf("%w: it is on the GPU of rank %d, %s: expected one rank on each GPU of a switch", framework.ErrUnavailable, r, a.gpu)
	}
	members[a.gpu] = p.Rank
	object, err := link.Object(e.config, p, framework.ShareVMM)
	if object.FD != nil {
		c.object = object
	}
	return err
}
