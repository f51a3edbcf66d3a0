package verbs

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/memfd"
	"github.com/mscclpp-go/mscclpp/transports/internal/ids"
	"github.com/mscclpp-go/mscclpp/transports/internal/link"
)

// endpoint is one side of a link: a queue pair, and memory for the messages between both
// plugins.
type endpoint struct {
	t      *Transport
	dev    *adapter
	config framework.EndpointConfig
	own    address
	pair   *pair
	box    *mailbox

	mu     sync.Mutex
	conn   *connection // at most one at a time: a queue pair has one peer
	closed bool
}

func (e *endpoint) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	if e.conn != nil { // made meanwhile: it has no id
		e.conn.end()
	}
	e.pair.close()
	e.box.close()
	e.t.release()
}

// connection is an endpoint that knows its peer.
type connection struct {
	endpoint *endpoint
	peer     int
	flow     *flow
}

func (c *connection) close() {
	e := c.endpoint
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.conn == c {
		c.end()
	}
}

// end ends the connection. The caller holds the endpoint's lock.
func (c *connection) end() {
	e := c.endpoint
	if r := e.t.receiver.Load(); r != nil {
		r.remove(c.flow)
	}
	c.flow.close()
	e.conn = nil
}

// Listen makes one side of a link.
func (t *Transport) Listen(ctx context.Context, cfg framework.EndpointConfig) (framework.Endpoint, error) {
	e, err := t.listen(ctx, cfg)
	if err != nil {
		return framework.Endpoint{}, t.failure("listen", err)
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
	d, err := t.acquire(cfg.Facts.NICs)
	if err != nil {
		return framework.Endpoint{}, err
	}
	e := &endpoint{t: t, dev: d, config: cfg}
	e.config.Ranks = slices.Clone(cfg.Ranks)
	if err := e.open(); err != nil {
		if e.box != nil {
			e.box.close()
		}
		t.release()
		return framework.Endpoint{}, err
	}
	return framework.Endpoint{
		ID:      t.objects.Keep(e),
		Address: framework.Parcel{Data: e.own.append(nil)},
		Reach:   []string{d.fabric(t.config)},
	}, nil
}

func (e *endpoint) open() (err error) {
	d, c := e.dev, e.t.config
	if e.box, err = newMailbox(d, e.t.setup.Mode); err != nil {
		return err
	}
	p := pairConfig{sends: c.QueueDepth, inline: c.Inline, access: accessLocal | accessWrite | accessRead}
	if most := int(d.c.attr.max_qp_wr); most > 0 {
		p.sends = min(p.sends, most)
	}
	if e.t.setup.Mode == Atomic {
		p.access |= accessAtomic
	} else {
		p.receives = c.Receives
	}
	if p.sends < minDepth {
		return fmt.Errorf("%w: device %s takes %d requests at a time: expected at least %d", framework.ErrUnavailable, d.name, p.sends, minDepth)
	}
	if e.pair, err = d.newPair(p); err != nil {
		return err
	}
	var random [4]byte
	_, _ = rand.Read(random[:]) // does not fail
	e.own = address{
		mode: e.t.setup.Mode, side: link.SideOf(e.config),
		qpn: e.pair.number, psn: binary.LittleEndian.Uint32(random[:]) & 0xffffff,
		gid: d.gid, lid: d.portAttr.lid, mtu: uint8(d.portAttr.mtu), ethernet: d.portAttr.ethernet,
		atomics:  uint8(max(1, min(int(d.c.attr.max_qp_rd_atom), 16))),
		receives: uint16(p.receives), mailbox: e.box.region.addr, rkey: e.box.region.rkey, device: d.name,
	}
	return nil
}

func checkConfig(cfg framework.EndpointConfig) error {
	if cfg.Kind != framework.KindPort {
		return fmt.Errorf("%w: channels of %v: expected port", framework.ErrUnsupported, cfg.Kind)
	}
	return link.CheckRanks(cfg, 2)
}

// Connect makes the queue pair ready for the peer's.
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
	e, err := ids.Find[*endpoint](&t.objects, local, "endpoint")
	if err != nil {
		return 0, err
	}
	if _, err := link.Others(e.config, peers); err != nil {
		return 0, err
	}
	c, err := e.connect(peers[0])
	if err != nil {
		return 0, &framework.Error{Peer: peers[0].Rank, Err: err}
	}
	id, err := t.objects.KeepOn(local, c)
	if err != nil {
		c.close()
	}
	return id, err
}

