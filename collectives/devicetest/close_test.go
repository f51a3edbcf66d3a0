package devicetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
)

// Close ends kernels that wait on a stream for a rank which does not come: a thread that waits for
// the stream goes on, Close returns, and the rank that did not come gets the error.
func TestCloseWhileKernelsWait(t *testing.T) {
	for name, at := range map[string][]string{"one host": {"", ""}, "two hosts": {"a", "b"}} {
		t.Run(name, func(t *testing.T) {
			hosts(t, at, collectives.Options{}, func(ctx context.Context, r *rank) error {
				m, err := r.memory(ctx, 1<<20)
				if err != nil {
					return err
				}
				if err := errors.Join(sums(r, m.Addr(), 100, ""), r.settle(ctx), r.world.Barrier(ctx)); err != nil {
					return err
				}
				if r.Rank() == 1 {
					if err := until(ctx, "the end of the communicator", func() bool { return r.world.Err() != nil }); err != nil {
						return err
					}
					return wants(r.world.Err(), framework.ErrPeer, "closed its collectives while")
				}
				if err := sums(r, m.Addr(), 100, ""); err != nil {
					return err
				}
				settled, closed := make(chan error, 1), make(chan error, 1)
				go func() { settled <- r.dev.Sync(r.stream) }()
				go func() { closed <- r.Close() }()
				for range 2 {
					select {
					case err := <-settled:
						if err != nil {
							return err
						}
					case err := <-closed:
						if err != nil {
							return err
						}
					case <-time.After(patience):
						return fmt.Errorf("the stream, or Close, is still waiting")
					}
				}
				return wants(sums(r, m.Addr(), 100, ""), framework.ErrClosed)
			})
		})
	}
}
