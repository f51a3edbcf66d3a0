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
	if o == nil {
		o = &defaults
	}
	if j.op == kernel.PreMulSum && !o.alike {
		return runScaled(c, j, o)
	}
	call := &c.call
	err := c.start(call, j, o)
	if err == nil && call.Algorithm.Calls {
		return c.runOfProgram(j)
	}
	if err == nil {
		err = call.Algorithm.Engine.Run(call)
	}
	call.Input, call.Output = nil, nil // a Comm must not keep the caller's buffers
	c.progress.leave()
	if err != nil {
		return fmt.Errorf("%v: %w", j.collective, err)
	}
	return nil
}

// runOfProgram performs the call that was started by an algorithm of the program, which may make calls itself.
func (c *Comm) runOfProgram(j *job) error {
	x := outsideCalls.Get().(*outsideCall)
	x.Call = c.call
	c.call.Input, c.call.Output = nil, nil
	err := c.progress.leaveFor(x)
	*x = outsideCall{} // a Comm must not keep the caller's buffers
	outsideCalls.Put(x)
	if err != nil {
		return fmt.Errorf("%v: %w", j.collective, err)
	}
	return nil
}

// start makes a call ready to run.
func (c *Comm) start(call *engine.Call, j *job, o *CallOptions) (err error) {
	at := c.progress.board.Clock()
	if err := c.check(); err != nil {
		return err
	}
	if err := j.check(c.ranks); err != nil {
		return err
	}
	element := uint64(j.dtype.Size())
	if err := j.apart(c.rank, element); err != nil {
		return err
	}
	if err := c.settle(j.collective, o.Stream); err != nil {
		return err
	}
	j.describe(&call.Request, c.rank, element)
	call.Input, call.Output, call.Stream, call.Scale, call.Multiplied = j.input, j.output, o.Stream, o.Scale, false
	j.locate(c.comm, c.rank, call, element)
	if err = c.choice.start(call, o.Algorithm); err == nil {
		c.progress.board.Begin(at, j.collective, call.Bytes, call.Algorithm.Name, call.Stream)
	}
	return err
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
