package devicetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// payload is what a message holds: bytes that follow from its sender, its receiver, and its number.
func payload(from, to, when, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(from*61 + to*17 + when*5 + i*3 + i/251 + 1)
	}
	return b
}

// post is memory for messages of this rank: what it sends to each rank, then what it
// receives from each, each of so many bytes.
type post struct {
	r *rank
	m *comm.Memory
	n int
}

func newPost(r *rank, each int) (post, error) {
	m, err := r.world.Alloc(uint64(2 * r.Size() * each))
	return post{r, m, each}, err
}

func (p post) out(to int) uintptr  { return p.m.Addr() + uintptr(to*p.n) }
func (p post) in(from int) uintptr { return p.m.Addr() + uintptr((p.r.Size()+from)*p.n) }

// write fills the messages, of lengths by rank, and clears the rest.
func (p post) write(when int, length func(from, to int) int) error {
	err := p.r.dev.WriteAt(make([]byte, p.r.Size()*p.n), p.in(0))
	for to := range p.r.Size() {
		err = errors.Join(err, p.r.dev.WriteAt(payload(p.r.Rank(), to, when, length(p.r.Rank(), to)), p.out(to)))
	}
	return err
}

// read says what is wrong with what was received, and behind it.
func (p post) read(when int, length func(from, to int) int) error {
	got := make([]byte, p.n)
	for from := range p.r.Size() {
		if err := p.r.dev.ReadAt(got, p.in(from)); err != nil {
			return err
		}
		want := make([]byte, p.n)
		copy(want, payload(from, p.r.Rank(), when, length(from, p.r.Rank())))
		if !bytes.Equal(got, want) {
			at := 0
			for got[at] == want[at] {
				at++
			}
			return fmt.Errorf("round %d, from rank %d: byte %d of %d is %#x, expected %#x", when, from, at, length(from, p.r.Rank()), got[at], want[at])
		}
	}
	return nil
}

// everyone is a group in which each rank has a message for each, also for itself.
func (p post) everyone(length func(from, to int) int, algorithm string) error {
	o := &collectives.CallOptions{Stream: p.r.stream, Algorithm: algorithm}
	p.r.GroupStart()
	var all []error
	for other := range p.r.Size() {
		all = append(all, p.r.Recv(pointer(p.in(other)), length(other, p.r.Rank()), kernel.Uint8, other, o),
			p.r.Send(pointer(p.out(other)), length(p.r.Rank(), other), kernel.Uint8, other, o))
	}
	return errors.Join(errors.Join(all...), p.r.GroupEnd())
}

// delivered is an error where kernels do not send messages.
func delivered(r *rank) error {
	got := r.Algorithms(collectives.SendRecv)
	if want := []string{directly, "ports"}; !slices.Equal(got, want) {
		return fmt.Errorf("algorithms of messages %q: expected %q", got, want)
	}
	return nil
}

// Messages of all lengths between all ranks, in groups, as all-to-all-v, from graphs, and
// by the host in between.
func TestSendRecvResults(t *testing.T) {
	const each = 400_003 // many more pieces than there are slots
	sizes := []int{each, 0, 1, 1000, 40_001, 200_000, 16}
	layouts := []string{"ab", "abc", "aabb", "abab"}
	if raceEnabled {
		layouts = []string{"aabb"}
	}
	for _, layout := range layouts {
		overAdapters(t, layout, setting{allSignals: layout == "aabb"}, collectives.Options{Scratch: 5 << 20}, func(ctx context.Context, r *rank) error {
			p, err := newPost(r, each)
			if err != nil {
				return err
			}
			length := func(when int) func(from, to int) int {
				return func(from, to int) int { return sizes[(from*3+to*5+when)%len(sizes)] }
			}
			try := func(when int, perform func(length func(from, to int) int) error) error {
				if err := errors.Join(p.write(when, length(when)), perform(length(when)), r.settle(ctx)); err != nil {
					return fmt.Errorf("round %d: %w", when, err)
				}
				return p.read(when, length(when))
			}
			if err := errors.Join(first(ctx, r), delivered(r)); err != nil {
				return err
			}
			for when := range sizes {
				if err := try(when, func(length func(from, to int) int) error { return p.everyone(length, "") }); err != nil {
					return err
				}
			}
			err = try(7, func(length func(from, to int) int) error { return p.everyone(length, "ports") })
			if err != nil {
				return err
			}
			err = try(8, func(length func(from, to int) int) error {
				counts := [4][]int{}
				for other := range r.Size() {
					for i, n := range []int{length(r.Rank(), other), other * each, length(other, r.Rank()), other * each} {
						counts[i] = append(counts[i], n)
					}
				}
				return r.AllToAllV(pointer(p.out(0)), counts[0], counts[1], pointer(p.in(0)), counts[2], counts[3], kernel.Uint8, &collectives.CallOptions{Stream: r.stream})
			})
			if err != nil {
				return err
			}
			for _, mode := range []cuda.CaptureMode{cuda.CaptureGlobal, cuda.CaptureThreadLocal, cuda.CaptureRelaxed} {
				if err := errors.Join(r.settle(ctx), r.world.Barrier(ctx), r.dev.BeginCapture(r.stream, mode)); err != nil {
					return err
				}
				err := p.everyone(length(9), "")
				graph, ended := r.dev.EndCapture(r.stream)
				if err := errors.Join(err, ended); err != nil {
					return fmt.Errorf("mode %v: %w", mode, err)
				}
				for when := 9; when < 30 && err == nil; when += 7 { // of the same lengths
					err = errors.Join(try(when, func(func(from, to int) int) error { return graph.Launch(r.stream) }),
						try(when, func(length func(from, to int) int) error { return p.everyone(length, "") }))
				}
				if err := errors.Join(err, graph.Close()); err != nil {
					return fmt.Errorf("mode %v: %w", mode, err)
				}
			}
			return nil
		})
	}
}

