package collectives_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// lengths of what each rank sends to each: many of them are none, and which ones changes
// from round to round.
func lengths(from, to, round, most int) int {
	x := uint32(from*31+to*7+round*13) * 2654435761
	if x>>28 < 6 {
		return 0
	}
	return 1 + int(x>>8)%most
}

func payload(from, to, i int) byte { return byte(from*83 + to*29 + i*3 + i>>8) }

// swapV performs one all-to-all-v and looks at every byte, also those between the blocks.
func swapV(c *collectives.Comm, t kernel.DataType, round, most int, o *collectives.CallOptions) error {
	n, me, size := c.Size(), c.Rank(), t.Size()
	var counts, displs [2][]int
	var b [2][]byte
	for peer := range n {
		for attempt := range 2 {
			from, to := me, peer
			if attempt == 1 {
				from, to = peer, me
			}
			displs[attempt] = append(displs[attempt], len(b[attempt])/size)
			count := lengths(from, to, round, most)
			counts[attempt] = append(counts[attempt], count)
			for i := range count * size {
				x := payload(from, to, i)
				if attempt == 1 {
					x = ^x
				}
				b[attempt] = append(b[attempt], x)
			}
			b[attempt] = append(b[attempt], make([]byte, 3*size)...) // a gap
		}
	}
	if err := c.AllToAllV(pointer(b[0]), counts[0], displs[0], pointer(b[1]), counts[1], displs[1], t, o); err != nil {
		return err
	}
	for peer := range n {
		at := displs[1][peer] * size
		bytes := counts[1][peer] * size
		for i, x := range b[1][at : at+bytes] {
			if x != payload(peer, me, i) {
				return fmt.Errorf("round %d of up to %d %v: byte %d of %d from rank %d is %#x, expected %#x", round, most, t, i, bytes, peer, x, payload(peer, me, i))
			}
		}
		for i, x := range b[1][at+bytes : at+bytes+3*size] {
			if x != 0 {
				return fmt.Errorf("round %d of up to %d %v: %#x stands %d bytes behind what rank %d sent", round, most, t, x, i, peer)
			}
		}
	}
	return nil
}

// Every pair has a length of its own, or nothing, whatever the hosts: little goes
// bundled, much directly, and both in one call.
func TestAllToAllVOverHosts(t *testing.T) {
	for _, layout := range []string{"ab", "aabb", "abbb", "aabc", "abab", "aaabb"} {
		t.Run(layout, func(t *testing.T) {
			hosts(t, strings.Split(layout, ""), true, collectives.Options{Scratch: 1}, func(_ context.Context, c *collectives.Comm) error {
				round := 0
				for _, most := range []int{1, 3, 100, 700, 9000} { // pieces have 4 KiB
					for _, dtype := range []kernel.DataType{kernel.Uint8, kernel.Float16, kernel.Float64} {
						for _, o := range []*collectives.CallOptions{nil, {Algorithm: "ports"}} {
							round++
							if err := swapV(c, dtype, round, most, o); err != nil {
								return err
							}
						}
					}
					// Other calls come in between, and groups, whose messages have the same ways.
					if err := c.Barrier(nil); err != nil {
						return err
					}
					c.GroupStart()
					one := [2]byte{byte(c.Rank())}
					next, last := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
					err := errors.Join(c.Send(unsafe.Pointer(&one[0]), 1, kernel.Uint8, next, nil), c.Recv(unsafe.Pointer(&one[1]), 1, kernel.Uint8, last, nil))
					if err = errors.Join(err, c.GroupEnd()); err != nil || int(one[1]) != last {
						return fmt.Errorf("a group in between: %d, expected %d: %v", one[1], last, err)
					}
				}
				return nil
			})
		})
	}
}

// All-to-all by each algorithm over hosts that differ, from one element to several
// pieces, and in place.
func TestAllToAllOverHosts(t *testing.T) {
	for _, layout := range []string{"abbb", "aabc", "abbac", "aaabbbcc"} {
		t.Run(layout, func(t *testing.T) {
			at := strings.Split(layout, "")
			hosts(t, at, true, collectives.Options{Scratch: 1}, func(_ context.Context, c *collectives.Comm) error {
				const most = 9001 * 8
				b := buffers{make([]byte, most*len(at)), make([]byte, most*len(at))}
				for i, count := range []int{1, 3, 255, 1025, 9001} {
					for k, algorithm := range []string{"hierarchical_small", "hierarchical_large", ""} {
						x := trial{Kind: collectives.AllToAll, Algorithm: algorithm, Count: count, Type: kernel.DataType((i*3 + k) % kernel.DataTypes), InPlace: (i+k)%2 == 0}
						if err := x.Run(b.of(c), uint64(10*i+k)); err != nil {
							return err
						}
					}
				}
				return nil
			})
		})
	}
}

