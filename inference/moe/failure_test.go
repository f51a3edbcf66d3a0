package moe_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/inference/moe"
	"github.com/mscclpp-go/mscclpp/inference/moe/moetest"
	"github.com/mscclpp-go/mscclpp/internal/ranktest"
)

// broken runs f as n ranks with a buffer, which are to fail, and returns the errors of ranks.
func broken(t *testing.T, n int, f func(ctx context.Context, c *comm.Communicator, b *moe.Buffer) error) []error {
	return ranktest.Broken(t, n, func(ctx context.Context, c *comm.Communicator) (*moe.Buffer, error) {
		return moe.New(ctx, c, moetest.Options())
	}, f)
}

func right() moetest.Trial {
	return moetest.Trial{Options: moetest.Options(), Hidden: 256, TopK: 4, Tokens: func(int) int { return 5 }}
}

// scalesOf is memory for scales of a call.
func scalesOf(c *moe.DispatchCall) unsafe.Pointer {
	return ranktest.Aligned(8 * 21 * c.Slots * c.Hidden / 128).Pointer(0)
}

// Ranks that begin different calls fail, and one of them names another; none waits.
func TestRanksThatDisagree(t *testing.T) {
	for name, change := range map[string]func(*moe.DispatchCall){
		"hidden":  func(c *moe.DispatchCall) { c.Hidden = 128 },
		"format":  func(c *moe.DispatchCall) { c.Format, c.OutputScales = moe.CastE4M3, scalesOf(c) },
		"weights": func(c *moe.DispatchCall) { c.Weights = c.Input },
	} {
		t.Run(name, func(t *testing.T) {
			errs := broken(t, 3, func(_ context.Context, c *comm.Communicator, b *moe.Buffer) error {
				if err := roundTrip(b, run(c, b, right(), 1)); err != nil {
					return err
				}
				call, err := run(c, b, right(), 2).Dispatch()
				if err != nil {
					return err
				}
				if c.Rank() == 1 {
					change(call)
				}
				return b.Dispatch(call)
			})
			named := false
			for r, err := range errs {
				if err == nil {
					t.Errorf("rank %d has no error", r)
					continue
				}
				var e *framework.Error
				named = named || errors.As(err, &e) && e.Peer >= 0 && strings.Contains(err.Error(), "another format or other sizes")
			}
			if !named {
				t.Errorf("%v: expected that a rank names another", errs)
			}
		})
	}
}

// An expert with more rows than slots, and an expert that there is not, are named on all ranks.
func TestTroubleIsNamed(t *testing.T) {
	for text, change := range map[string]func(r *moetest.Run, indices []int32){
		"has room for 3 rows, and was sent ": func(r *moetest.Run, indices []int32) {
			r.Slots = 3
			for i := range indices {
				indices[i] = 9
			}
		},
		"token 2 of rank 1 has expert 21: expected -1 to 20": func(r *moetest.Run, indices []int32) {
			if r.Rank == 1 {
				indices[2*4+1] = 21
			}
		},
		"token 0 of rank 0 has expert -2: expected -1 to 20": func(r *moetest.Run, indices []int32) {
			if r.Rank == 0 {
				indices[0] = -2
			}
		},
	} {
		t.Run(text, func(t *testing.T) {
			errs := broken(t, 2, func(_ context.Context, c *comm.Communicator, b *moe.Buffer) error {
				r := run(c, b, right(), 1)
				indices := make([]int32, 5*4)
				for i := range indices {
					indices[i] = int32(i % 21)
				}
				change(&r, indices)
				call, err := r.Dispatch()
				if err != nil {
					return err
				}
				call.Indices = unsafe.Pointer(&indices[0])
				if err := b.Dispatch(call); err != nil {
					return err
				}
				return combine(b, r) // the rank that has no trouble learns of it here
			})
			for r, err := range errs {
				if err == nil || !strings.Contains(err.Error(), text) {
					t.Errorf("rank %d: %v: expected %q", r, err, text)
				}
			}
		})
	}
}

