package proxy

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/observe"
	"github.com/mscclpp-go/mscclpp/framework/ring"
)

// Copier performs the triggers of port channels with the copy engine of the rank's own
// device. A put is an asynchronous copy into mapped memory of the peer, a signal is the
// store of the next value into the peer's counter, and a flush is the store of the
// trigger's position into a word of the ring.
//
// Streams of the connection perform them: puts in their order, and each put before the
// signals and flushes behind it. While the streams have nothing to do, the copier
// stores signals and flushes itself (see [Lane]). So it never waits for a stream, and one
// connection never waits for another.
//
// It is for transports whose description says framework.ProxyRank. Its triggers cite addresses as
// the device sees them; the binding rank has mapped them before.
type Copier struct {
	*Service
	ring *ring.Ring
	base uintptr

	mu         sync.Mutex // held while a trigger is performed
	memories   [copierMemories]*copierMemory
	semaphores [kernel.RingFlushWords]*Counter
	active     []*Lane // with something outstanding, as far as the thread knows
	polls      int
	records    *observe.Loop
	under      map[*Lane][]post // while records are wanted
}

const (
	copierMemories = 1 << 9
	lookEvery      = 32 // polls of an empty ring between looks at lanes
)

// copierMemory is own memory if lane is nil, else a peer's.
type copierMemory struct {
	addr  uintptr
	bytes uint64
	lane  *Lane
}

// Pauses of a copier that has nothing to do: kernels cannot wake it, so it sleeps
// late, and briefly.
const (
	copierSpin  = time.Millisecond
	copierYield = 10 * time.Millisecond
	copierPark  = 50 * time.Microsecond
)

// NewCopier returns a copier that does not run yet, the ring's only consumer. Base is
// where the device finds the ring's memory. Options that are 0 have defaults for
// producers on a device; Init and Progress are the copier's own.
func NewCopier(r *ring.Ring, base uintptr, o Options) *Copier {
	c := &Copier{ring: r, base: base, records: o.Records}
	if o.Spin == 0 {
		o.Spin = copierSpin
	}
	if o.Yield == 0 {
		o.Yield = copierYield
	}
	if o.Park == 0 {
		o.Park = copierPark
	}
	o.Progress = c.progress
	c.Service = New(r, c.perform, o)
	return c
}

// BindSource gives memory of this rank a number that triggers cite. A number is given
// once, and may be taken back by Unbind.
func (c *Copier) BindSource(slot uint32, addr uintptr, bytes uint64) error {
	return c.bindMemory(slot, copierMemory{addr: addr, bytes: bytes})
}

// BindTarget gives a peer's memory a number; puts into it go over lane.
func (c *Copier) BindTarget(slot uint32, addr uintptr, bytes uint64, lane *Lane) error {
	return c.bindMemory(slot, copierMemory{addr: addr, bytes: bytes, lane: lane})
}

func (c *Copier) bindMemory(slot uint32, m copierMemory) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if slot >= copierMemories || c.memories[slot] != nil {
		return fmt.Errorf("bind memory %d: %w: expected a free number below %d", slot, framework.ErrInvalid, copierMemories)
	}
	c.memories[slot] = &m
	return nil
}

// BindSemaphore gives a number to a counter of a peer, and to the flush word of its
// lane.
func (c *Copier) BindSemaphore(slot uint32, n *Counter) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if slot >= kernel.RingFlushWords || c.semaphores[slot] != nil {
		return fmt.Errorf("bind semaphore %d: %w: expected a free number below %d", slot, framework.ErrInvalid, kernel.RingFlushWords)
	}
	c.semaphores[slot] = n
	return nil
}

// Unbind takes numbers back. Triggers taken from the ring before may still be in
// progress: see Lane.Settle. A later trigger that cites such a number ends the copier.
func (c *Copier) Unbind(semaphore uint32, memories ...uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.semaphores[semaphore] = nil
	for _, m := range memories {
		c.memories[m] = nil
	}
}