func (e *endpoint) connect(p framework.Peer) (*connection, error) {
	a, err := openAddress(p.Address, e.t.setup.Mode)
	if err != nil {
		return nil, err
	}
	if err := e.own.side.Check(p.Rank, a.side); err != nil {
		return nil, err
	}
	if a.ethernet != e.own.ethernet {
		return nil, fmt.Errorf("%w: device %s is on another kind of network than %s: one has InfiniBand, the other RoCE", framework.ErrPeer, a.device, e.dev.name)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, fmt.Errorf("%w: the endpoint was closed meanwhile", framework.ErrInvalid)
	}
	if e.conn != nil {
		return nil, fmt.Errorf("%w: the endpoint is connected: expected one connection for each", framework.ErrInvalid)
	}
	if err := e.pair.reset(); err != nil {
		return nil, err
	}
	e.box.clear()
	t := e.t
	err = e.pair.connect(path{
		qpn: a.qpn, psn: a.psn, ownPSN: e.own.psn, mtu: min(int(a.mtu), int(e.own.mtu)),
		global: a.ethernet || t.config.GIDIndex >= 0, gid: a.gid, lid: a.lid,
		level: uint8(t.config.ServiceLevel), class: uint8(t.config.TrafficClass),
		timeout: uint8(t.config.AckTimeout), retries: uint8(t.config.Retries),
		initiated: min(a.atomics, e.own.atomics), accepted: e.own.atomics,
	})
	if err != nil {
		return nil, err
	}
	c := &connection{endpoint: e, peer: p.Rank}
	c.flow = newFlow(e, a, p.Rank)
	e.conn = c
	if r := t.receiver.Load(); r != nil {
		r.add(c.flow)
	}
	return c, nil
}

// Attach checks the keys. The rank has nothing to map, except an inbox, where signals for
// counters in memory of a device arrive as immediates.
func (t *Transport) Attach(ctx context.Context, conn, local framework.ID, keys []framework.Parcel) (framework.Attachment, error) {
	a, err := t.attach(ctx, conn, local, keys)
	if err != nil {
		return framework.Attachment{}, t.failure("attach", err)
	}
	return a, nil
}

func (t *Transport) attach(ctx context.Context, conn, local framework.ID, keys []framework.Parcel) (framework.Attachment, error) {
	var none framework.Attachment
	if err := ctx.Err(); err != nil {
		return none, err
	}
	c, err := ids.Find[*connection](&t.objects, conn, "connection")
	if err != nil {
		return none, err
	}
	var own *registration
	if local != 0 {
		if own, err = ids.Find[*registration](&t.objects, local, "registration"); err != nil {
			return none, err
		}
	}
	if len(keys) != 1 {
		return none, fmt.Errorf("%w: %d keys for 1 peer", framework.ErrInvalid, len(keys))
	}
	if _, err := openKey(keys[0], t.setup.Mode); err != nil {
		return none, &framework.Error{Peer: c.peer, Err: err}
	}
	if t.setup.Mode != Immediate || own == nil || own.mapped {
		return none, nil
	}
	share, err := own.openInbox()
	if err != nil {
		return none, err
	}
	return framework.Attachment{
		Mappings: []framework.Mapping{{Role: framework.RoleInbox, Peer: c.peer, Shares: []framework.Share{share}, Bytes: own.region.bytes}},
		Steps:    []framework.Step{{Op: framework.StepMap, Mapping: 0}},
	}, nil
}

// mailbox is memory of the plugin that the peer's plugin writes and reads.
type mailbox struct {
	memory *memfd.Memory
	region *region
}

// Layout of a mailbox. Outgoing words are in the first half, incoming ones in the second.
const (
	boxResult   = 0    // of atomics and reads; never looked at
	boxRaised   = 8    // how many of the peer's signals were counted here, on its way there
	boxCredit   = 2048 // how many signals the peer has counted
	boxEntry    = 16   // bytes of an entry: id of the memory, offset of the counter
	boxEntries  = 1024 // counters that one connection can signal to, and one that is none:
	askEntry    = boxEntries - 1
	boxOut      = 4096 // entries on their way to the peer
	boxIn       = boxOut + boxEntries*boxEntry
	boxBytes    = boxIn + boxEntries*boxEntry
	boxSmall    = 4096 // without entries
	countBits   = 22   // of an immediate; the others are the number of the entry
	countMask   = 1<<countBits - 1
	mailboxName = "mscclpp-mailbox"
)

func newMailbox(d *adapter, mode Mode) (*mailbox, error) {
	bytes := uint64(boxSmall)
	if mode == Immediate {
		bytes = boxBytes
	}
	m, err := memfd.New(mailboxName, bytes, memfd.Options{})
	if err != nil {
		return nil, err
	}
	r, err := d.register(m.Addr(), bytes, accessLocal|accessWrite|accessRead)
	if err != nil {
		_ = m.Close()
		return nil, err
	}
	return &mailbox{memory: m, region: r}, nil
}

func (b *mailbox) close() {
	b.region.close()
	_ = b.memory.Close()
}

func (b *mailbox) clear() { clear(b.memory.Bytes()) }
