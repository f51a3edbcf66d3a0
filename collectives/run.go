package collectives

import (
	"fmt"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

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

// start makes a call ready to run. c.mu is held.
func (c *Comm) start(call *engine.Call, j *job, o *CallOptions) error {
	if err := c.check(); err != nil {
		return err
	}
	if err := j.check(c.comm.Size()); err != nil {
		return err
	}
	if j.op == kernel.PreMulSum {
		if err := checkScale(j.dtype, o.Scale); err != nil {
			return err
		}
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
