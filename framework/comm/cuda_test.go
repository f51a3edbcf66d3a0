package comm_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device/actor"
)

// Kernels put, signal, wait and flush; then the host does, over the same channels.
func TestPortsOnCUDA(t *testing.T) {
	const size = 1 << 16
	cudaJob(t, 2, func(ctx context.Context, p *player) error {
		out, in, ports, err := portsOf(ctx, p.Communicator)
		if err != nil {
			return err
		}
		ch := ports[1-p.Rank()]
		data := make([]byte, size)
		for round := range 3 {
			for i := range data {
				data[i] = byte(i*7 + round + p.Rank())
			}
			if err := p.write(ctx, out.Addr(), data); err != nil {
				return err
			}
			if round == 2 {
				err = errors.Join(ch.PutWithSignal(0, 0, size), ch.Flush(ctx), ch.Wait(ctx))
			} else {
				steps := repeat(100, // laps of the ring
					actor.Step{Op: actor.PortPut, Dst: 0, Src: 0, Bytes: size / 2},
					actor.Step{Op: actor.PortPutWithSignal, Dst: size / 2, Src: size / 2, Bytes: size / 2},
					actor.Step{Op: actor.PortSignal},
					actor.Step{Op: actor.PortPutWithSignalAndFlush, Dst: 0, Src: 0, Bytes: 8},
					actor.Step{Op: actor.PortFlush},
					actor.Step{Op: actor.PortWait}, actor.Step{Op: actor.PortWait}, actor.Step{Op: actor.PortWait})
				err = p.plays(ctx, ch.Handle(), steps...)
			}
			if err == nil {
				err = p.Barrier(ctx)
			}
			if err != nil {
				return err
			}
			got, err := p.read(ctx, in.Addr(), size)
			if err != nil {
				return err
			}
			for i, b := range got {
				if b != byte(i*7+round+1-p.Rank()) {
					return fmt.Errorf("round %d: byte %d is %d", round, i, b)
				}
			}
			if err := p.Barrier(ctx); err != nil {
				return err
			}
		}
		if s := p.Channels(); len(s) != 1 || !s[0].Known || s[0].Seen != 601 || s[0].Expected != 601 || s[0].Queued != 0 {
			return fmt.Errorf("%+v: expected 601 signals, seen and waited for", s)
		}
		return nil
	})
}

// A kernel that waits for what never comes leaves when the communicator is aborted,
// and tells what it waited for.
func TestAbortOnCUDA(t *testing.T) {
	cudaJob(t, 2, func(ctx context.Context, p *player) error {
		_, _, ports, err := portsOf(ctx, p.Communicator)
		if err != nil {
			return err
		}
		wait, err := p.play(ctx, ports[1-p.Rank()].Handle(), actor.Step{Op: actor.PortWait})
		if err != nil {
			return err
		}
		if err := p.Barrier(ctx); err != nil {
			return err
		}
		if p.Rank() == 1 {
			p.Abort(&framework.Error{Op: "test", Peer: 1, Err: framework.ErrInvalid})
		}
		<-p.Done()
		start := time.Now()
		err = wait()
		if took := time.Since(start); took > 2*time.Second {
			return fmt.Errorf("the kernel left after %v", took)
		}
		if err == nil || !strings.Contains(err.Error(), "did 0 of 1 steps, failed 1") {
			return fmt.Errorf("%v: expected a wait that was left", err)
		}
		if w := p.ControlWords(); w.Reported != 1 || w.Kernel != 9 || int(w.Peer) != 1-p.Rank() || w.Expected != 1 || w.Seen != 0 {
			return fmt.Errorf("the report is %+v: expected kernel 9 and rank %d", *w, 1-p.Rank())
		}
		return nil
	})
}

// How fast the copy proxy is. On GPUs the goals are checked; an emulated one is
// neither fast nor slow, and shows that the measurement works.
func TestCopyProxySpeed(t *testing.T) {
	const goalRoundTrip, goalShare = 6500 * time.Nanosecond, 0.98
	rounds, size, repeats := 4000, uint64(256<<20), 8
	if _, err := gpus(); err != nil || isEmulated() {
		rounds, size, repeats = 100, 1<<20, 2
	}
	var roundTrip, step, raw, port time.Duration
	cudaJob(t, 2, func(ctx context.Context, p *player) error {
		out, err := p.Alloc(size)
		if err != nil {
			return err
		}
		in, err := p.Alloc(size)
		if err != nil {
			return err
		}
		ch, err := p.PortChannel(ctx, 1-p.Rank(), out, in)
		if err != nil {
			return err
		}
		s, err := p.Exchange(ctx, in)
		if err != nil {
			return err
		}
		steps := repeat(rounds, actor.Step{Op: actor.PortSignal}, actor.Step{Op: actor.PortWait})
		if p.Rank() == 1 {
			steps = repeat(rounds, actor.Step{Op: actor.PortWait}, actor.Step{Op: actor.PortSignal})
		}
		for range 2 { // the first time warms up
			if err := p.Barrier(ctx); err != nil {
				return err
			}
			start := time.Now()
			if err := p.plays(ctx, ch.Handle(), steps...); err != nil {
				return err
			}
			if p.Rank() == 0 {
				roundTrip = time.Since(start) / time.Duration(rounds)
			}
			start = time.Now() // what the actor itself takes from one step to the next
			if err := p.plays(ctx, ch.Handle(), repeat(2*rounds, actor.Step{Op: actor.Copy})...); err != nil {
				return err
			}
			if p.Rank() == 0 {
				step = time.Since(start) / time.Duration(2*rounds)
			}
		}
		if p.Rank() == 1 {
			return p.Barrier(ctx)
		}
		for range 2 {
			start := time.Now()
			for range repeats {
				if err := p.dev.Copy(p.stream, s.Peer(1), out.Addr(), size); err != nil {
					return err
				}
			}
			if err := p.Settle(ctx, p.stream); err != nil {
				return err
			}
			raw = time.Since(start) / time.Duration(repeats)
			start = time.Now()
			err := p.plays(ctx, ch.Handle(), append(repeat(repeats, actor.Step{Op: actor.PortPutWithSignal, Bytes: size}), actor.Step{Op: actor.PortFlush})...)
			if err != nil {
				return err
			}
			port = time.Since(start) / time.Duration(repeats)
		}
		return p.Barrier(ctx)
	})
	share := float64(raw) / float64(port)
	roundTrip -= 2 * step // at each end, from a wait to the next signal
	t.Logf("round trip of 0 bytes: %v, less %v for two steps of the actor; %d bytes: %v a put, %v a plain copy: %.1f %% of its rate", roundTrip, 2*step, size, port, raw, 100*share)
	if isEmulated() || t.Failed() {
		return
	}
	if roundTrip > goalRoundTrip || share < goalShare {
		t.Errorf("expected at most %v, and at least %v %%", goalRoundTrip, 100*goalShare)
	}
}