// A rank that ends the job instead of making its call ends the calls of the others: in dispatch, in combine, and between phases.
func TestCallsEndWithTheJob(t *testing.T) {
	cause := errors.New("out of experts")
	for name, f := range map[string]func(b *moe.Buffer, r moetest.Run, quits bool) error{
		"dispatch": func(b *moe.Buffer, r moetest.Run, quits bool) error {
			if quits {
				return cause
			}
			return dispatch(b, r)
		},
		"combine": func(b *moe.Buffer, r moetest.Run, quits bool) error {
			if err := errors.Join(dispatch(b, r), r.CheckDispatch()); err != nil || quits {
				return errors.Join(err, cause)
			}
			return combine(b, r)
		},
		"between phases": func(b *moe.Buffer, r moetest.Run, quits bool) error {
			call, err := r.Dispatch()
			if err != nil || quits {
				return errors.Join(err, cause)
			}
			call.Phase = moe.Send
			if err := b.Dispatch(call); err != nil {
				return err
			}
			call.Phase = moe.Receive
			return b.Dispatch(call)
		},
	} {
		t.Run(name, func(t *testing.T) {
			errs := broken(t, 3, func(_ context.Context, c *comm.Communicator, b *moe.Buffer) error {
				err := f(b, run(c, b, right(), 1), c.Rank() == 2)
				if c.Rank() == 2 {
					c.Abort(err)
				}
				return err
			})
			for r, err := range errs {
				if err == nil || !strings.Contains(err.Error(), cause.Error()) {
					t.Errorf("rank %d: %v: expected %v", r, err, cause)
				}
			}
		})
	}
}

// Buffers of other sizes are refused on all ranks.
func TestOtherBuffers(t *testing.T) {
	for text, change := range map[string]func(o *moe.Options, rank int){
		"Tokens is %d, and %d on":  func(o *moe.Options, r int) { o.Tokens = 12 + r },
		"Hidden is %d, and %d on":  func(o *moe.Options, r int) { o.Hidden = 8 * (12 + r) },
		"Experts is %d, and %d on": func(o *moe.Options, r int) { o.Experts = 12 + r },
	} {
		errs := broken(t, 2, func(ctx context.Context, c *comm.Communicator, _ *moe.Buffer) error {
			o := moetest.Options()
			change(&o, c.Rank())
			_, err := moe.New(ctx, c, o)
			return err
		})
		for r, err := range errs {
			var e *framework.Error
			each := 1
			if strings.HasPrefix(text, "Hidden") {
				each = 8
			}
			if want := fmt.Sprintf(text, each*(13-r), each*(12+r)); !errors.As(err, &e) || e.Peer != 1-r || !strings.Contains(err.Error(), want) || strings.Count(err.Error(), " is ") != 1 {
				t.Errorf("rank %d: %v: expected that it names the other rank, and %q", r, err, want)
			}
		}
	}
}

// A receive that does not fit its send, or a send for which there is no room, would wait for what never comes: both are refused.
func TestPhasesThatDoNotFit(t *testing.T) {
	job(t, 2, func(ctx context.Context, c *comm.Communicator) error {
		b, err := moe.New(ctx, c, moetest.Options())
		if err != nil {
			return err
		}
		var runs [2]moetest.Run
		var calls [2]*moe.DispatchCall
		for i := range runs {
			runs[i] = run(c, b, right(), uint64(i))
			if calls[i], err = runs[i].Dispatch(); err != nil {
				return err
			}
			calls[i].Phase = moe.Send
			if err := b.Dispatch(calls[i]); err != nil {
				return err
			}
		}
		refused := func(text string, call moe.DispatchCall) {
			if err := b.Dispatch(&call); !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), text) {
				t.Errorf("rank %d: %v: expected %q", c.Rank(), err, text)
			}
		}
		third := *calls[0]
		refused("two calls are between their phases: expected that ticket 1 is received first", third)
		third.Phase = moe.Whole
		refused("two calls are between their phases", third)
		for _, change := range []func(*moe.DispatchCall){
			func(c *moe.DispatchCall) { c.Tokens = 4 },
			func(c *moe.DispatchCall) { c.Hidden = 128 },
			func(c *moe.DispatchCall) { c.TopK = 3 },
			func(c *moe.DispatchCall) { c.Format, c.OutputScales = moe.CastE4M3, scalesOf(c) },
			func(c *moe.DispatchCall) { c.Index64 = true },
			func(c *moe.DispatchCall) { c.Weights = c.Input },
		} {
			other := *calls[0]
			other.Phase = moe.Receive
			change(&other)
			refused("the receive has", other)
		}
		for i := range calls {
			calls[i].Phase = moe.Receive
			if err := errors.Join(b.Dispatch(calls[i]), runs[i].CheckDispatch()); err != nil {
				return err
			}
			refused("was received: expected one receive for a send", *calls[i])
		}
		for i := range runs {
			if err := errors.Join(combine(b, runs[i]), runs[i].CheckCombine()); err != nil {
				return err
			}
		}
		return b.Close()
	})
}

