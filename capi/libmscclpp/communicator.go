package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mscclpp-go/mscclpp/capi/internal/handles"
	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/internal/setup"
)

// Kinds of handles.
const (
	kindComm = 1 + iota
	kindMemory
	kindWindow
	kindChannel
	kindProxy
	kindPlanProgram
	kindPlan
	kindExecutor
	kindModule
	kindKernel
	kindWorkspace
	kindMoE
	kindKept
)

// table has the objects that the program holds.
var table = handles.New("communicator", "memory", "window", "channel", "proxy", "plan program", "plan", "executor", "module", "kernel", "workspace", "buffer of experts", "kept memory")

// job holds the parts that a communicator shares with those that were split off: device, transports and
// the links to the other ranks. The last one closes it.
type job struct {
	*setup.Job
	plan    setup.Plan // of this rank, for those that are left of the job
	version string
	log     io.Closer // may be nil
	refuge  *refuge   // nil: the job has one rank

	mu      sync.Mutex
	users   int
	aborted bool
	shrunk  *communicator // that has the refuge
}

// use takes part in the job, unless that has been closed.
func (j *job) use() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.users == 0 {
		return false
	}
	j.users++
	return true
}

// release gives one use back.
func (j *job) release(aborted bool) error {
	j.mu.Lock()
	j.users--
	j.aborted = j.aborted || aborted
	last := j.users == 0
	j.mu.Unlock()
	if !last {
		return nil
	}
	return errors.Join(j.Close(!j.aborted), j.refuge.close(), closeLog(j.log))
}

func closeLog(log io.Closer) error {
	if log == nil {
		return nil
	}
	return log.Close()
}

// parts are what a communicator has once it was joined.
type parts struct {
	job   *job
	world *comm.Communicator
	calls *collectives.Comm
}

// Kernels of an aborted communicator leave within leaveTime. drainTime bounds how long one is waited for that does not.
const (
	leaveTime = 2 * time.Second
	drainTime = 10 * time.Second
)

// drain waits until the kernels of an aborted communicator have left, before their memory is freed. Those that nobody
// knows of, in graphs, have the time in which kernels leave.
func (p *parts) drain() {
	if p.job.Device.Info().Device == framework.Host {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	if err := collectives.Settle(ctx, p.calls); errors.Is(err, framework.ErrUnsupported) { // other errors have no caller
		time.Sleep(leaveTime)
	}
}

// communicator is the object behind a mscclpp_comm_t. Its calls take no lock that is
// held while they wait, so abort works at any time.
type communicator struct {
	timeout time.Duration
	ctx     context.Context // of whatever waits for other ranks
	end     context.CancelCauseFunc

	plan setup.Plan
	log  io.Closer

	version string        // of the program
	left    []int         // its ranks as numbers of the job that it was made of by shrink
	once    sync.Once     // join
	joined  chan struct{} // closed when join has ended
	failed  error         // why it has failed
	parts   atomic.Pointer[parts]

	launched atomic.Bool // a kernel of the program

	mu      sync.Mutex
	ended   bool                   // no more objects
	objects map[handles.Handle]int // that belong to it, with their kinds
	leaving sync.WaitGroup         // of what is freed behind calls
	unfreed []func() error         // objects that were left then
	over    bool                   // and was freed
}

func newCommunicator(timeout time.Duration) *communicator {
	c := &communicator{timeout: timeout, joined: make(chan struct{}), objects: make(map[handles.Handle]int)}
	c.ctx, c.end = context.WithCancelCause(context.Background())
	return c
}

var (
	errNotJoined = fmt.Errorf("%w: the communicator was not joined: expected mscclpp_comm_join first", framework.ErrInvalid)
	errDestroyed = fmt.Errorf("%w: the communicator was destroyed", framework.ErrClosed)
)

// find returns the communicator of a handle.
func find(h handles.Handle) (*communicator, error) {
	v, err := table.Get(kindComm, h)
	if err != nil {
		return nil, err
	}
	return v.(*communicator), nil
}

// ready returns the parts of the communicator of a handle, for calls that need them.
func ready(h handles.Handle) (*communicator, *parts, error) {
	c, err := find(h)
	if err != nil {
		return nil, nil, err
	}
	p := c.parts.Load()
	if p == nil {
		return nil, nil, errNotJoined
	}
	return c, p, nil
}

// bounded is the context of a call that waits for other ranks.
func (c *communicator) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.ctx, c.timeout)
}

