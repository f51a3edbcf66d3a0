package inference_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/inference"
	"github.com/mscclpp-go/mscclpp/inference/inferencetest"
	"github.com/mscclpp-go/mscclpp/internal/ranktest"
)

// broken runs f as n ranks with a workspace, which are to fail, and returns the errors of ranks.
func broken(t *testing.T, n int, f func(ctx context.Context, c *comm.Communicator, w *inference.Workspace) error) []error {
	return ranktest.Broken(t, n, func(ctx context.Context, c *comm.Communicator) (*inference.Workspace, error) {
		return inference.New(ctx, c, inference.Options{Scratch: 1 << 20})
	}, f)
}

func call(c *comm.Communicator, w *inference.Workspace, x inferencetest.Trial) error {
	n, err := x.Call(ranktest.Aligned(x.Bytes()), c.Rank(), c.Size(), 1)
	if err != nil {
		return err
	}
	return w.AllReduceNorm(n)
}

// Ranks that begin different calls fail, and one of them names another; none waits.
func TestRanksThatDisagree(t *testing.T) {
	right := inferencetest.Trial{Type: kernel.BFloat16, Tokens: 4, Hidden: 64}
	for name, change := range map[string]func(*inferencetest.Trial){
		"tokens":       func(x *inferencetest.Trial) { x.Tokens = 5 },
		"hidden":       func(x *inferencetest.Trial) { x.Hidden = 128 },
		"type":         func(x *inferencetest.Trial) { x.Type = kernel.Float16 },
		"norm":         func(x *inferencetest.Trial) { x.Norm = inference.LayerNorm },
		"quantization": func(x *inferencetest.Trial) { x.Quantization = inference.Int8PerToken },
		"shots":        func(x *inferencetest.Trial) { x.Shots = inference.TwoShot },
		"bias":         func(x *inferencetest.Trial) { x.Bias = true },
		"residual":     func(x *inferencetest.Trial) { x.NoResidual = true },
	} {
		t.Run(name, func(t *testing.T) {
			errs := broken(t, 3, func(_ context.Context, c *comm.Communicator, w *inference.Workspace) error {
				if err := call(c, w, right); err != nil {
					return err
				}
				x := right
				if c.Rank() == 1 {
					change(&x)
				}
				return call(c, w, x)
			})
			named := false
			for r, err := range errs {
				if err == nil {
					t.Errorf("rank %d has no error", r)
					continue
				}
				var e *framework.Error
				named = named || errors.As(err, &e) && e.Peer >= 0 && strings.Contains(err.Error(), "another type, other sizes or another norm")
			}
			if !named {
				t.Errorf("%v: expected that a rank names another", errs)
			}
		})
	}
}

// A rank that ends the job instead of making its call ends the calls of the others, and a Close does so too.
func TestCallsEndWithTheJob(t *testing.T) {
	x := inferencetest.Trial{Type: kernel.Float32, Tokens: 4, Hidden: 64}
	cause := errors.New("out of tokens")
	errs := broken(t, 3, func(_ context.Context, c *comm.Communicator, w *inference.Workspace) error {
		if c.Rank() == 2 {
			c.Abort(cause)
			return nil
		}
		return call(c, w, x)
	})
	for _, err := range errs[:2] {
		if err == nil || !strings.Contains(err.Error(), cause.Error()) {
			t.Errorf("%v: expected %v", err, cause)
		}
	}
}

// Workspaces of other sizes are refused on all ranks.
func TestOtherWorkspaces(t *testing.T) {
	errs := broken(t, 2, func(ctx context.Context, c *comm.Communicator, _ *inference.Workspace) error {
		_, err := inference.New(ctx, c, inference.Options{Scratch: uint64(1+c.Rank()) << 20})
		return err
	})
	for r, err := range errs {
		var e *framework.Error
		if !errors.As(err, &e) || e.Peer != 1-r || !strings.Contains(err.Error(), "bytes of scratch memory") {
			t.Errorf("rank %d: %v: expected that it names the other rank", r, err)
		}
	}
}