// Wrong calls are refused, and say what is served.
func TestWrongCalls(t *testing.T) {
	job(t, 1, func(ctx context.Context, c *comm.Communicator) error {
		b, err := moe.New(ctx, c, moetest.Options())
		if err != nil {
			return err
		}
		r := run(c, b, right(), 1)
		for _, wrong := range []struct {
			text   string
			change func(*moe.DispatchCall)
		}{
			{"13 tokens: expected 0 to 12", func(c *moe.DispatchCall) { c.Tokens = 13 }},
			{"a multiple of 8, at most 1024", func(c *moe.DispatchCall) { c.Hidden = 1032 }},
			{"a multiple of 8", func(c *moe.DispatchCall) { c.Hidden = 12 }},
			{"a multiple of 128", func(c *moe.DispatchCall) { c.Format, c.Hidden = moe.CastE4M3, 64 }},
			{"17 experts for a token", func(c *moe.DispatchCall) { c.TopK = 17 }},
			{"-1 rows for an expert", func(c *moe.DispatchCall) { c.Slots = -1 }},
			{"rows for an expert: expected 1 to 2147483647", func(c *moe.DispatchCall) { c.Slots = 1<<32 + 4 }},
			{"format 3", func(c *moe.DispatchCall) { c.Format = 3 }},
			{"phase 3", func(c *moe.DispatchCall) { c.Phase = 3 }},
			{"0 scales for a row", func(c *moe.DispatchCall) { c.Format = moe.GivenE4M3 }},
			{"1 scales of a row are given", func(c *moe.DispatchCall) { c.RowScales = 1 }},
			{"are not made here", func(c *moe.DispatchCall) { c.RoundScale = true }},
			{"exponents of 2 scales", func(c *moe.DispatchCall) { c.Format, c.RoundScale, c.Exponents = moe.CastE4M3, true, true }},
			{"input is nil", func(c *moe.DispatchCall) { c.Input = nil }},
			{"output_scales is nil", func(c *moe.DispatchCall) { c.Format = moe.CastE4M3 }},
			{"expected a multiple of 16 bytes", func(c *moe.DispatchCall) { c.Input = unsafe.Add(c.Input, 2) }},
			{"input and output overlap", func(c *moe.DispatchCall) { c.Output = c.Input }},
			{"received and statistics overlap", func(c *moe.DispatchCall) { c.Statistics = c.Received }},
			{"ranges and handle overlap", func(c *moe.DispatchCall) { c.Handle = unsafe.Add(c.Ranges, 16) }},
			{"ticket 3 of 0", func(c *moe.DispatchCall) { c.Phase, c.Ticket = moe.Receive, 3 }},
		} {
			call, err := r.Dispatch()
			if err != nil {
				return err
			}
			wrong.change(call)
			if err := b.Dispatch(call); !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), wrong.text) {
				t.Errorf("%v: expected %q", err, wrong.text)
			}
		}
		sum := r.Combine()
		sum.Output = unsafe.Add(sum.Input, 256)
		if err := b.Combine(sum); !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), "input and output overlap") {
			t.Errorf("%v: expected that buffers are apart", err)
		}
		for _, o := range []moe.Options{{}, {Tokens: 1 << 20, Hidden: 8, Experts: 1}, {Tokens: 1, Hidden: 7, Experts: 1}, {Tokens: 1, Hidden: 8, Experts: 1 << 20}} {
			if _, err := moe.New(ctx, c, o); !errors.Is(err, framework.ErrInvalid) {
				t.Errorf("%+v: %v: expected that it is refused", o, err)
			}
		}
		if err := b.Close(); err != nil {
			return err
		}
		call, err := r.Dispatch()
		if err != nil {
			return err
		}
		if err := b.Dispatch(call); !errors.Is(err, framework.ErrClosed) {
			t.Errorf("%v: expected that the buffer is closed", err)
		}
		return nil
	})
}
