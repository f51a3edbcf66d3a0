package comm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/stream"
)

// Communicator is a group of ranks. Set-up methods are collective as documented, and
// must not run concurrently on one communicator; all others may be called at any time
// from any goroutine. Several communicators of a process work independently.
type Communicator struct {
	opts Options
	boot framework.Bootstrap
	log  *slog.Logger
	dev  device.Device

	setup    sync.Mutex // one set-up call at a time
	talk     sync.Mutex // one Barrier or AllGather at a time
	nodes    []string   // names of the hosts, by rank
	links    map[linkKey]*link
	rings    sync.Mutex // held while numbers of triggers are given out
	proxies  map[*Transport][]*proxyService
	probed   map[*Transport]string // why one cannot be used, or ""
	passed   *passedOver
	control  *control
	unlist   func() // takes a communicator that was split off from the dumps of its parent
	children int    // number of Splits so far: names and tags of the next

	health
	closed  sync.Once
	parts   parts
	dumps   dumps
	call    atomic.Pointer[underWay]
	buffers buffers

	departures departures
	partings   partings

	forwarding forwarding     // made under setup
	engine     *stream.Engine // of links whose sockets this rank drives; made under setup
}

// hello is what ranks tell each other first. It is JSON so that ranks of
// different versions can still say what separates them.
type hello struct {
	ABI        int      `json:"abi"`
	Host       string   `json:"host"` // whose processors it shares
	Node       string   `json:"node"` // the host's name, for people
	Name       string   `json:"name"`
	Transports []string `json:"transports"` // in order of preference
}

