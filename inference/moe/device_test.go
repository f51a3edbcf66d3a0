package moe_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/inference/moe"
	"github.com/mscclpp-go/mscclpp/inference/moe/moetest"
	"github.com/mscclpp-go/mscclpp/internal/ranktest"
)

// On emulated GPUs the committed PTX is interpreted, with blocks that do the work of several. Phases are on two streams by turns.
func TestPTXOnEmulatedGPUs(t *testing.T) {
	t.Setenv(emulated.EnvRun, "ptx")
	t.Setenv(emulated.EnvShape, "3x64")
	onEmulatedGPUs(t, 2, moetest.Trials())
}

// The images of this module load, and calls run in the order of streams.
func TestOnEmulatedGPUs(t *testing.T) {
	t.Setenv(emulated.EnvImages, emulated.Images(t, emulated.Source{Spec: "image/kernels.json"}))
	onEmulatedGPUs(t, 3, moetest.Trials())
}

func onEmulatedGPUs(t *testing.T, ranks int, trials []moetest.Trial) {
	ranktest.OnEmulatedGPUs(t, ranks, func(ctx context.Context, c *comm.Communicator, dev *cuda.Device) error {
		return callsOnGPU(ctx, c, dev, trials)
	})
}

func callsOnGPU(ctx context.Context, c *comm.Communicator, dev *cuda.Device, trials []moetest.Trial) error {
	b, err := moe.New(ctx, c, moetest.Options())
	if err != nil {
		return err
	}
	var streams [2]device.Stream
	for i := range streams {
		if streams[i], err = dev.NewStream(); err != nil {
			return err
		}
	}
	for i, x := range trials {
		r := moetest.Run{Trial: x, Rank: c.Rank(), Ranks: c.Size(), Seed: uint64(i), Handle: b.HandleBytes()}
		m, err := c.Alloc(uint64(r.Bytes()))
		if err != nil {
			return err
		}
		r.Memory = ranktest.Memory{Device: dev, Base: m.Addr()}
		settled := func(s device.Stream) error { return errors.Join(c.Settle(ctx, s), c.Check()) }
		if err := thereAndBack(b, r, streams, settled); err != nil {
			return err
		}
		if err := m.Close(); err != nil {
			return err
		}
	}
	return errors.Join(dev.CloseStream(streams[0]), dev.CloseStream(streams[1]), b.Close())
}

func thereAndBack(b *moe.Buffer, r moetest.Run, streams [2]device.Stream, settled func(device.Stream) error) error {
	call, err := r.Dispatch()
	if err != nil {
		return err
	}
	phases := []moe.Phase{moe.Whole}
	if r.Split {
		phases = []moe.Phase{moe.Send, moe.Receive}
	}
	for i, phase := range phases {
		call.Phase, call.Stream = phase, streams[i]
		if err := b.Dispatch(call); err != nil {
			return err
		}
	}
	if err := errors.Join(settled(call.Stream), r.CheckDispatch()); err != nil {
		return err
	}
	sum := r.Combine()
	for i, phase := range phases {
		sum.Phase, sum.Stream = phase, streams[1-i]
		if err := b.Combine(sum); err != nil {
			return err
		}
	}
	return errors.Join(settled(sum.Stream), r.CheckCombine())
}

// On GPUs an expert with more rows than slots, an expert that there is not, and ranks that differ are named, and no rank hangs.
func TestTroubleOnEmulatedGPUs(t *testing.T) {
	t.Setenv(emulated.EnvRun, "ptx")
	t.Setenv(emulated.EnvShape, "3x64")
	for text, change := range map[string]func(rank int, x *moetest.Trial, c *moe.DispatchCall){
		"was sent more rows than it has room for: expected more slots": func(_ int, x *moetest.Trial, c *moe.DispatchCall) { x.Slots, c.Slots = 1, 1 },
		"has an expert that there is not: expected -1 to 20":           func(r int, _ *moetest.Trial, c *moe.DispatchCall) { c.Index64 = r == 1 },
		"has begun a call with another format or other sizes":          func(r int, _ *moetest.Trial, c *moe.DispatchCall) { c.Hidden -= 8 * r },
	} {
		var mu sync.Mutex
		var ready sync.WaitGroup // a rank that fails ends what others prepare
		ready.Add(2)
		named := false
		ranktest.OnEmulatedGPUs(t, 2, func(ctx context.Context, c *comm.Communicator, dev *cuda.Device) error {
			b, err := moe.New(ctx, c, moetest.Options())
			if err != nil {
				return err
			}
			x := right()
			r := moetest.Run{Trial: x, Rank: c.Rank(), Ranks: c.Size(), Seed: 1, Handle: b.HandleBytes()}
			m, err := c.Alloc(uint64(r.Bytes()))
			if err != nil {
				return err
			}
			r.Memory = ranktest.Memory{Device: dev, Base: m.Addr()}
			call, err := r.Dispatch()
			if err != nil {
				return err
			}
			change(c.Rank(), &x, call)
			ready.Done()
			ready.Wait()
			if err = errors.Join(b.Dispatch(call), c.Settle(ctx, 0), c.Check()); err == nil {
				select { // the other rank says so
				case <-c.Done():
				case <-time.After(4 * time.Minute):
				}
				err = c.Check()
			}
			mu.Lock()
			named = named || err != nil && strings.Contains(err.Error(), text)
			mu.Unlock()
			if err == nil {
				t.Errorf("rank %d: no error: expected %q", c.Rank(), text)
			}
			return nil
		})
		if !named {
			t.Errorf("no rank says %q", text)
		}
	}
}
