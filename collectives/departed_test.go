package collectives_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// A group of messages that waits for a rank which has left in good order names that rank, also if it waits for another
// one that is there, and what the rank sent before it left has come.
func TestMessageOfARankThatHasLeft(t *testing.T) {
	over := make(chan struct{})
	var once sync.Once
	done := func() { once.Do(func() { close(over) }) }
	defer done()
	job(t, 3, collectives.Options{}, func(ctx context.Context, c *collectives.Comm) error {
		b := make([]byte, 300)
		recv := func(peer, bytes int) error { return c.Recv(pointer(b[100*peer:]), bytes, kernel.Uint8, peer, nil) }
		switch c.Rank() {
		case 1: // it is there, and sends nothing
			select {
			case <-over:
			case <-ctx.Done():
			}
			return nil
		case 2:
			return c.Send(pointer(b), 100, kernel.Uint8, 0, nil)
		}
		defer done()
		if err := recv(2, 100); err != nil {
			return err
		}
		c.GroupStart()
		if err := errors.Join(recv(1, 10), recv(2, 10)); err != nil {
			return err
		}
		err := c.GroupEnd()
		if !errors.Is(err, framework.ErrPeer) || framework.PeerOf(err) != 2 || !strings.Contains(err.Error(), "has left the job") {
			return fmt.Errorf("%v, expected ErrPeer of rank 2, which has left the job", err)
		}
		return nil
	})
}
