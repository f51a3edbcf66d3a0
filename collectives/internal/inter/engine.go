// Package inter performs collectives of ranks that do not all share memory. It owns the engines that do: they do not
// know each other.
//
//	flat      ranks on the host, over lanes alone
//	twolevel  ranks on the host, by kernels inside hosts, and over lanes between them
//	staged    ranks on GPUs, whose data passes through memory of the host
//	direct    ranks on GPUs, whose kernels drive the adapters
package inter

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/crosshost"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/direct"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/enqueue"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/flat"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/inside"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lanes"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/placement"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/staged"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/streamgate"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/twolevel"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Options say what the engine is for.
type Options struct {
	Scratch  uint64
	Describe func(*kernelargs.Signature) string // in words
	Inside   inside.Maker

	Apart error   // why ranks do not share memory, or cannot make use of it
	Hosts [][]int // ranks by host, as far as ranks share memory

	// First chooses the ranks whose lanes are made first, where one large host counts as several; see lanes.Lanes.
	First func(rank int) bool

	// Kinds are the collectives to offer, of which SendRecv stands for all messages. None: all that there are.
	Kinds []collective.Kind

	// Last are those among them of which other engines perform calls as well: theirs are performed only if those cannot.
	Last []collective.Kind

	Blocks          uint32 // most of one launch on a GPU
	Multiprocessors int    // of a GPU, for each rank that shares it; 0: not known
}

// Engine performs collectives.
type Engine struct {
	session  *lanes.Session
	flat     *flat.Engine
	inside   *inside.Host     // nil where there are no two levels
	twolevel *twolevel.Engine // nil where there are no two levels, and for GPUs
	queue    *enqueue.Queue   // nil for ranks on the host
	staged   *staged.Engine   // nil for ranks on the host
	direct   *direct.Engine   // nil where it cannot be

	kinds    []collective.Kind
	last     []collective.Kind
	offers   engine.Offers
	messages [2]*engine.Algorithm // by kernels, where that is found out to be possible; else by the host
	decided  bool                 // whether it is
	closed   bool
}

// New makes the engine. It opens nothing: the first collective does.
func New(c *comm.Communicator, o Options) (*Engine, error) {
	d, streams := streamgate.Of(c.Device())
	gpu := c.Device().Info().Device != framework.Host
	switch {
	case gpu && !streams:
		return nil, fmt.Errorf("%w: collectives: ranks do not all share memory, and streams of %v cannot wait for the host, which would carry the data: %w", framework.ErrUnsupported, c.Device().Info().Device, o.Apart)
	case !c.Offers(framework.KindPort):
		return nil, fmt.Errorf("%w: collectives: neither memory channels nor port channels join all ranks: %w", framework.ErrUnsupported, o.Apart)
	}
	l := lanes.New(c, o.Scratch, o.Describe)
	l.First = o.First
	e := &Engine{kinds: o.Kinds, last: o.Last}
	e.session = lanes.NewSession(l, e.open)
	e.flat = flat.New(e.session)
	var level *crosshost.Level
	if alone := len(o.Hosts) == c.Size(); len(o.Hosts) > 1 && (gpu || !alone) {
		level = crosshost.New(placement.New(o.Hosts, c.Rank()), l)
		e.inside = inside.New(c, level.Placement, o.Inside)
	}
	network := o.First == nil // else there is none to spare
	switch {
	case gpu:
		e.queue = &enqueue.Queue{World: c, Device: d, Inside: e.inside, Session: e.session}
		if level != nil {
			e.queue.Sizes = level.Sizes
		}
		e.offerGPU(level, o, network)
	case level != nil:
		e.twolevel = twolevel.New(e.session, level, e.inside, network)
		e.add(e.twolevel.Offers())
		e.add(e.flat.Offers())
	default:
		e.add(e.flat.Offers())
	}
	e.messages = [2]*engine.Algorithm{engine.New(collective.SendRecv, crosshost.NameDirect), engine.New(collective.SendRecv, lanes.Name)}
	for _, a := range e.messages {
		a.Engine = e
	}
	return e, nil
}

// offerGPU makes the engines for GPUs.
func (e *Engine) offerGPU(level *crosshost.Level, o Options, network bool) {
	e.staged = staged.New(e.queue, level, e.flat)
	if level != nil && network && level.Fewest == level.Most {
		e.direct = direct.New(e.queue, engine.Discover(e.queue.World.Kernels(), 1).Steps, o.Blocks)
		e.staged.Preamble = e.direct.Preamble
		e.inside.Blocks = direct.BlocksInside(o.Blocks, o.Multiprocessors)
		e.add(e.direct.Offers())
	}
	e.staged.OfferFlat(flat.Collectives)
	e.add(e.staged.Offers())
}

// add offers what one of the engines does.
func (e *Engine) add(o engine.Offers) {
	for _, a := range o.Algorithms {
		if e.wants(a.Collective) {
			e.offers.Algorithms = append(e.offers.Algorithms, a)
		}
	}
	for _, row := range o.Rows {
		switch {
		case !e.wants(row.Collective):
		case slices.Contains(e.last, row.Collective):
			e.offers.Last = append(e.offers.Last, row)
		default:
			e.offers.Rows = append(e.offers.Rows, row)
		}
	}
}

