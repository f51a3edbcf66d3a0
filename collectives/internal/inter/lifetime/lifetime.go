// Package lifetime ends communicators that belong together, and calls on them, with the error that says most.
package lifetime

import (
	"errors"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
)

// Patience is how long a communicator gets to find out itself why a part of it has
// ended: it knows more of it.
const Patience = 500 * time.Millisecond

// Bind makes the end of a communicator, and of one that was made of it, that of both. named
// says of an error of the part what it means for the whole.
func Bind(world, part *comm.Communicator, closed <-chan struct{}, named func(error) error) {
	select {
	case <-closed:
		return
	case <-world.Done():
	case <-part.Done():
		select {
		case <-closed:
			return
		case <-world.Done():
		case <-time.After(Patience):
			world.Abort(named(part.Err()))
		}
	}
	part.Abort(world.Err())
}

// Settle ends the communicator with a wait for a rank that has left, since others may
// wait for this one. A wait that ends because a channel does not work any more comes out
// earlier than the reason, which the communicator gets from the proxy, and ends with.
func Settle(c *comm.Communicator, err error) error {
	lost := errors.Is(err, framework.ErrPeer)
	if !lost && !errors.Is(err, framework.ErrUnavailable) {
		return err
	}
	select {
	case <-c.Done():
		return c.Err()
	case <-time.After(Patience):
	}
	if lost {
		c.Abort(err)
	}
	return err
}

// Abandon ends the communicator with an error of a call half-way: others wait for what
// will not come.
func Abandon(c *comm.Communicator, err error) error {
	err = Settle(c, err)
	if err != nil {
		c.Abort(err)
	}
	return err
}