// The first call of a job may not be captured: it makes the channels. Behind it all may, also
// the first message, and the first sum of a type.
func TestSendRecvCaptures(t *testing.T) {
	overAdapters(t, "aabb", setting{}, collectives.Options{}, func(ctx context.Context, r *rank) error {
		p, err := newPost(r, 64)
		if err != nil {
			return err
		}
		length := func(int, int) int { return 64 }
		graph, err := capture(r, func() error { return p.everyone(length, "") })
		if graph != nil {
			err = errors.Join(err, graph.Close())
		}
		if err := errors.Join(wants(err, framework.ErrUnsupported, "capture"), r.world.Check(), r.Prepare(collectives.Gather), first(ctx, r)); err != nil {
			return err
		}
		graph, err = capture(r, func() error {
			return errors.Join(p.everyone(length, ""), r.AllReduce(pointer(p.in(0)), pointer(p.in(0)), 1, kernel.Float16, kernel.Max, &collectives.CallOptions{Stream: r.stream}))
		})
		if err != nil {
			return err
		}
		return errors.Join(p.write(0, length), graph.Launch(r.stream), r.settle(ctx), graph.Close())
	})
}

// Messages that wait for each other over ranks of two hosts: a rank that moved the data inside its
// host before the data that leaves it, or the other way round, would wait for ever.
func TestSendRecvInACircle(t *testing.T) {
	const bytes = 3 << 20 // more than slots hold
	overAdapters(t, "aabb", setting{}, collectives.Options{Scratch: 5 << 20}, func(ctx context.Context, r *rank) error {
		p, err := newPost(r, bytes)
		if err != nil {
			return err
		}
		o := &collectives.CallOptions{Stream: r.stream}
		send := func(to int) error { return r.Send(pointer(p.out(to)), bytes, kernel.Uint8, to, o) }
		receive := func(from int) error { return r.Recv(pointer(p.in(from)), bytes, kernel.Uint8, from, o) }
		circle := func(beside, beyond int) error { // rank 0 to beyond, beyond to beside, beside to rank 0
			switch r.Rank() {
			case 0:
				r.GroupStart()
				return errors.Join(receive(beside), send(beyond), r.GroupEnd())
			case beside:
				return errors.Join(receive(beyond), send(0))
			case beyond:
				return errors.Join(receive(0), send(beside))
			}
			return nil
		}
		back := func(beside, beyond int) error { // rank 0 to beside, beside to beyond, beyond to rank 0
			switch r.Rank() {
			case 0:
				r.GroupStart()
				return errors.Join(receive(beyond), send(beside), r.GroupEnd())
			case beside:
				return errors.Join(receive(0), send(beyond))
			case beyond:
				return errors.Join(receive(beside), send(0))
			}
			return nil
		}
		length := func(from, to int) int {
			if from != to && (from+to == 1 || from+to == 2 || from*to == 2) {
				return bytes
			}
			return 0
		}
		err = errors.Join(first(ctx, r), delivered(r), p.write(1, func(int, int) int { return bytes }))
		if err := errors.Join(err, circle(1, 2), back(1, 2), circle(1, 2), r.settle(ctx)); err != nil {
			return err
		}
		return p.read(1, length)
	})
}

