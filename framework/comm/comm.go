package comm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/aside"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/counters"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/life"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/negotiate"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/porting"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/preamble"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/recipe"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

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
		o.passed = &negotiate.PassedOver{}
	}
	if o.Grace == 0 {
		o.Grace = life.CloseTimeout
	}
	if o.ending == nil {
		o.ending = &life.Ending{}
	}
	c := &Communicator{
		opts:   o,
		boot:   boot,
		log:    o.Log.With("comm", o.Name, "comm_rank", boot.Rank()),
		dev:    o.Device,
		rounds: preamble.Rounds{Boot: boot},

		members:  o.members,
		observed: observed{o.Observer},
	}
	c.life = life.New(o.Name, c.log, o.Grace, o.ending, func() { atomic.StoreUint32(&c.counters.Words.Abort, 1) })
	if err := c.start(ctx); err != nil {
		err = fmt.Errorf("comm %s: %w", o.Name, err)
		// The others are waiting, or will be: for this rank to greet them, or to
		// take part in the first call. Unless they have found the same.
		var alike *preamble.Refusal
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
	if c.counters, err = counters.New(c.dev); err != nil {
		return err
	}
	c.counters.Queue.Over, c.counters.Words.Deadline = c.life.Over, c.opts.Deadline
	c.counters.SetSpin(local, runtime.NumCPU())
	c.links = &negotiate.Negotiator{
		Name: c.opts.Name, Transports: c.opts.Transports, Facts: c.opts.Facts, Log: c.log, Boot: c.boot, Life: c.life, Counters: c.counters,
		Recipes: &recipe.Performer{Boot: c.boot, Counters: c.counters, Life: c.life},
		Rounds:  c.rounds, HostOf: c.HostOf, Passed: c.opts.passed,
	}
	c.ports = porting.New(c.log, c.boot, c.life, c.counters, c.links, c.Abort)
	c.ports.Flows = c.Observer().Flows(c.opts.Name)
	c.counters.Records = c.Observer().Kernels(c.opts.Name, c.counters.Words, c.counters.Ring, c.counters.Dev)
	c.health.name, c.health.boot, c.health.transports = c.opts.Name, c.boot, c.opts.Transports
	c.health.life, c.health.counters, c.health.departed = c.life, c.counters, c.ports.Departed
	c.kernels, c.allocator, c.Talk = kernels{c.opts.Transports, c.dev, c.life}, allocator{c.opts.Name, c.dev, c.life}, aside.Talk{Boot: c.boot, Life: c.life}
	c.watch()
	return nil
}

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

// Control returns the address, as kernels see it, of the device.WaitControl that every wait of a kernel takes.
func (c *Communicator) Control() uintptr { return c.counters.DeviceAddr }

// ControlWords returns the structure behind Control as the host sees it.
func (c *Communicator) ControlWords() *kernel.WaitControl { return c.counters.Words }

// Barrier waits until all ranks have called it. It is meant for set-up, not for the
// data path. A rank that stops waiting because ctx ends aborts the communicator.
func (c *Communicator) Barrier(ctx context.Context) error {
	c.talk.Lock()
	defer c.talk.Unlock()
	return c.together(ctx, opBarrier, func(ctx context.Context) error {
		return bootstrap.Barrier(ctx, c.boot, preamble.TagUser)
	})
}

// AllGather collects a few bytes from every rank, in rank order. Collective; meant for set-up.
func (c *Communicator) AllGather(ctx context.Context, data []byte) (all [][]byte, err error) {
	c.talk.Lock()
	defer c.talk.Unlock()
	err = c.together(ctx, opAllGather, func(ctx context.Context) error {
		all, err = bootstrap.AllGatherBytes(ctx, c.boot, preamble.TagUser, data)
		return err
	})
	return all, err
}

// Close releases everything that the communicator made, including the memory from
// Alloc, after what OnClose has added. It is local: memory that peers have mapped stays valid for them. The caller's
// work on a device must have ended (also after a failure); Settle waits for that. Close
// itself waits for work that the communicator has given the device, for some seconds at
// most; after a failure for a part of Options.Grace. Closing twice is not an error.
func (c *Communicator) Close() (err error) {
	c.closed.Do(func() { err = c.close() }) // a second caller waits for the first
	return err
}

func (c *Communicator) close() error {
	users := c.closeUsers()
	c.life.Close()
	c.setup.Lock()
	defer c.setup.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), c.life.CloseBound())
	defer cancel()
	if c.unlist != nil {
		c.unlist()
	}
	parts, ports, links := c.life.CloseParts(ctx), c.ports.Close(ctx), c.links.Close(ctx)
	atomic.StoreUint32(&c.counters.Words.Abort, 1) // for kernels that still wait: nothing will come
	engine, counters := c.ports.CloseEngine(), c.counters.Close(ctx)
	if c.life.Failed() {
		return nil // the failure was reported by Err; releasing is best effort then
	}
	return cmp.Or(users, parts, ports, links, engine, counters)
}

// Settle waits until streams of the device have no work left, so that what their
// kernels use can be released. It polls the device and does not block in the driver, so
// it ends with ctx. When the communicator has failed, it ends some seconds later at the
// latest: kernels see the failure and leave. On the host there is nothing to wait for.
func (c *Communicator) Settle(ctx context.Context, streams ...device.Stream) error {
	return counters.Settle(ctx, c.life, c.dev, streams)
}
