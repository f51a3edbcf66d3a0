package moe_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/inference/moe"
	"github.com/mscclpp-go/mscclpp/inference/moe/moetest"
	"github.com/mscclpp-go/mscclpp/internal/ranktest"
)

// A graph of dispatch and combine, whole or in phases, is right in each replay, with other rows and experts than it was recorded with, and
// beside calls outside of it. A capture between phases that was thrown away leaves nothing behind.
func TestGraphs(t *testing.T) {
	t.Setenv(emulated.EnvRun, "ptx")
	t.Setenv(emulated.EnvShape, "3x64")
	ranktest.OnEmulatedGPUs(t, 2, func(ctx context.Context, c *comm.Communicator, dev *cuda.Device) error {
		b, err := moe.New(ctx, c, moetest.Options())
		if err != nil {
			return err
		}
		s, err := dev.NewStream()
		if err != nil {
			return err
		}
		for _, split := range []bool{false, true} {
			x := right()
			x.Split, x.Slots, x.Weighted = split, 2*5*4, split
			if err := recorded(ctx, c, dev, b, s, x); err != nil {
				return fmt.Errorf("%v: %w", x, err)
			}
		}
		return errors.Join(dev.CloseStream(s), b.Close())
	})
}

func recorded(ctx context.Context, c *comm.Communicator, dev *cuda.Device, b *moe.Buffer, s device.Stream, x moetest.Trial) error {
	r := moetest.Run{Trial: x, Rank: c.Rank(), Ranks: c.Size(), Handle: b.HandleBytes()}
	m, err := c.Alloc(uint64(r.Bytes()))
	if err != nil {
		return err
	}
	r.Memory = ranktest.Memory{Device: dev, Base: m.Addr()}
	dispatches := func(phases ...moe.Phase) error {
		call, err := r.Dispatch()
		for _, phase := range phases {
			call.Phase, call.Stream = phase, s
			err = errors.Join(err, b.Dispatch(call))
		}
		return err
	}
	combines := func(phases ...moe.Phase) (err error) {
		call := r.Combine()
		for _, phase := range phases {
			call.Phase, call.Stream = phase, s
			err = errors.Join(err, b.Combine(call))
		}
		return err
	}
	whole := []moe.Phase{moe.Whole}
	if x.Split {
		whole = []moe.Phase{moe.Send, moe.Receive}
	}
	settled := func() error { return errors.Join(c.Settle(ctx, s), c.Check()) }
	round := func() error {
		return errors.Join(dispatches(whole...), settled(), r.CheckDispatch(), combines(whole...), settled(), r.CheckCombine())
	}
	capture := func(f func() error) (*cuda.Graph, error) {
		if err := dev.BeginCapture(s, cuda.CaptureThreadLocal); err != nil {
			return nil, err
		}
		err := f()
		g, err2 := dev.EndCapture(s)
		return g, errors.Join(err, err2)
	}
	if err := round(); err != nil {
		return err
	}
	for range 3 {
		lost, err := capture(func() error { return dispatches(moe.Send) })
		if err != nil {
			return err
		}
		if err := lost.Close(); err != nil {
			return err
		}
	}
	dispatch, err := capture(func() error { return dispatches(whole...) })
	if err != nil {
		return err
	}
	combine, err := capture(func() error { return combines(whole...) })
	if err != nil {
		return err
	}
	for seed := range uint64(4) {
		r.Seed = 10 + seed
		if _, err := r.Dispatch(); err != nil { // the rows of this round
			return err
		}
		if err := errors.Join(dispatch.Launch(s), settled(), r.CheckDispatch(), combine.Launch(s), settled(), r.CheckCombine()); err != nil {
			return err
		}
		if r.Seed = 20 + seed; seed%2 == 0 {
			if err := round(); err != nil {
				return err
			}
		}
	}
	return errors.Join(dispatch.Close(), combine.Close(), m.Close())
}