// Ranks that all send before they receive, one small message after the other, have slots for
// what is under way, however many went before.
func TestSendRecvInARing(t *testing.T) {
	overAdapters(t, "abc", setting{}, collectives.Options{Scratch: 5 << 20}, func(ctx context.Context, r *rank) error {
		const bytes, rounds = 1000, 30
		p, err := newPost(r, bytes)
		if err != nil {
			return err
		}
		length := func(from, to int) int {
			if to == (from+1)%r.Size() {
				return bytes
			}
			return 0
		}
		if err := errors.Join(first(ctx, r), delivered(r), p.write(1, length)); err != nil {
			return err
		}
		o, next, previous := &collectives.CallOptions{Stream: r.stream}, (r.Rank()+1)%r.Size(), (r.Rank()+r.Size()-1)%r.Size()
		for range rounds {
			err = errors.Join(err, r.Send(pointer(p.out(next)), bytes, kernel.Uint8, next, o), r.Recv(pointer(p.in(previous)), bytes, kernel.Uint8, previous, o))
		}
		return errors.Join(err, r.settle(ctx), p.read(1, length))
	})
}

// A group of more messages than the arguments of a launch have room for.
func TestSendRecvOfManyMessages(t *testing.T) {
	const messages, most = 150, 1000
	overAdapters(t, "ab", setting{}, collectives.Options{}, func(ctx context.Context, r *rank) error {
		p, err := newPost(r, messages*most)
		if err != nil {
			return err
		}
		if err := errors.Join(first(ctx, r), delivered(r)); err != nil {
			return err
		}
		o, other := &collectives.CallOptions{Stream: r.stream}, 1-r.Rank()
		group := func() error {
			r.GroupStart()
			for i := range messages {
				at := uintptr(i * most)
				n := i * 7 % most
				if err := errors.Join(r.Send(pointer(p.out(other)+at), n, kernel.Uint8, other, o), r.Recv(pointer(p.in(other)+at), n, kernel.Uint8, other, o)); err != nil {
					return err
				}
			}
			return r.GroupEnd()
		}
		check := func(when int, perform func() error) error {
			out := payload(r.Rank(), other, when, messages*most)
			err := errors.Join(r.dev.WriteAt(out, p.out(other)), r.dev.WriteAt(make([]byte, len(out)), p.in(other)), perform(), r.settle(ctx))
			got, want := make([]byte, len(out)), payload(other, r.Rank(), when, messages*most)
			if err := errors.Join(err, r.dev.ReadAt(got, p.in(other))); err != nil {
				return err
			}
			for i := range messages {
				clear(want[i*most+i*7%most : (i+1)*most])
			}
			if !bytes.Equal(got, want) {
				return fmt.Errorf("round %d: other bytes than were sent", when)
			}
			return nil
		}
		if err := errors.Join(check(1, group), check(2, group)); err != nil {
			return err
		}
		graph, err := capture(r, group)
		if err != nil {
			return err
		}
		defer graph.Close()
		return errors.Join(check(3, func() error { return graph.Launch(r.stream) }), check(4, group), check(5, func() error { return graph.Launch(r.stream) }))
	})
}

// The receiver of a message of another length than expected says so, and the job ends: also for a
// message that a rank sends to itself.
func TestSendRecvOfAnotherLength(t *testing.T) {
	for name, messages := range map[string]func(p post, o *collectives.CallOptions) error{
		"its message has a length of 100 bytes: expected 101 as rank 1 receives": func(p post, o *collectives.CallOptions) error {
			if p.r.Rank() == 0 {
				return p.r.Send(pointer(p.out(1)), 100, kernel.Uint8, 1, o)
			}
			return p.r.Recv(pointer(p.in(0)), 101, kernel.Uint8, 0, o)
		},
		"its message has a length of 7 bytes: expected 8 as rank 1 receives": func(p post, o *collectives.CallOptions) error {
			if p.r.Rank() == 0 {
				return nil
			}
			p.r.GroupStart()
			_ = errors.Join(p.r.Send(pointer(p.out(1)), 7, kernel.Uint8, 1, o), p.r.Recv(pointer(p.in(1)), 8, kernel.Uint8, 1, o))
			_ = p.r.GroupEnd() // of which the communicator says the same
			return nil
		},
	} {
		overAdapters(t, "ab", setting{}, collectives.Options{}, func(ctx context.Context, r *rank) error {
			p, err := newPost(r, 128)
			if err != nil {
				return err
			}
			if err := errors.Join(first(ctx, r), delivered(r)); err != nil {
				return err
			}
			if err := r.world.Barrier(ctx); err != nil && r.Rank() == 1 { // or rank 1 has ended the job already
				return err
			}
			if err := messages(p, &collectives.CallOptions{Stream: r.stream}); err != nil && r.world.Err() == nil {
				return err
			}
			err = until(ctx, "the end of the job", func() bool { return r.world.Err() != nil })
			if err == nil && r.Rank() == 1 {
				err = wants(r.world.Err(), framework.ErrInvalid, "message rank", name)
			}
			return errors.Join(err, r.world.Settle(ctx, r.stream))
		})
	}
}