func (e *Engine) wants(k collective.Kind) bool {
	return len(e.kinds) == 0 || slices.Contains(e.kinds, k)
}

// open makes what all calls need. It is collective.
func (e *Engine) open(ctx context.Context) (joined bool, err error) {
	if e.queue != nil {
		if err := e.queue.Start(); err != nil {
			return true, err
		}
		if err := e.staged.Open(ctx); err != nil {
			return true, err
		}
	}
	if err := e.session.Comm.Survey(ctx, framework.KindPort); err != nil {
		return true, err
	}
	if err := e.session.Allocate(); err != nil {
		return true, err
	}
	if err := e.session.Link(ctx); err != nil {
		return false, err // both ranks of a pair know it
	}
	return true, e.openLevels(ctx)
}

// openLevels makes what calls in two levels need.
func (e *Engine) openLevels(ctx context.Context) error {
	if e.inside == nil {
		return nil
	}
	if err := e.inside.Open(ctx, e.queue != nil); err != nil {
		return err
	}
	if e.queue != nil {
		if err := e.queue.Prepare(); err != nil {
			return err
		}
	}
	if e.direct != nil {
		if err := e.direct.Open(ctx); err != nil {
			return err
		}
	}
	if e.twolevel != nil {
		return e.twolevel.Open(ctx)
	}
	return nil
}

// Offers lists the algorithms.
func (e *Engine) Offers() engine.Offers {
	messages := e.messages[1:]
	if e.direct != nil && e.direct.Delivers() {
		messages = e.messages[:]
	}
	o := e.offers
	if !e.wants(collective.SendRecv) {
		return o
	}
	o.Algorithms = append(o.Algorithms[:len(o.Algorithms):len(o.Algorithms)], messages...)
	return o
}

// Settle finds out, before the first call is, what can serve calls: the same on all
// ranks. A stream that is captured cannot wait for that. Messages on the host have nothing to choose from.
func (e *Engine) Settle(k collective.Kind, s device.Stream) (changed bool, err error) {
	if k.Messages() && e.queue == nil || e.direct == nil && (e.twolevel == nil || !e.twolevel.Adapts()) {
		return false, nil
	}
	err = e.session.Do(func() error {
		ready, failed := e.session.Ready()
		if e.decided || failed != nil {
			return failed
		}
		if !ready && e.queue != nil {
			if state, err := e.queue.Device.Query(s); err != nil || state == device.StreamCapturing {
				return err // it will be refused
			}
		}
		if err := e.session.SetUp(); err != nil { // messages may have done it already
			return err
		}
		e.decided, changed = true, true
		return nil
	})
	return changed, err
}

// Run performs a call by the engine that offers its algorithm.
func (e *Engine) Run(c *engine.Call) error {
	if c.Algorithm.Engine == engine.Engine(e) {
		return fmt.Errorf("%w: %v by %s", framework.ErrUnsupported, c.Collective, c.Algorithm.Name)
	}
	return c.Algorithm.Engine.Run(c)
}

// Exchange performs a group of messages.
func (e *Engine) Exchange(g *engine.Group) error {
	var by engine.Engine = e.flat
	switch {
	case e.twolevel != nil && e.twolevel.Takes(g):
		by = e.twolevel
	case e.direct != nil && e.direct.Delivers() && (g.By == nil || g.By.Name == crosshost.NameDirect):
		by = e.direct
	case e.staged != nil:
		by = e.staged
	}
	if err := by.Exchange(g); err != nil {
		return fmt.Errorf("%v: %w", g.Kind, err)
	}
	return nil
}

// Prepare loads what kernels between hosts need; a job's first call finds out whether there are any.
func (e *Engine) Prepare(k collective.Kind, t kernel.DataType, chosen []*engine.Algorithm) error {
	if e.direct == nil {
		return nil
	}
	return e.direct.Prepare(k, t, chosen)
}

// Pending implements engine.Enqueuer.
func (e *Engine) Pending() (busy, known bool, err error) {
	if e.queue == nil {
		return false, true, nil
	}
	return e.queue.Pending()
}

// Close releases everything. Closing twice is not an error.
func (e *Engine) Close() error {
	var drained error
	if e.queue != nil {
		drained = e.queue.Drain()
	}
	return errors.Join(drained, e.session.Do(func() error {
		if e.closed {
			return nil
		}
		e.closed = true
		var all []error
		if e.direct != nil {
			all = append(all, e.direct.Close())
		}
		if e.staged != nil {
			all = append(all, e.staged.Close(), e.queue.Close())
		}
		if e.inside != nil {
			all = append(all, e.inside.Close())
		}
		all = append(all, e.session.Close())
		if e.staged != nil {
			all = append(all, e.staged.CloseHostTwin(), e.queue.CloseHost())
		}
		e.session.End()
		return errors.Join(all...)
	}))
}
