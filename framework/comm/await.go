package comm

import (
	"context"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Await waits until ready returns true. It is for data that the peer puts without a
// signal, and that ready looks at. It ends as Wait does, and consumes no signal. ready
// must not block, and is not called by two goroutines at once. Where this rank drives
// the sockets of the link, only a wait for a signal receives data: there Await fails
// with ErrUnsupported.
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