// perform is the handler.
func (c *Copier) perform(t kernel.Trigger, pos uint64) Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, lane, err := c.resolve(t, pos)
	if err != nil {
		return Fail(err)
	}
	looked := c.records.Wanted()
	if looked {
		c.taken(pos, o.bytes, lane)
	}
	var did submitted
	for {
		if did, err = lane.submit(o); err != nil {
			return Fail(err)
		}
		if did != noRoom {
			break
		}
		// Over a thousand operations wait for this peer: others do, too, now.
		if c.stop.Load() == quit {
			return Fail(fmt.Errorf("%w: asked to quit with %d operations on their way to rank %d", framework.ErrClosed, backlog+window, lane.peer))
		}
		if err := c.lookAll(); err != nil {
			return Fail(err)
		}
		_, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	}
	if looked {
		c.submitted(pos, o.bytes, lane, did)
	}
	if did == under && !slices.Contains(c.active, lane) {
		c.active = append(c.active, lane)
	}
	return Continue
}

// resolve checks a trigger, which a kernel wrote, and looks up what it cites.
func (c *Copier) resolve(t kernel.Trigger, pos uint64) (o operation, lane *Lane, err error) {
	bytes, from, to := t.Bytes(), t.From(), t.To()
	kind, slot := t.Kind(), t.Slot()
	if kind == 0 {
		return o, nil, fmt.Errorf("%w: it asks for nothing: expected a put, a signal or a flush", framework.ErrInvalid)
	}
	if kind&(kernel.TriggerSignal|kernel.TriggerFlush) != 0 {
		if slot >= kernel.RingFlushWords || c.semaphores[slot] == nil {
			return o, nil, fmt.Errorf("%w: semaphore %d is not bound", framework.ErrInvalid, slot)
		}
		lane = c.semaphores[slot].lane
		if kind&kernel.TriggerSignal != 0 {
			o.counter = c.semaphores[slot]
		}
		if kind&kernel.TriggerFlush != 0 {
			o.flush = Word{Host: (*uint64)(hostPointer(c.ring.FlushWord(slot))), Device: ring.FlushWordOn(c.base, slot)}
			o.pos = pos
		}
	}
	if kind&kernel.TriggerData == 0 {
		return o, lane, nil
	}
	src, dst := c.memories[t.Src()], c.memories[t.Dst()]
	switch {
	case src == nil:
		return o, nil, fmt.Errorf("%w: source memory %d is not bound", framework.ErrInvalid, t.Src())
	case dst == nil:
		return o, nil, fmt.Errorf("%w: target memory %d is not bound", framework.ErrInvalid, t.Dst())
	case src.lane != nil:
		return o, nil, fmt.Errorf("%w: source memory %d is a peer's: expected own memory", framework.ErrInvalid, t.Src())
	case dst.lane == nil:
		return o, nil, fmt.Errorf("%w: target memory %d is own memory: expected a peer's", framework.ErrInvalid, t.Dst())
	case lane != nil && dst.lane != lane:
		return o, nil, fmt.Errorf("%w: target memory %d is of rank %d, semaphore %d of rank %d: expected one peer",
			framework.ErrInvalid, t.Dst(), dst.lane.peer, slot, lane.peer)
	case from > src.bytes || bytes > src.bytes-from:
		return o, nil, fmt.Errorf("%w: %d bytes at %d of source memory %d, which has %d", framework.ErrInvalid, bytes, from, t.Src(), src.bytes)
	case to > dst.bytes || bytes > dst.bytes-to:
		return o, nil, fmt.Errorf("%w: %d bytes at %d of target memory %d, which has %d", framework.ErrInvalid, bytes, to, t.Dst(), dst.bytes)
	}
	o.src, o.dst, o.bytes = src.addr+uintptr(from), dst.addr+uintptr(to), bytes
	return o, dst.lane, nil
}

// progress looks at the lanes now and then.
func (c *Copier) progress() (outstanding bool, err error) {
	if len(c.active) == 0 {
		c.records.Rest()
		return false, nil
	}
	if c.polls++; c.polls%lookEvery == 0 {
		err = c.lookAll()
	}
	return len(c.active) > 0, err
}

func (c *Copier) lookAll() error {
	for i := 0; i < len(c.active); {
		outstanding, err := c.active[i].look()
		if err != nil {
			return err
		}
		if len(c.under) > 0 {
			c.completed(c.active[i])
		}
		if outstanding {
			i++
			continue
		}
		last := len(c.active) - 1
		c.active[i], c.active[last] = c.active[last], nil
		c.active = c.active[:last]
	}
	return nil
}
