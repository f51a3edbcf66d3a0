package collectives

import (
	"errors"
	"fmt"

	"github.com/mscclpp-go/mscclpp/collectives/internal/scaling"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// runScaled performs a PreMulSum, within the turn that the caller has begun, and ends it. This rank multiplies its input
// by its own factor, and what that makes is summed by any algorithm: peers need not know the factor.
func runScaled(c *Comm, j *job, o *CallOptions) error {
	x := scaling.Sum{Kind: j.collective, Type: j.dtype, Input: j.input, Output: j.output, Count: uint64(j.count), Ranks: uint64(c.ranks), Stream: o.Stream}
	err := prepareScaled(c, &x, j, o)
	for more := err == nil; more; more = err == nil && x.Next() {
		part := *j
		part.op, part.input, part.output, part.count = kernel.Sum, x.In, x.Out, int(x.Part)
		if j.count > 0 {
			part.inCount, part.outCount = j.inCount/x.Count*x.Part, j.outCount/x.Count*x.Part
		}
		if err = c.start(&c.call, &part, o); err == nil {
			c.call.Multiplied = true
			err = x.Multiply()
		} else if o.Algorithm != "" && j.collective != AllReduce {
			err = fmt.Errorf("%w (products are in memory of the library, which is not exchanged)", err)
		}
		switch {
		case err == nil && c.call.Algorithm.Calls:
			if err = c.runOfProgram(&part); !c.progress.enter() {
				return errors.Join(err, errClosed())
			}
		case err == nil:
			err = c.call.Algorithm.Engine.Run(&c.call)
		}
	}
	c.call.Input, c.call.Output = nil, nil // a Comm must not keep the caller's buffers
	err = errors.Join(err, x.End())
	c.progress.leave()
	if err != nil {
		return fmt.Errorf("%v: %w", j.collective, err)
	}
	return nil
}

// prepareScaled checks a call, and makes ready what multiplying needs.
func prepareScaled(c *Comm, x *scaling.Sum, j *job, o *CallOptions) (err error) {
	if err := c.check(); err != nil {
		return err
	}
	if err := j.check(c.ranks); err != nil {
		return err
	}
	switch {
	case o == &defaults:
		return fmt.Errorf("%w: %v without options: expected CallOptions.Scale", framework.ErrInvalid, kernel.PreMulSum)
	case o.ScaleAt == nil:
		x.Factor, err = scaling.Of(j.dtype, o.Scale)
	case o.ScaleOnDevice:
		x.Factor.At = o.ScaleAt
	default:
		x.Factor = scaling.Read(j.dtype, o.ScaleAt)
	}
	if err == nil {
		err = j.apart(c.rank, uint64(j.dtype.Size()))
	}
	if err == nil {
		err = c.scaler.Begin(x)
	}
	return err
}
