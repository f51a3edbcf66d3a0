package collectives

import (
	"errors"
	"fmt"
)

// errRunOwn says that the call is for an algorithm of the program, which runs
// without the lock: it may use the Comm.
var errRunOwn = errors.New("algorithm of the program")

func (c *Comm) runOwn(j *job, o *CallOptions) error {
	element := uint64(j.dtype.Size())
	call := &Call{
		Request: Request{
			Collective: j.collective, Bytes: max(j.inCount, j.outCount) * element, Count: uint64(j.count), Type: j.dtype, Op: j.op,
			Root: j.root, Ranks: c.Size(), InPlace: j.inPlace(c.Rank(), element), Device: deviceName(c.host),
		},
		Input: j.input, Output: j.output, Stream: o.Stream, Scale: o.Scale,
	}
	c.mu.Lock()
	c.request = call.Request
	c.locate(j, element)
	call.Request = c.request
	a, _, err := c.choose(&call.Request, o.Algorithm)
	c.mu.Unlock()
	if err == nil {
		err = a.own.Run(c, call)
	}
	if err != nil {
		return fmt.Errorf("%v: %w", j.collective, err)
	}
	return nil
}
