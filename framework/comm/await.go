package comm

import (
	"context"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Await waits until ready answers true, for what the peer puts without a signal to where
// ready looks. It ends as Wait does, and takes no signal. Ready must not block, and is not
// called by two goroutines at once. Where this rank drives the sockets of the link only a
// wait for a signal receives: that is ErrUnsupported.
func (ch *PortChannel) Await(ctx context.Context, ready func() bool) error {
	if err := ch.enter("wait"); err != nil {
		return err
	}
	defer ch.use.RUnlock()
	if ch.link.streamed {
		return ch.comm.blame("wait", ch.pair.peer, fmt.Errorf("%w: a wait for data without a signal over sockets that the rank drives: expected Wait", framework.ErrUnsupported))
	}
	return ch.await(ctx, "wait", ready)
}
