package devicetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// exchange is a group in which every rank sends `each` messages to every rank, itself
// included, and its buffers lie one behind the other, off by anything.
type exchange struct {
	each      int
	size      func(from, to, i int) int
	algorithm string
	graph     bool
}

// place lays the messages of one direction out behind each other, and returns where
// they begin and where the last one ends.
func (x exchange) place(n int, size func(peer, i int) int) (at [][]int, end int) {
	for p := range n {
		at = append(at, nil)
		for i := range x.each {
			end += (7*p + 3*i) % 29 // 0, 4, 8 and 16 among others
			at[p] = append(at[p], end)
			end += size(p, i)
		}
	}
	return at, end + 1
}

func (x exchange) fill(b []byte, from, to, i, round int) {
	for k := range b {
		b[k] = byte(from*61 + to*23 + i*101 + round*7 + k*3 + k>>8)
	}
}

// run performs the group, from a graph three times with other data, and looks at all
// that was received and at what lies between.
func (x exchange) run(ctx context.Context, r *rank, base, half uintptr) error {
	n, self := r.Size(), r.Rank()
	sent, sentEnd := x.place(n, func(p, i int) int { return x.size(self, p, i) })
	got, gotEnd := x.place(n, func(p, i int) int { return x.size(p, self, i) })
	if uintptr(max(sentEnd, gotEnd)) > half {
		return fmt.Errorf("%d and %d bytes: there is room for %d", sentEnd, gotEnd, half)
	}
	call := func() error {
		o := &collectives.CallOptions{Stream: r.stream, Algorithm: x.algorithm}
		r.GroupStart()
		var all []error
		for p := range n {
			for i := range x.each {
				all = append(all, r.Send(pointer(base+uintptr(sent[p][i])), x.size(self, p, i), kernel.Uint8, p, o),
					r.Recv(pointer(base+half+uintptr(got[p][i])), x.size(p, self, i), kernel.Uint8, p, o))
			}
		}
		return errors.Join(append(all, r.GroupEnd())...)
	}
	rounds := 1
	if x.graph {
		if err := r.Prepare(collectives.SendRecv); err != nil {
			return err
		}
		g, err := capture(r, call)
		if err != nil {
			return err
		}
		defer g.Close()
		call, rounds = func() error { return g.Launch(r.stream) }, 3
	}
	for round := range rounds {
		out, want := make([]byte, sentEnd), bytes.Repeat([]byte{0xa5}, gotEnd)
		for p := range n {
			for i := range x.each {
				x.fill(out[sent[p][i]:][:x.size(self, p, i)], self, p, i, round)
				x.fill(want[got[p][i]:][:x.size(p, self, i)], p, self, i, round)
			}
		}
		in := bytes.Repeat([]byte{0xa5}, gotEnd)
		if err := errors.Join(r.dev.WriteAt(out, base), r.dev.WriteAt(in, base+half)); err != nil {
			return err
		}
		if err := errors.Join(call(), r.settle(ctx), r.dev.ReadAt(in, base+half)); err != nil {
			return err
		}
		for k := range in {
			if in[k] != want[k] {
				return fmt.Errorf("round %d: byte %d of %d of what was received is %#x, expected %#x", round, k, len(in), in[k], want[k])
			}
		}
	}
	return nil
}

// Messages of odd lengths, from and to any address, to several peers and to the rank
// itself, few and many, launched and from graphs, one group after another.
func TestMessages(t *testing.T) {
	const half = 16 << 20
	sizes := []int{0, 1, 15, 16, 431, 1776, 1777, 1904, 1905, 3825, 20_011, 65_536, 300_001, 1_000_000}
	for _, n := range []int{1, 2, 3} {
		t.Run(fmt.Sprint(n, " ranks"), func(t *testing.T) {
			job(t, n, collectives.Options{}, func(ctx context.Context, r *rank) error {
				m, err := r.memory(ctx, 2*half)
				if err != nil {
					return err
				}
				if want := []string{"ll128", "chunk"}; fmt.Sprint(r.Algorithms(collectives.SendRecv)) != fmt.Sprint(want) {
					return fmt.Errorf("algorithms %v, expected %v", r.Algorithms(collectives.SendRecv), want)
				}
				for k := range 8 {
					mixed := func(from, to, i int) int { return sizes[(from*5+to*3+k*7+i*11)%len(sizes)] }
					small := func(from, to, i int) int { return (from*5 + to*3 + i*11) % 300 }
					for _, x := range []exchange{
						{each: 1, size: mixed, graph: k%2 == 1},
						{each: 5, size: mixed, algorithm: []string{"", "chunk", "ll128"}[k%3]},
						{each: 70, size: small, graph: k > 0 && k%2 == 0}, // the first makes memory for its list
					} {
						if err := x.run(ctx, r, m.Addr(), half); err != nil {
							return fmt.Errorf("group %d of %d messages for each rank by %q: %w", k, x.each, x.algorithm, err)
						}
					}
				}
				return nil
			})
		})
	}
}

