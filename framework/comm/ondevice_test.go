package comm_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
)

// A communicator on another device has channels of its own, between the same ranks.
func TestOtherDevice(t *testing.T) {
	job(t, 3, func(ctx context.Context, c *comm.Communicator) (err error) {
		dev, err := host.Open()
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, dev.Close()) }()
		for range 2 {
			moved, err := c.OnDevice(ctx, dev)
			if err != nil {
				return err
			}
			if moved.Device() != device.Device(dev) || moved.Rank() != c.Rank() || moved.Size() != 3 || moved.Name() == c.Name() {
				return errors.Join(fmt.Errorf("%s is rank %d of %d on %v", moved.Name(), moved.Rank(), moved.Size(), moved.Device().Info()), moved.Close())
			}
			if err := errors.Join(passed(ctx, moved), moved.Close()); err != nil {
				return err
			}
		}
		return c.Barrier(ctx)
	})
}

// passed sends a byte around by port channels.
func passed(ctx context.Context, c *comm.Communicator) error {
	m, err := c.Alloc(4096)
	if err != nil {
		return err
	}
	next, before := (c.Rank()+1)%3, (c.Rank()+2)%3
	var to, from *comm.PortChannel
	for _, peer := range []int{min(next, before), max(next, before)} {
		ch, err := c.PortChannel(ctx, peer, m, m)
		if err != nil {
			return err
		}
		if peer == next {
			to = ch
		} else {
			from = ch
		}
	}
	device.Bytes(m)[0] = byte(c.Rank() + 1)
	if err := errors.Join(to.PutWithSignal(64, 0, 1), from.Wait(ctx)); err != nil {
		return err
	}
	if got := device.Bytes(m)[64]; got != byte(before+1) {
		return fmt.Errorf("got %d from rank %d", got, before)
	}
	return to.Flush(ctx)
}

// That it has no device is the fault of one rank, which all hear of.
func TestOtherDeviceThatCannotBe(t *testing.T) {
	job(t, 2, func(ctx context.Context, c *comm.Communicator) error {
		dev, err := host.Open()
		if err != nil {
			return err
		}
		defer dev.Close()
		var other device.Device = dev
		if c.Rank() == 1 {
			other = nil
		}
		moved, err := c.OnDevice(ctx, other)
		if err == nil {
			return errors.Join(errors.New("a moved without a device"), moved.Close())
		}
		if !strings.Contains(err.Error(), "rank 1") && c.Rank() == 0 {
			return fmt.Errorf("%w: expected it to name rank 1", err)
		}
		return nil
	})
}
