package comm_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/kernel/actor"
	"github.com/mscclpp-go/mscclpp/internal/promise"
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
		err = p.rounds(ctx, out, in, size, func(round int) error {
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
			return err
		})
		if err != nil {
			return err
		}
		if s := p.Channels(); len(s) != 1 || !s[0].Known || s[0].Seen != 601 || s[0].Expected != 601 || s[0].Queued != 0 {
			return fmt.Errorf("%+v: expected 601 signals, seen and waited for", s)
		}
		return nil
	})
}

// Several channels to one peer, with more puts outstanding than a stream or a ring takes,
// and signals alone among them: all arrive, the data before its signal.
func TestManyPutsOnCUDA(t *testing.T) {
	const channels, bursts, part, each = 3, 2, 1 << 14, 64
	cudaJob(t, 2, func(ctx context.Context, p *player) error {
		out, in, ports, err := portsOf(ctx, p.Communicator)
		if err != nil {
			return err
		}
		handles := []kernel.PortChannelHandle{ports[1-p.Rank()].Handle()}
		for len(handles) < channels {
			ch, err := p.PortChannel(ctx, 1-p.Rank(), out, in)
			if err != nil {
				return err
			}
			handles = append(handles, ch.Handle())
		}
		data := make([]byte, channels*part)
		for i := range data {
			data[i] = byte(i/each*7 + p.Rank())
		}
		if err := p.write(ctx, out.Addr(), data); err != nil {
			return err
		}
		var steps []actor.Step
		add := func(op actor.Op, ch int, at, bytes uint64) {
			steps = append(steps, actor.Step{Op: op, Channel: uint32(ch), Dst: at, Src: at, Bytes: bytes})
		}
		for burst := range bursts {
			for at := uint64(0); at < part; at += each {
				for ch := range channels {
					add(actor.PortPutWithSignal, ch, uint64(ch*part)+at, each)
					if at%(8*each) == 0 {
						add(actor.PortSignal, ch, 0, 0)
					}
				}
			}
			add(actor.PortFlush, burst%channels, 0, 0)
			for ch := range channels { // on an idle lane, and on those that may not be
				add(actor.PortSignal, ch, 0, 0)
			}
			for ch := range channels {
				for range part/each + part/each/8 + 1 {
					add(actor.PortWait, ch, 0, 0)
				}
			}
		}
		todo, err := p.rehearse(ctx, handles[0], nil, steps...)
		if err == nil {
			err = putAt(ctx, p, &p.args.Port, handles...)
		}
		if err = errors.Join(err, p.Barrier(ctx)); err != nil { // both memories are written
			return err
		}
		if err := errors.Join(p.launch(), p.Settle(ctx, p.stream), p.check(ctx, todo)); err != nil {
			return err
		}
		got, err := p.read(ctx, in.Addr(), len(data)) // all waits were passed
		if err != nil {
			return err
		}
		for i, b := range got {
			if want := byte(i/each*7 + 1 - p.Rank()); b != want {
				return fmt.Errorf("byte %d is %d, expected %d", i, b, want)
			}
		}
		for _, s := range p.Channels() {
			if n := uint64(bursts * (part/each + part/each/8 + 1)); s.Known && (s.Seen != n || s.Expected != n) {
				return fmt.Errorf("%+v: expected %d signals, seen and waited for", s, n)
			}
		}
		return p.Barrier(ctx)
	})
}

// waitInVain has a kernel of each rank wait when rank 1 ends the communicator. wait returns what
// became of this rank's.
func waitInVain(ctx context.Context, p *player) (wait func() error, err error) {
	_, _, ports, err := portsOf(ctx, p.Communicator)
	if err != nil {
		return nil, err
	}
	wait, err = p.play(ctx, ports[1-p.Rank()].Handle(), actor.Step{Op: actor.PortWait})
	if err != nil {
		return nil, err
	}
	if err := p.Barrier(ctx); err != nil && framework.PeerOf(err) != 1 { // the end may overtake it
		return nil, err
	}
	if p.Rank() == 1 {
		p.Abort(&framework.Error{Op: "test", Peer: 1, Err: framework.ErrInvalid})
	}
	<-p.Done()
	return wait, nil
}

// A kernel that waits for what never comes leaves when the communicator is aborted,
// and tells what it waited for.
func TestAbortOnCUDA(t *testing.T) {
	cudaJob(t, 2, func(ctx context.Context, p *player) error {
		wait, err := waitInVain(ctx, p)
		if err != nil {
			return err
		}
		watch := promise.Begin()
		err = wait()
		if late := watch.Kept(2 * time.Second); late != nil {
			return fmt.Errorf("the kernel left %w", late)
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