// A rank that has sent its last message may leave the job: the message is taken out later, and the
// last rank to leave finds no adapter at the other end, which is no error either.
func TestSendRecvAfterALeave(t *testing.T) {
	leaving := func(t *testing.T, name, algorithm string, bytes int) {
		needsAdapters(t)
		gone := make(chan struct{})
		run(t, []string{"a", "b"}, setting{over: name}, collectives.Options{}, func(ctx context.Context, r *rank) error {
			p, err := newPost(r, bytes)
			if err != nil {
				return err
			}
			o, length := &collectives.CallOptions{Stream: r.stream, Algorithm: algorithm}, func(int, int) int { return bytes }
			if err := errors.Join(first(ctx, r), delivered(r), p.write(1, length)); err != nil {
				return err
			}
			if r.Rank() == 0 {
				defer close(gone)
				return errors.Join(r.Send(pointer(p.out(1)), bytes, kernel.Uint8, 1, o), r.settle(ctx), r.Comm.Close(), r.world.Close())
			}
			select {
			case <-gone:
			case <-ctx.Done():
				return ctx.Err()
			}
			err = errors.Join(r.Recv(pointer(p.in(0)), bytes, kernel.Uint8, 0, o), r.settle(ctx))
			return errors.Join(err, p.read(1, func(from, _ int) int { return (1 - from) * bytes }), r.Comm.Close(), r.world.Err())
		})
	}
	for _, name := range []string{overAtomics, overImmediate} {
		t.Run(name, func(t *testing.T) { leaving(t, name, "", 6*256<<10+7) }) // most of the slots
		t.Run(name+" by the host", func(t *testing.T) { leaving(t, name, "ports", 1000) })
	}
}

// A rank that waits for a message names the sender when that rank does not come in time, and when
// it has left the job; here as a receiver, and as a sender that finds no free slot.
func TestSendRecvAbsence(t *testing.T) {
	for _, sends := range []bool{false, true} {
		for _, leaves := range []bool{false, true} {
			with, part := setting{limit: 2 * time.Second}, "no progress within 2s"
			if leaves {
				with, part = setting{}, "left the job"
			}
			overAdapters(t, "abc", with, collectives.Options{Scratch: 5 << 20}, func(ctx context.Context, r *rank) error {
				const bytes = 4 << 20
				p, err := newPost(r, bytes)
				if err != nil {
					return err
				}
				o := &collectives.CallOptions{Stream: r.stream}
				if err := errors.Join(first(ctx, r), delivered(r), r.world.Barrier(ctx)); err != nil {
					return err
				}
				switch {
				case r.Rank() == 0 && sends:
					err = r.Send(pointer(p.out(1)), bytes, kernel.Uint8, 1, o)
				case r.Rank() == 0:
					err = r.Recv(pointer(p.in(1)), bytes, kernel.Uint8, 1, o)
				case r.Rank() == 1 && leaves:
					return errors.Join(r.Comm.Close(), r.world.Close())
				}
				if err != nil {
					return err
				}
				err = until(ctx, "the end of the job", func() bool { return r.world.Err() != nil })
				if err == nil && r.Rank() == 0 {
					err = wants(r.world.Err(), framework.ErrPeer, "rank 1")
					if text := r.world.Err().Error(); err == nil && !strings.Contains(text, part) && !strings.Contains(text, "no longer") {
						err = fmt.Errorf("%w: expected %q", r.world.Err(), part)
					}
				}
				return errors.Join(err, r.world.Settle(ctx, r.stream))
			})
		}
	}
}

// A rank that has left is named although the one block waits for another rank as well.
func TestSendRecvAfterALeaveBehindAnother(t *testing.T) {
	overAdapters(t, "abc", setting{}, collectives.Options{Scratch: 5 << 20, MaxBlocks: 1}, func(ctx context.Context, r *rank) error {
		const bytes = 1000
		p, err := newPost(r, bytes)
		if err != nil {
			return err
		}
		if err := errors.Join(first(ctx, r), delivered(r), r.world.Barrier(ctx)); err != nil {
			return err
		}
		switch r.Rank() {
		case 0:
			o := &collectives.CallOptions{Stream: r.stream}
			r.GroupStart()
			err = errors.Join(r.Recv(pointer(p.in(1)), bytes, kernel.Uint8, 1, o), r.Recv(pointer(p.in(2)), bytes, kernel.Uint8, 2, o))
			if err = errors.Join(err, r.GroupEnd()); err != nil {
				return err
			}
		case 2:
			return errors.Join(r.Comm.Close(), r.world.Close())
		}
		err = until(ctx, "the end of the job", func() bool { return r.world.Err() != nil })
		if err == nil && r.Rank() == 0 {
			err = wants(r.world.Err(), framework.ErrPeer, "rank 2", "left the job")
		}
		return errors.Join(err, r.world.Settle(ctx, r.stream))
	})
}