// Long messages beside short ones, in one group and in graphs: into memory that senders reach, on
// one rank, and into other memory on the next.
func TestLongMessages(t *testing.T) {
	const half, long = 100 << 20, 48 << 20
	job(t, 2, collectives.Options{}, func(ctx context.Context, r *rank) error {
		m, err := r.memory(ctx, 2*half)
		if err == nil && r.Rank() == 1 {
			m, err = r.world.Alloc(2 * half)
		}
		if err != nil {
			return err
		}
		size := func(from, to, i int) int { return []int{long + 1001*from + 13*to, 5000 + from, 0}[i] }
		for k := range 2 {
			x := exchange{each: 1 + 2*k, size: size, graph: k == 1}
			if err := x.run(ctx, r, m.Addr(), half); err != nil {
				return fmt.Errorf("%d messages for each rank: %w", x.each, err)
			}
		}
		return nil
	})
}

// Where links tear lines, and where scratch has no room for pipes of lines, messages go
// in chunks.
func TestMessagesWithoutLines(t *testing.T) {
	for name, o := range map[string]collectives.Options{"torn": {NoLines: true}, "no room": {Scratch: 5 << 20}} {
		t.Run(name, func(t *testing.T) {
			job(t, 2, o, func(ctx context.Context, r *rank) error {
				m, err := r.memory(ctx, 8<<20)
				if err != nil {
					return err
				}
				if got := r.Algorithms(collectives.Gather); name == "torn" && fmt.Sprint(got) != "[chunk]" {
					return fmt.Errorf("algorithms %v, expected chunk", got)
				}
				x := exchange{each: 2, size: func(from, to, i int) int { return 100_000*from + 777*to + i }}
				return x.run(ctx, r, m.Addr(), 4<<20)
			})
		})
	}
}

// A message of another length than is expected: the receiver's error says whose it is and
// both lengths, and no kernel stays, whichever of the two is longer.
func TestMessageOfAnotherLength(t *testing.T) {
	const long = 48 << 20 // and more are stored right into the receiver's buffer
	for _, x := range []struct{ sends, expects int }{{2000, 1000}, {0, 8}, {100, 500_000}, {500_000, 100}, {500_000, 500_016},
		{long, 100}, {100, long}, {long + 4096, long}, {long, long + 1}} {
		for _, algorithm := range []string{"ll128", "chunk"} {
			t.Run(fmt.Sprint(algorithm, " ", x.sends, " for ", x.expects), func(t *testing.T) {
				job(t, 2, collectives.Options{}, func(ctx context.Context, r *rank) error {
					m, err := r.memory(ctx, uint64(max(x.sends, x.expects))+1<<20)
					if err != nil {
						return err
					}
					o := &collectives.CallOptions{Stream: r.stream, Algorithm: algorithm}
					if r.Rank() == 0 {
						err = r.Send(pointer(m.Addr()), x.sends, kernel.Uint8, 1, o)
					} else {
						err = r.Recv(pointer(m.Addr()), x.expects, kernel.Uint8, 0, o)
					}
					if err != nil {
						return err
					}
					err = found(ctx, r)
					if r.Rank() == 1 {
						err = wants(err, framework.ErrInvalid, "rank 0", fmt.Sprintf("length of %d bytes: expected %d as rank 1", x.sends, x.expects))
					} else {
						err = wants(err, nil, "rank 1")
					}
					return errors.Join(err, r.world.Settle(ctx, r.stream))
				})
			})
		}
	}
}