// The size decides which messages are bundled.
func TestBundlesAreSmall(t *testing.T) {
	hosts(t, []string{"a", "a", "b", "b"}, true, collectives.Options{}, func(_ context.Context, c *collectives.Comm) error {
		for bytes, want := range map[uint64]string{64: "hierarchical_small", 64 << 10: "hierarchical_small", 64<<10 + 4: "hierarchical_large", 1 << 30: "hierarchical_large"} {
			got, err := c.Choice(collectives.Request{Collective: collectives.AllToAll, Bytes: bytes, Count: bytes / 4, Type: kernel.Uint8}, "")
			if err != nil || got != want {
				return fmt.Errorf("%d bytes go by %s, expected %s: %v", bytes, got, want, err)
			}
		}
		return nil
	})
}

// Hosts that do not agree on a length, or on which call it is, get an error that names
// the ranks, however much is sent: the error is found out by the one or the other side.
func TestLengthsDisagreeOverHosts(t *testing.T) {
	const n = 4
	for name, x := range map[string]struct {
		sent, expected int // by rank 1 to rank 2, of bytes
		from, to       int
		other          bool // rank 2's host calls something else
	}{
		"few":          {10, 12, 1, 2, false},
		"none":         {0, 5, 1, 2, false},
		"much":         {100_000, 100_001, 1, 2, false},
		"few and much": {10, 100_000, 1, 2, false},
		"much and few": {100_000, 10, 1, 2, false},
		"inside":       {10, 12, 0, 1, false},
		"other call":   {10, 10, 1, 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			said := 0
			hosts(t, []string{"a", "a", "b", "b"}, true, collectives.Options{}, func(_ context.Context, c *collectives.Comm) error {
				b := make([]byte, n*100_001)
				var send, recv, at [n]int
				for r := range n {
					send[r], recv[r], at[r] = 1, 1, r*100_001
				}
				if c.Rank() == x.from {
					send[x.to] = x.sent
				}
				if c.Rank() == x.to {
					recv[x.from] = x.expected
				}
				out := make([]byte, len(b))
				call := func() error {
					return c.AllToAllV(pointer(b), send[:], at[:], pointer(out), recv[:], at[:], kernel.Uint8, nil)
				}
				if x.other && c.Rank() >= 2 {
					call = func() error { return c.AllToAll(pointer(b), pointer(out), 5, kernel.Uint8, nil) }
				}
				err := call()
				if err == nil {
					err = c.Barrier(nil) // a rank that was not concerned hears of it
				}
				if !errors.Is(err, framework.ErrInvalid) && !errors.Is(err, framework.ErrPeer) {
					return fmt.Errorf("%v, expected ErrInvalid, or ErrPeer of the one who found out", err)
				}
				mu.Lock()
				defer mu.Unlock()
				s := err.Error()
				switch {
				case strings.Contains(s, "a length of") && strings.Contains(s, fmt.Sprint("rank ", x.from)), // knows from whom
					strings.Contains(s, "no bundle") && strings.Contains(s, "ranks [0 1]"), // from which host
					strings.Contains(s, "ranks disagree"):
					said++
				}
				return nil
			})
			if said == 0 {
				t.Error("no error says which ranks disagree")
			}
		})
	}
}

// A rank that fails ends an all-to-all-v in whatever level the others wait.
func TestDeathInAllToAllOverHosts(t *testing.T) {
	for _, culprit := range []int{0, 3} {
		hosts(t, []string{"a", "b", "b", "b"}, true, collectives.Options{}, func(_ context.Context, c *collectives.Comm) error {
			b := make([]byte, 4*4000)
			out := make([]byte, len(b))
			for i := 0; ; i++ {
				if c.Rank() == culprit && i == 5 {
					c.Communicator().Abort(&framework.Error{Op: "test", Peer: culprit, Err: fmt.Errorf("%w: it stumbles", framework.ErrPeer)})
					return nil
				}
				err := swapV(c, kernel.Float32, i%2, 50, nil)
				if i%2 == 1 {
					err = c.AllToAll(pointer(b), pointer(out), 1000, kernel.Float32, nil)
				}
				if err == nil {
					continue
				}
				if !errors.Is(err, framework.ErrPeer) || framework.PeerOf(err) != culprit {
					return fmt.Errorf("%v, expected ErrPeer of rank %d", err, culprit)
				}
				return nil
			}
		})
	}
}