// explain adds why the communicator has ended to an error of a call that waited.
func (c *communicator) explain(err error) error {
	if err != nil && c.ctx.Err() != nil {
		return fmt.Errorf("%w: %v", context.Cause(c.ctx), err) // the error has the class of the cause
	}
	return err
}

// join puts the job together, once.
func (c *communicator) join() error {
	c.once.Do(func() {
		defer close(c.joined)
		ctx, cancel := c.bounded()
		defer cancel()
		j, err := setup.Start(ctx, c.plan)
		if err != nil {
			c.failed = fmt.Errorf("comm join: %w", c.explain(err))
			if c.left != nil {
				c.failed = fmt.Errorf("%w (its ranks were %v of the job that it was made of)", c.failed, c.left)
			}
			return
		}
		shared := &job{Job: j, plan: c.plan, version: c.version, log: c.log, users: 1}
		if shared.refuge, err = newRefuge(ctx, j, c.version); err != nil {
			c.failed = fmt.Errorf("comm join: %w", errors.Join(c.explain(err), j.CloseComm(), j.Close(false)))
			return
		}
		c.parts.Store(&parts{job: shared, world: j.World, calls: j.Comm})
	})
	return c.failed
}

// status says why the communicator cannot be used, and whether it was joined. It never waits.
func (c *communicator) status() (joined bool, err error) {
	p := c.parts.Load()
	if p != nil {
		return true, p.world.Overdue()
	}
	select {
	case <-c.joined:
		return true, c.failed
	default:
		return false, context.Cause(c.ctx)
	}
}

// split makes a communicator of some ranks; nil for a rank that is in none.
func (c *communicator) split(p *parts, color, key int) (*communicator, error) {
	if !p.job.use() { // from now on, so that the end of this communicator leaves the job to the new one
		return nil, errDestroyed
	}
	ctx, cancel := c.bounded()
	defer cancel()
	world, err := p.world.Split(ctx, color, key)
	if err != nil || world == nil {
		return nil, errors.Join(c.explain(err), p.job.release(false))
	}
	calls, err := p.job.NewCollectives(ctx, world)
	if err != nil {
		return nil, errors.Join(c.explain(err), world.Close(), p.job.release(false))
	}
	child := newCommunicator(c.timeout)
	child.once.Do(func() { close(child.joined) })
	child.parts.Store(&parts{job: p.job, world: world, calls: calls})
	return child, nil
}

// destroy ends what waits for other ranks, and frees everything.
func (c *communicator) destroy(cause error, aborted bool) error {
	c.end(cause)
	begun := true
	c.once.Do(func() { // never joined
		begun = false
		c.failed = cause
		close(c.joined)
	})
	<-c.joined
	failed := c.disown()
	c.leaving.Wait() // its context has ended
	p := c.parts.Load()
	if p == nil {
		if l := c.plan.Place; !begun && l != nil && l.Listener != nil {
			_ = l.Listener.Close()
		}
		return closeLog(c.log)
	}
	closed := p.job.Released(errors.Join(failed, p.calls.Close(), p.world.Close()))
	c.freeLeft()
	return errors.Join(closed, p.job.release(aborted))
}

// announceTime is how long abort waits for the announcement to the other ranks.
const announceTime = 500 * time.Millisecond

// abort ends the communicator at once, for all ranks or for this one alone. Calls of other threads may use it still: it
// is freed when they have left.
func (c *communicator) abort(cause error, alone bool) {
	if c.parts.Load() == nil {
		c.end(cause) // of join
	}
	announced := make(chan struct{})
	go func() {
		p := c.parts.Load()
		switch {
		case p == nil:
		case alone:
			p.world.Leave(cause)
		default:
			p.world.Abort(cause)
		}
		c.end(cause) // a set-up call that this ended first would announce the end of all
		close(announced)
		if p != nil {
			p.drain()
			if c.launched.Load() { // the library does not learn when kernels of the program have ended
				time.Sleep(leaveTime)
			}
		}
		_ = c.destroy(cause, true) // calls report the cause
	}()
	select {
	case <-announced:
	case <-time.After(announceTime):
	}
}
