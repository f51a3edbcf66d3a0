package comm_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
)

// CloseSplits closes what Split and OnDevice have made, also of what they have made; Close of
// each calls first what OnClose has added, unless that was removed.
func TestCloseSplits(t *testing.T) {
	job(t, 2, func(ctx context.Context, c *comm.Communicator) error {
		dev, err := host.Open()
		if err != nil {
			return err
		}
		defer dev.Close()
		sub, err := c.Split(ctx, 0, c.Rank())
		if err != nil {
			return err
		}
		below, err := sub.Split(ctx, 0, c.Rank())
		if err != nil {
			return err
		}
		moved, err := sub.OnDevice(ctx, dev)
		if err != nil {
			return err
		}
		gone, err := c.Split(ctx, 0, c.Rank())
		if err != nil {
			return err
		}
		if err := gone.Close(); err != nil {
			return err
		}
		called := map[string]int{}
		for name, made := range map[string]*comm.Communicator{"sub": sub, "below": below, "moved": moved} {
			made.OnClose(func() error {
				called[name]++
				return made.Check() // it is not closed yet
			})
			made.OnClose(func() error { return errors.New("this one was removed") })()
		}
		if err := errors.Join(c.Barrier(ctx), c.CloseSplits(), c.CloseSplits()); err != nil {
			return err
		}
		for name, made := range map[string]*comm.Communicator{"sub": sub, "below": below, "moved": moved} {
			if err := made.Check(); !errors.Is(err, framework.ErrClosed) || called[name] != 1 {
				return fmt.Errorf("%s: %w, and what OnClose added was called %d times: expected ErrClosed, and once", name, err, called[name])
			}
		}
		return c.Barrier(ctx) // the communicator itself goes on
	})
}
