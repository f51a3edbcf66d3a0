package comm_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/hook"
)

// brokenSwitch is a device whose objects fail at one step, so many times.
type brokenSwitch struct {
	device.Device
	step  string
	err   error
	times atomic.Int32
}

func (d *brokenSwitch) broken(step string) error {
	if step != d.step || d.times.Add(-1) < 0 {
		return nil
	}
	return d.err
}

func (d *brokenSwitch) Object(o framework.Object, s *framework.Share) (device.Object, error) {
	step := "create"
	if s != nil {
		step = "import"
	}
	if err := d.broken(step); err != nil {
		return nil, err
	}
	inner, err := d.Device.Object(o, s)
	if err != nil {
		return nil, err
	}
	return &brokenObject{inner, d}, nil
}

type brokenObject struct {
	device.Object
	d *brokenSwitch
}

func (o *brokenObject) Add() error { return errors.Join(o.d.broken("add"), o.Object.Add()) }

func (o *brokenObject) Bind(slot int, own device.Memory, share *framework.Share, offset, bytes uint64) error {
	if err := o.d.broken("bind"); err != nil {
		return err
	}
	return o.Object.Bind(slot, own, share, offset, bytes)
}

func (o *brokenObject) Map() (device.Memory, uint64, error) {
	if err := o.d.broken("map"); err != nil {
		return nil, 0, err
	}
	return o.Object.Map()
}

// refused makes a switch channel that rank 1, or the root, cannot make: all ranks get an error that names it, the job goes on,
// and the next channel is made.
func refused(t *testing.T, g *rig, blamed int) {
	t.Helper()
	g.run(t, func(ctx context.Context, c *comm.Communicator) error {
		m, err := c.Alloc(8192)
		if err != nil {
			return err
		}
		_, err = c.SwitchChannel(ctx, m)
		class := framework.ErrPeer
		if c.Rank() == blamed {
			class = framework.ErrUnavailable
		}
		if err := names(err, class, blamed, "injected fault"); err != nil {
			return err
		}
		if err := c.Err(); err != nil {
			return fmt.Errorf("the job ends with a switch that is refused: %w", err)
		}
		if err := c.Barrier(ctx); err != nil {
			return err
		}
		ch, err := c.SwitchChannel(ctx, m)
		if err != nil {
			return fmt.Errorf("the next one: %w", err)
		}
		return ch.Close()
	})
}

// A rank that cannot do its part of a switch takes the switch from all, and the job from nobody.
func TestSwitchIsRefusedByTransport(t *testing.T) {
	for _, op := range []string{"register", "connect", "attach"} {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s after %v", op, after), func(t *testing.T) {
				g := newRig(3)
				g.wrap = func(rank int, inner framework.Transport) framework.Transport {
					if rank != 1 {
						return inner
					}
					return hook.Wrap(inner, hook.Fault(hook.Rule{Op: op, Nth: 1, After: after}))
				}
				refused(t, g, 1)
			})
		}
	}
}

var errInjected = fmt.Errorf("%w: injected fault", framework.ErrUnavailable)

func TestSwitchIsRefusedByDevice(t *testing.T) {
	for _, step := range []string{"create", "import", "add", "bind", "map"} {
		t.Run(step, func(t *testing.T) {
			g, blamed := newRig(3), 1
			if step == "create" {
				blamed = 0
			}
			g.device = func(rank int, d device.Device) device.Device {
				if rank != blamed {
					return d
				}
				b := &brokenSwitch{Device: d, step: step, err: errInjected}
				b.times.Store(1)
				return b
			}
			refused(t, g, blamed)
		})
	}
}

// A driver that is still starting gets another try, of all ranks together.
func TestSwitchIsTriedAgain(t *testing.T) {
	g := newRig(2)
	binds := make([]*brokenSwitch, 2)
	g.device = func(rank int, d device.Device) device.Device {
		b := &brokenSwitch{Device: d, step: "bind", err: fmt.Errorf("%w: injected fault: %w", framework.ErrUnavailable, device.ErrNotReady)}
		if rank == 1 {
			b.times.Store(1)
		}
		binds[rank] = b
		return b
	}
	g.run(t, func(ctx context.Context, c *comm.Communicator) error {
		m, err := c.Alloc(8192)
		if err != nil {
			return err
		}
		ch, err := c.SwitchChannel(ctx, m)
		if err != nil {
			return err
		}
		// Each rank binds the memory of both. Rank 1 failed at its first.
		if made := -1 - binds[c.Rank()].times.Load(); c.Rank() == 0 && made != 3 || c.Rank() == 1 && made != 1 {
			return fmt.Errorf("%d binds that were counted behind the first", made)
		}
		return ch.Close()
	})
}

// A switch that has no room on one rank says so on all, and no other refusal does: all may ask for less.
func TestSwitchIsFull(t *testing.T) {
	for full, err := range map[bool]error{true: fmt.Errorf("%w: injected fault: %w", framework.ErrUnavailable, device.ErrFull), false: errInjected} {
		g := newRig(3)
		g.device = func(rank int, d device.Device) device.Device {
			b := &brokenSwitch{Device: d, step: "bind", err: err}
			if rank == 1 {
				b.times.Store(1)
			}
			return b
		}
		g.run(t, func(ctx context.Context, c *comm.Communicator) error {
			m, err := c.Alloc(8192)
			if err != nil {
				return err
			}
			if _, err := c.SwitchChannel(ctx, m); errors.Is(err, device.ErrFull) != full {
				return fmt.Errorf("%w: full %v, expected %v", err, !full, full)
			}
			return c.Err()
		})
	}
}
