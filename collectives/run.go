package collectives

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

var defaults CallOptions

// job is one call on its way to the device.
type job struct {
	collective    Collective
	input, output unsafe.Pointer
	count         int
	dtype         kernel.DataType
	op            kernel.Op
	root          int
	inCount       uint64 // elements of the two buffers
	outCount      uint64
}

// run validates a call, chooses its algorithm and has its engine perform it. It does not allocate
// once the algorithm was used before.
func (c *Comm) run(j *job, o *CallOptions) error {
	if !c.progress.enter() {
		return fmt.Errorf("%v: %w", j.collective, errClosed())
	}
	defer c.progress.leave()
	if o == nil {
		o = &defaults
	}
	call := c.calls.take()
	c.mu.Lock()
	err := c.start(call, j, o)
	c.mu.Unlock()
	if err == nil {
		err = call.Algorithm.Engine.Run(call)
	}
	c.calls.give(call)
	if err != nil {
		return fmt.Errorf("%v: %w", j.collective, err)
	}
	return nil
}

// calls are structures for calls that nobody uses now: a call allocates none. One is enough, unless calls are made
// at the same time, or within each other.
type calls struct {
	first  atomic.Pointer[engine.Call]
	mu     sync.Mutex
	others []*engine.Call
	chosen func(Collective, kernel.DataType) []*engine.Algorithm // for all of them
}

func (s *calls) take() *engine.Call {
	if call := s.first.Swap(nil); call != nil {
		return call
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.others); n > 0 {
		call := s.others[n-1]
		s.others = s.others[:n-1]
		return call
	}
	return &engine.Call{Chosen: s.chosen}
}

// give takes one back. It must not keep the caller's buffers.
func (s *calls) give(call *engine.Call) {
	call.Input, call.Output = nil, nil
	call.In, call.Out = engine.Buffer{}, engine.Buffer{}
	if s.first.CompareAndSwap(nil, call) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.others = append(s.others, call)
}

// start makes a call ready to run. c.mu is held.
func (c *Comm) start(call *engine.Call, j *job, o *CallOptions) error {
	if err := c.check(); err != nil {
		return err
	}
	if err := j.check(c.comm.Size()); err != nil {
		return err
	}
	element := uint64(j.dtype.Size())
	if err := j.apart(c.comm.Rank(), element); err != nil {
		return err
	}
	if err := c.settle(j.collective, o.Stream); err != nil {
		return err
	}
	call.Query = engine.Query{Request: Request{
		Collective: j.collective, Bytes: max(j.inCount, j.outCount) * element, Count: uint64(j.count), Type: j.dtype, Op: j.op,
		Root: j.root, Ranks: c.comm.Size(), InPlace: j.inPlace(c.comm.Rank(), element), Device: deviceName(c.host),
	}}
	call.Input, call.Output, call.Stream, call.Scale = j.input, j.output, o.Stream, o.Scale
	j.locate(c.comm, call, element)
	name := c.choice.named(&call.Request, o.Algorithm)
	call.Named = name != ""
	for {
		var err error
		if call.Algorithm, call.Launch, err = c.choice.choose(&call.Query, name); err != nil {
			return err
		}
		if call.Algorithm.Ready == nil {
			return nil
		}
		again, err := call.Algorithm.Ready(call)
		if err != nil || !again {
			return err
		}
		clear(c.choice.last[:])
	}
}

// settle has engines find out what has to be known before an algorithm is chosen.
func (c *Comm) settle(k Collective, s device.Stream) error {
	for _, e := range c.engines {
		changed, err := e.Settle(k, s)
		if err != nil {
			return err
		}
		if changed {
			c.choice.refresh(c.engines)
		}
	}
	return nil
}

// check says why no call can be made any more, or nil.
func (c *Comm) check() error {
	if c.closed {
		return errClosed()
	}
	if c.refused != nil {
		return c.refused
	}
	return c.comm.Check()
}

// Check returns the reason why calls fail, or nil, without making a call. On a GPU it
// also reports, once, errors of calls that have returned and whose kernels have run
// since.
func (c *Comm) Check() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.check()
	for _, e := range c.engines {
		if k, ok := e.(engine.Checker); ok && err == nil {
			err = k.Check()
		}
	}
	if err != nil {
		return fmt.Errorf("collectives: %w", err)
	}
	return nil
}

func (j *job) check(ranks int) error {
	switch {
	case j.count < 0:
		return fmt.Errorf("%w: count %d: expected at least 0", framework.ErrInvalid, j.count)
	case j.dtype >= kernel.DataTypes:
		return fmt.Errorf("%w: %v: no such element type", framework.ErrInvalid, j.dtype)
	case j.op >= kernel.Ops:
		return fmt.Errorf("%w: %v: no such reduction", framework.ErrInvalid, j.op)
	case j.root < 0 || j.root >= ranks:
		return fmt.Errorf("%w: root %d: expected 0 to %d", framework.ErrInvalid, j.root, ranks-1)
	case uint64(j.count) > math.MaxInt64/uint64(ranks)/8:
		return fmt.Errorf("%w: %d elements of %v a rank: too many bytes", framework.ErrInvalid, j.count, j.dtype)
	case j.input == nil && j.inCount > 0 || j.output == nil && j.outCount > 0:
		return fmt.Errorf("%w: a buffer is nil, expected %d elements in and %d out", framework.ErrInvalid, j.inCount, j.outCount)
	}
	return nil
}

func (j *job) inPlace(rank int, element uint64) bool {
	own := uintptr(uint64(j.count) * element * uint64(rank))
	switch j.collective {
	case AllGather:
		return uintptr(j.input) == uintptr(j.output)+own
	case ReduceScatter:
		return uintptr(j.output) == uintptr(j.input)+own
	}
	return j.input == j.output
}

// locate finds the exchanged memory of the buffers, and tells the request which of them there are.
func (j *job) locate(c *comm.Communicator, call *engine.Call, element uint64) {
	find := func(p unsafe.Pointer, count uint64) (b engine.Buffer) {
		if m, offset, ok := c.Find(uintptr(p), count*element); ok {
			b = engine.Buffer{Memory: m, Offset: offset}
		}
		return b
	}
	// A rank without one of the buffers answers like those that have it.
	if j.collective != Broadcast {
		call.In = find(j.input, j.inCount)
	}
	if j.collective != Reduce || c.Rank() == j.root {
		call.Out = find(j.output, j.outCount)
	}
	if call.In.Memory != nil {
		call.Reached |= engine.ReachInputs
	}
	if call.Out.Memory != nil {
		call.Reached |= engine.ReachOutputs
	}
	needed := choose.Reaches[j.collective]
	call.Registered = call.Reached&needed == needed
}

func deviceName(host bool) string {
	if host {
		return "host"
	}
	return "device"
}
