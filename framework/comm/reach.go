package comm

import (
	"context"
	"errors"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
)

// ReachAll links this rank with all others for memory channels. Where there is no
// link between some two ranks, apart says between which and why, on all ranks alike,
// and the communicator is as good as before: its other channels work. Its class is
// ErrUnavailable or ErrUnsupported. Collective.
func (c *Communicator) ReachAll(ctx context.Context) (apart, err error) {
	err = c.setUp(ctx, opReach, func(ctx context.Context) error {
		if _, err := c.agree(ctx, opReach, nil, nil); err != nil {
			return err
		}
		var why []byte
		for _, peer := range c.pairOrder() {
			_, err := c.memoryLink(ctx, peer)
			var r *refusal
			switch {
			case errors.As(err, &r): // the pair is in step, and goes on
				if why == nil {
					why = encodeApart(r.error)
				}
			case err != nil:
				return err
			}
		}
		said, err := c.agree(ctx, opReach, why, nil)
		if err != nil {
			return err
		}
		for rank, s := range said {
			if len(s) > 0 {
				apart = decodeApart(rank, s)
				break
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return apart, nil
}

// encodeApart is a class, U for never and A for not here, and a text.
func encodeApart(err error) []byte {
	class := byte('A')
	if errors.Is(err, framework.ErrUnsupported) {
		class = 'U'
	}
	return append([]byte{class}, err.Error()...)
}

func decodeApart(rank int, b []byte) error {
	class := framework.ErrUnavailable
	if b[0] == 'U' {
		class = framework.ErrUnsupported
	}
	return &framework.Error{Op: opReach, Peer: rank, Err: fmt.Errorf("%w: %s", class, b[1:])}
}
