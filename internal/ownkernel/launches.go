package ownkernel

import (
	"context"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
)

// Left is the reason why a launch on the host was left before its end. It waits for the news of it, for a bounded time.
func Left(c *comm.Communicator, op string) error {
	err := c.Check()
	if err == nil {
		err = c.Cause(context.Background())
	}
	if err == nil { // a wait that took too long is found by looking alone
		err = c.Check()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return fmt.Errorf("%w: %s: a launch was left before its end", framework.ErrPeer, op)
}

// Apart ends a communicator in which a rank has begun another call than this one. difference says in what calls may differ.
func Apart(c *comm.Communicator, op string, rank int, difference string) error {
	err := &framework.Error{Op: op, Peer: rank, Err: fmt.Errorf("%w: it has begun a call with %s than rank %d", framework.ErrInvalid, difference, c.Rank())}
	c.Abort(err)
	return err
}

// Signature is a hash of what all ranks must have in common: kernels compare it.
func Signature(words ...uint32) uint32 {
	const prime = 16777619
	sum := uint32(2166136261)
	for _, x := range words {
		for range 4 {
			sum = (sum ^ x&0xff) * prime
			x >>= 8
		}
	}
	return sum
}
