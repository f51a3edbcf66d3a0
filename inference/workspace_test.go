package inference_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/inference"
	"github.com/mscclpp-go/mscclpp/inference/inferencetest"
	"github.com/mscclpp-go/mscclpp/internal/ranktest"
)

// alike compares a number of all ranks.
func alike(ctx context.Context, c *comm.Communicator, x uint64) error {
	mine := binary.LittleEndian.AppendUint64(nil, x)
	all, err := c.AllGather(ctx, mine)
	for r, theirs := range all {
		if !slices.Equal(mine, theirs) {
			return fmt.Errorf("rank %d has other bits than rank %d", r, c.Rank())
		}
	}
	return err
}

// Results are right for all types, norms, quantizations and sizes, and the same on all ranks.
func TestAllReduceNorm(t *testing.T) {
	for _, ranks := range []int{1, 2, 3, 5} {
		job(t, ranks, func(ctx context.Context, c *comm.Communicator) error {
			w, err := inference.New(ctx, c, inference.Options{Scratch: 768 << 10}) // some calls take several launches
			if err != nil {
				return err
			}
			trials := inferencetest.Trials()
			if ranks == 2 {
				trials = append(trials, inferencetest.LargeTrials()...)
			}
			for i, x := range trials {
				m := ranktest.Aligned(x.Bytes())
				call, err := x.Call(m, c.Rank(), c.Size(), uint64(i))
				if err != nil {
					return err
				}
				if err := w.AllReduceNorm(call); err != nil {
					return fmt.Errorf("%v: %w", x, err)
				}
				sum, err := x.Check(m, c.Rank(), ranks, uint64(i))
				if err != nil {
					return err
				}
				if err := alike(ctx, c, sum); err != nil {
					return fmt.Errorf("%v: %w", x, err)
				}
			}
			return w.Close()
		})
	}
}

// Elements that look like memory into which no packet has come are NaNs, and their row is; no rank waits forever.
func TestSentinelsInInputs(t *testing.T) {
	for _, typ := range inference.Types() {
		job(t, 2, func(ctx context.Context, c *comm.Communicator) error {
			w, err := inference.New(ctx, c, inference.Options{Scratch: 1 << 20})
			if err != nil {
				return err
			}
			x := inferencetest.Trial{Type: typ, Tokens: 3, Hidden: 64}
			m := ranktest.Aligned(x.Bytes())
			call, err := x.Call(m, c.Rank(), c.Size(), 1)
			if err != nil {
				return err
			}
			row := 64 * typ.Size()
			for i := row; i < row+32; i++ { // of the second row
				*(*byte)(unsafe.Add(call.Input, i)) = 0xff
			}
			if err := w.AllReduceNorm(call); err != nil {
				return err
			}
			out := unsafe.Slice((*byte)(call.Output), 3*row)
			if typ == kernel.BFloat16 && out[row+1]&0x7f != 0x7f {
				return fmt.Errorf("an element of the row of NaNs is %x", out[row:row+2])
			}
			if err := w.AllReduceNorm(call); err != nil {
				return err
			}
			h := uint64(0)
			for _, b := range out {
				h = h*31 + uint64(b)
			}
			return errors.Join(alike(ctx, c, h), w.Close())
		})
	}
}

// Wrong calls are refused, and say what is served.
func TestWrongCalls(t *testing.T) {
	job(t, 1, func(ctx context.Context, c *comm.Communicator) error {
		w, err := inference.New(ctx, c, inference.Options{})
		if err != nil {
			return err
		}
		x := inferencetest.Trial{Type: kernel.BFloat16, Tokens: 4, Hidden: 64}
		m := ranktest.Aligned(x.Bytes())
		for _, wrong := range []struct {
			change func(*inference.NormCall)
			text   string
		}{
			{func(c *inference.NormCall) { c.Type = kernel.Float64 }, "expected f16, bf16 or f32"},
			{func(c *inference.NormCall) { c.Hidden = 60 }, "a multiple of 8"},
			{func(c *inference.NormCall) { c.Hidden = 0 }, "a multiple of 8"},
			{func(c *inference.NormCall) { c.Hidden = 1 << 21 }, "at most 1048576"},
			{func(c *inference.NormCall) { c.Tokens = -1 }, "-1 rows"},
			{func(c *inference.NormCall) { c.Norm = 3 }, "norm 3"},
			{func(c *inference.NormCall) { c.Quantization = 9 }, "quantization 9"},
			{func(c *inference.NormCall) { c.Shots = 3 }, "shots 3"},
			{func(c *inference.NormCall) { c.Epsilon = -1 }, "epsilon -1"},
			{func(c *inference.NormCall) { c.Weight = nil }, "weight is nil"},
			{func(c *inference.NormCall) { c.Input = unsafe.Add(c.Input, 8) }, "expected a multiple of 16"},
			{func(c *inference.NormCall) { c.Quantization = inference.E4M3PerToken }, "scales is nil"},
			{func(c *inference.NormCall) { c.Scale = c.Weight }, "scale was given"},
			{func(c *inference.NormCall) { c.Output = c.ResidualOut }, "output and residual_out overlap"},
			{func(c *inference.NormCall) { c.Output = unsafe.Add(c.Input, 16) }, "input and output overlap"},
			{func(c *inference.NormCall) { c.Output = c.Residual }, "residual and output overlap"},
			{func(c *inference.NormCall) { c.ResidualOut = c.Weight }, "weight and residual_out overlap"},
		} {
			call, err := x.Call(m, 0, 1, 1)
			if err != nil {
				return err
			}
			wrong.change(call)
			if err := w.AllReduceNorm(call); !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), wrong.text) {
				t.Errorf("%v: expected %q", err, wrong.text)
			}
		}
		_, err = inference.New(ctx, c, inference.Options{Scratch: 100})
		if !errors.Is(err, framework.ErrInvalid) {
			t.Errorf("%v: expected more scratch memory", err)
		}
		if err := w.Close(); err != nil {
			return err
		}
		call, err := x.Call(m, 0, 1, 1)
		if err != nil {
			return err
		}
		if err := w.AllReduceNorm(call); !errors.Is(err, framework.ErrClosed) {
			t.Errorf("%v: expected that the workspace is closed", err)
		}
		return nil
	})
}