// New joins all ranks of boot into a communicator. It is collective, and a rank that
// fails tells the others, as with Abort. The communicator uses boot until Close. It
// does not close boot, the device or the transports. A bootstrap serves one
// communicator at a time; Split makes more.
func New(ctx context.Context, boot framework.Bootstrap, o Options) (*Communicator, error) {
	if boot == nil {
		return nil, fmt.Errorf("%w: comm: no bootstrap", framework.ErrInvalid)
	}
	if o.Name == "" {
		o.Name = "world"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.passed == nil {
		o.passed = &passedOver{told: make(map[string]bool)}
	}
	if o.Grace == 0 {
		o.Grace = closeTimeout
	}
	if o.ending == nil {
		o.ending = &ending{}
	}
	c := &Communicator{
		opts:    o,
		boot:    boot,
		log:     o.Log.With("comm", o.Name, "comm_rank", boot.Rank()),
		dev:     o.Device,
		links:   make(map[linkKey]*link),
		proxies: make(map[*Transport][]*proxyService),
		probed:  make(map[*Transport]string),
		passed:  o.passed,
	}
	c.health.init()
	if err := c.start(ctx); err != nil {
		err = fmt.Errorf("comm %s: %w", o.Name, err)
		// The others are waiting, or will be: for this rank to greet them, or to
		// take part in the first call. Unless they have found the same.
		var alike *refusal
		if w, ok := boot.(bootstrap.Watcher); ok && w.Err() == nil && !errors.As(err, &alike) {
			w.Announce(c.accuse("new", err))
		}
		return nil, err
	}
	return c, nil
}

func (c *Communicator) start(ctx context.Context) error {
	if err := c.opts.check(); err != nil {
		return err
	}
	local, err := c.greet(ctx)
	if err != nil {
		return err
	}
	if c.control, err = newControl(c.dev); err != nil {
		return err
	}
	c.control.engine.over = c.over.Load
	c.control.words.Deadline = c.opts.Deadline
	c.control.setSpin(local, runtime.NumCPU())
	c.watch()
	return nil
}

// greet compares versions and transports, and returns the number of ranks on this host.
func (c *Communicator) greet(ctx context.Context) (local int, err error) {
	mine, err := json.Marshal(c.hello())
	if err != nil {
		return 0, err
	}
	all, err := bootstrap.AllGatherBytes(ctx, c.boot, tagHello, mine)
	if err != nil {
		return 0, fmt.Errorf("greeting: %w", err)
	}
	said := make([]hello, len(all))
	for r, b := range all {
		if said[r], err = greeted(r, b, c.opts.Name); err != nil {
			return 0, err
		}
		if c.sameHost(r, said[r].Host) {
			local++
		}
		c.nodes = append(c.nodes, said[r].node())
	}
	return local, sameTransports(said)
}

// hello is what this rank says.
func (c *Communicator) hello() hello {
	h := hello{ABI: kernel.ABI, Host: c.opts.Facts.Host, Name: c.opts.Name}
	h.Node, _ = os.Hostname() // "": it has no name
	for _, t := range c.opts.Transports {
		h.Transports = append(h.Transports, t.Name)
	}
	return h
}

// node is what people call the host of a rank: by the name that they gave it themselves,
// if they did.
func (h *hello) node() string { return cmp.Or(h.Host, h.Node, "unknown") }

// sameTransports refuses ranks whose lists of transports differ, also in their order: which
// calls a rank makes in order to be joined with others, and whose kernels it takes, follows
// from its list. All ranks come to the same error.
func sameTransports(said []hello) error {
	for r := range said {
		if !slices.Equal(said[r].Transports, said[0].Transports) {
			return &refusal{&framework.Error{Op: "greeting", Peer: r, Err: fmt.Errorf(
				"%w: its transports on host %s are %v, those of rank 0 on host %s are %v: expected the same list on all ranks, also where some of them find no hardware",
				framework.ErrInvalid, said[r].node(), said[r].Transports, said[0].node(), said[0].Transports)}}
		}
	}
	return nil
}

// greeted reads what a rank has said, who is to join the communicator of a name.
func greeted(rank int, b []byte, name string) (h hello, err error) {
	switch err := json.Unmarshal(b, &h); {
	case err != nil:
		return h, &framework.Error{Op: "greeting", Peer: rank, Err: fmt.Errorf("%w: not a greeting: %v", framework.ErrPeer, err)}
	case h.ABI != kernel.ABI:
		return h, &framework.Error{Op: "greeting", Peer: rank, Err: fmt.Errorf("%w: device ABI %d, expected %d", framework.ErrPeer, h.ABI, kernel.ABI)}
	case h.Name != name:
		return h, &framework.Error{Op: "greeting", Peer: rank, Err: fmt.Errorf("%w: joins communicator %q, expected %q", framework.ErrPeer, h.Name, name)}
	}
	return h, nil
}

// sameHost reports whether a rank shares this rank's processors. The bootstrap
// knows by trying; one that an application brought may not.
func (c *Communicator) sameHost(rank int, host string) bool {
	if b, ok := c.boot.(bootstrap.SameHoster); ok && rank != c.Rank() {
		return b.SameHost(rank)
	}
	return host == c.opts.Facts.Host
}

// Tags of a communicator's own conversations. Sub-groups shift them.
const (
	tagBase  framework.Tag = 1 << 40
	tagHello               = tagBase + iota
	tagLink
	tagKeys
	tagStep
	tagSay
	tagSwitch
	tagUser
	tagFarewell // nothing is ever sent with it
	tagParting  // from Close: see part
	tagTokens
)

// Rank returns the number of this rank in the communicator.
func (c *Communicator) Rank() int { return c.boot.Rank() }

// Size returns the number of ranks.
func (c *Communicator) Size() int { return c.boot.Size() }

// HostOf returns the name of a rank's host for people, for errors and logs.
func (c *Communicator) HostOf(rank int) string { return c.nodes[rank] }

// Name returns the communicator's name, unique in the job: "world", "world/1.0".
func (c *Communicator) Name() string { return c.opts.Name }

// Device returns the device on which the rank's kernels run.
func (c *Communicator) Device() device.Device { return c.dev }

// Log returns the communicator's logger, for packages that build on it.
func (c *Communicator) Log() *slog.Logger { return c.log }

// Control returns the address, as kernels see it, of the device.WaitControl that every
// wait of a kernel takes.
func (c *Communicator) Control() uintptr { return c.control.deviceAddr }

// ControlWords returns the structure behind Control as the host sees it.
func (c *Communicator) ControlWords() *kernel.WaitControl { return c.control.words }

// Barrier waits until all ranks have called it. It is meant for set-up, not for the
// data path. A rank that stops waiting because ctx ends aborts the communicator.
func (c *Communicator) Barrier(ctx context.Context) error {
	c.talk.Lock()
	defer c.talk.Unlock()
	return c.together(ctx, opBarrier, func(ctx context.Context) error {
		return bootstrap.Barrier(ctx, c.boot, tagUser)
	})
}

// AllGather collects a few bytes from every rank, in rank order. Collective; meant for
// set-up.
func (c *Communicator) AllGather(ctx context.Context, data []byte) (all [][]byte, err error) {
	c.talk.Lock()
	defer c.talk.Unlock()
	err = c.together(ctx, opAllGather, func(ctx context.Context) error {
		all, err = bootstrap.AllGatherBytes(ctx, c.boot, tagUser, data)
		return err
	})
	return all, err
}

// Close releases everything that the communicator made, including the memory from
// Alloc. It is local: memory that peers have mapped stays valid for them. The caller's
// work on a device must have ended (also after a failure); Settle waits for that. Close
// itself waits for work that the communicator has given the device, for some seconds at
// most; after a failure for a part of Options.Grace. Closing twice is not an error.
func (c *Communicator) Close() (err error) {
	c.closed.Do(func() { err = c.close() }) // who comes second waits for the first
	return err
}

func (c *Communicator) close() error {
	c.closing()
	c.setup.Lock()
	defer c.setup.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), c.closeBound())
	defer cancel()
	var first error
	keep := func(err error) {
		if err != nil && first == nil {
			first = err
		}
	}
	if c.unlist != nil {
		c.unlist()
	}
	keep(c.parts.closeAll(ctx))
	for _, list := range c.proxies {
		for _, p := range list {
			keep(p.close(ctx, c.aborted()))
		}
	}
	keep(c.forwarding.stop(ctx, c.aborted()))
	c.part(ctx)
	for _, l := range c.links {
		keep(l.shut(ctx, c.aborted()))
	}
	atomic.StoreUint32(&c.control.words.Abort, 1) // for kernels that still wait: nothing will come
	if c.engine != nil {
		keep(c.engine.Close())
	}
	keep(c.control.close(ctx))
	if c.aborted() {
		return nil // what failed was reported by Err; releasing is best effort then
	}
	return first
}

func (c *Communicator) blame(op string, peer int, err error) error {
	return fmt.Errorf("comm %s: %w", c.opts.Name, &framework.Error{Op: op, Peer: peer, Err: err})
}

// buffers is the set of exchanged memory, searched by address on the data path.
type buffers struct {
	mu     sync.Mutex
	list   []*Symmetric
	sorted atomic.Pointer[[]*Symmetric]
	next   uint64
}
