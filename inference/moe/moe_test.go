package moe_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/inference/moe"
	"github.com/mscclpp-go/mscclpp/inference/moe/moetest"
	"github.com/mscclpp-go/mscclpp/internal/ranktest"
)

func run(c *comm.Communicator, b *moe.Buffer, x moetest.Trial, seed uint64) moetest.Run {
	r := moetest.Run{Trial: x, Rank: c.Rank(), Ranks: c.Size(), Seed: seed, Handle: b.HandleBytes()}
	r.Memory = ranktest.Aligned(r.Bytes())
	return r
}

// dispatch makes a call as a trial wants it.
func dispatch(b *moe.Buffer, r moetest.Run) error {
	call, err := r.Dispatch()
	if err != nil {
		return err
	}
	if !r.Split {
		return b.Dispatch(call)
	}
	call.Phase = moe.Send
	if err := b.Dispatch(call); err != nil {
		return err
	}
	call.Phase = moe.Receive
	return b.Dispatch(call)
}

func combine(b *moe.Buffer, r moetest.Run) error {
	call := r.Combine()
	if !r.Split {
		return b.Combine(call)
	}
	call.Phase = moe.Send
	if err := b.Combine(call); err != nil {
		return err
	}
	call.Phase = moe.Receive
	return b.Combine(call)
}

func roundTrip(b *moe.Buffer, r moetest.Run) error {
	if err := dispatch(b, r); err != nil {
		return fmt.Errorf("%v: %w", r.Trial, err)
	}
	if err := r.CheckDispatch(); err != nil {
		return err
	}
	if err := combine(b, r); err != nil {
		return fmt.Errorf("%v: %w", r.Trial, err)
	}
	return r.CheckCombine()
}

// Rows of all formats reach their experts, in the order of ranks and tokens, and sums come back, with any number of tokens on each rank.
func TestRoundTrips(t *testing.T) {
	for _, ranks := range []int{1, 2, 4} {
		job(t, ranks, func(ctx context.Context, c *comm.Communicator) error {
			b, err := moe.New(ctx, c, moetest.Options())
			if err != nil {
				return err
			}
			for i, x := range moetest.Trials() {
				if err := roundTrip(b, run(c, b, x, uint64(i))); err != nil {
					return err
				}
			}
			return b.Close()
		})
	}
}

// Two dispatches may be between their phases at once, and are received in any order.
func TestTwoCallsAtOnce(t *testing.T) {
	job(t, 3, func(ctx context.Context, c *comm.Communicator) error {
		b, err := moe.New(ctx, c, moetest.Options())
		if err != nil {
			return err
		}
		if err := twoAtOnce(c, b); err != nil {
			return err
		}
		return b.Close()
	})
}

func twoAtOnce(c *comm.Communicator, b *moe.Buffer) error {
	for round := range 4 {
		var runs [2]moetest.Run
		var calls [2]*moe.DispatchCall
		var err error
		for i := range runs {
			runs[i] = run(c, b, moetest.Trials()[i+1], uint64(10*round+i))
			if calls[i], err = runs[i].Dispatch(); err != nil {
				return err
			}
			calls[i].Phase = moe.Send
			if err := b.Dispatch(calls[i]); err != nil {
				return err
			}
		}
		for k := range runs {
			i := (k + round) % 2
			calls[i].Phase = moe.Receive
			if err := errors.Join(b.Dispatch(calls[i]), runs[i].CheckDispatch()); err != nil {
				return err
			}
		}
		for i := range runs {
			if err := errors.Join(combine(b, runs[i]), runs[i].CheckCombine()); err != nil {
				return err
			}
		}
	}
	return nil
}

// The limits: 512 experts of which a token takes 16.
func TestManyExperts(t *testing.T) {
	x := moetest.Trial{Options: moe.Options{Tokens: 32, Hidden: 16, Experts: 512}, Hidden: 16, TopK: 16, Index64: true, Tokens: func(r int) int { return 32 - r }}
	job(t, 4, func(ctx context.Context, c *comm.Communicator) error {
		b, err := moe.New(ctx, c, x.Options)
		if err != nil {
			return err
		}
		for seed := range uint64(3) {
			if err := roundTrip(b, run(c, b, x, seed)); err != nil {
				return err
			}
		}
		return b.Close()
	})
}

// Ranks that do not divide the experts have places for more of them than there are: nothing is counted there.
func TestUnevenExperts(t *testing.T) {
	x := moetest.Trial{Options: moe.Options{Tokens: 16, Hidden: 8, Experts: 1024}, Hidden: 8, TopK: 16, Tokens: func(r int) int { return 16 - r }}
	for _, ranks := range []int{3, 7} {
		job(t, ranks, func(ctx context.Context, c *comm.Communicator) error {
			b, err := moe.New(ctx, c, x.Options)
			if err != nil {
				return err
			}
			for seed := range uint64(3) {
				if err := roundTrip(b, run(c, b, x, seed)); err != nil {
					return err
				}
			}
			return b.Close()
		})
	}
}
