package collectives_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Much that has a root goes in two steps between more than two hosts, whatever these look
// like: in pieces, in place, with ends that cannot be divided.
func TestRootsInSteps(t *testing.T) {
	for _, layout := range []string{"abc", "abcde", "abac", "aabbcc", "aaabcbdd"} {
		t.Run(layout, func(t *testing.T) {
			at := strings.Split(layout, "")
			hosts(t, at, true, collectives.Options{}, func(_ context.Context, c *collectives.Comm) error {
				const most = 2 << 20
				b := buffers{make([]byte, most), make([]byte, most)}
				i := 0
				for _, root := range []int{0, len(at) / 2, len(at) - 1} {
					for _, kind := range []collectives.Collective{collectives.Broadcast, collectives.Reduce} {
						for _, algorithm := range []string{"ports", "hierarchical_large", ""} {
							i++
							x := trial{Kind: kind, Algorithm: algorithm, Count: []int{75_001, 131_072, 200_003, 99_999}[i%4], Root: root, InPlace: i/2%2 == 0, Shift: i % 3,
								Type: []kernel.DataType{kernel.Float32, kernel.Float16, kernel.BFloat16, kernel.Int32, kernel.Uint8}[i%5], Op: kernel.Op(i % kernel.Ops)}
							if !fits(c, x) {
								continue
							}
							if err := x.Run(b.of(c), uint64(i)); err != nil {
								return err
							}
						}
					}
				}
				return nil
			})
		})
	}
}

// A rank that is alone, with nothing but ports, has no peers to share the work with.
func TestRootAlone(t *testing.T) {
	alone := func(_ int, plain framework.Transport) framework.Transport { return portsOnly{plain} }
	local{at: []string{"a"}, offers: []offer{alone}}.run(t, func(ctx context.Context, world *comm.Communicator) error {
		c, err := collectives.New(ctx, world, collectives.Options{})
		if err != nil {
			return err
		}
		b := buffers{make([]byte, 2<<20), make([]byte, 2<<20)}
		for i, kind := range []collectives.Collective{collectives.Broadcast, collectives.Reduce} {
			err = errors.Join(err, trial{Kind: kind, Algorithm: "ports", Count: 200_003, Type: kernel.Float32, Op: kernel.Sum}.Run(b.of(c), uint64(i)))
		}
		return errors.Join(err, c.Close())
	})
}

// A reduction adds up in the order in which an all-reduce does: the same bits, whatever is
// rounded on the way.
func TestReduceHasTheBitsOfAllReduce(t *testing.T) {
	const count = 200_003
	for layout, algorithms := range map[string][]string{"abcd": {"ports"}, "abbcc": {"ports", "hierarchical_large"}} {
		at := strings.Split(layout, "")
		hosts(t, at, true, collectives.Options{}, func(_ context.Context, c *collectives.Comm) error {
			in, all, one := make([]float32, count), make([]float32, count), make([]float32, count)
			for i := range in {
				in[i] = float32(math.Sin(float64(i*7+c.Rank()*131)) * math.Exp2(float64((i+c.Rank())%20)))
			}
			for _, algorithm := range algorithms {
				o := &collectives.CallOptions{Algorithm: algorithm}
				root := len(at) / 2
				if err := c.AllReduce(unsafe.Pointer(&in[0]), unsafe.Pointer(&all[0]), count, kernel.Float32, kernel.Sum, o); err != nil {
					return err
				}
				if err := c.Reduce(unsafe.Pointer(&in[0]), unsafe.Pointer(&one[0]), count, kernel.Float32, kernel.Sum, root, o); err != nil {
					return err
				}
				if c.Rank() == root && !slices.Equal(one, all) {
					return fmt.Errorf("%s over %s: a reduction has other bits than an all-reduce", algorithm, layout)
				}
			}
			return nil
		})
	}
}

// The data that leaves the root's host, or comes to it, does so once, however many hosts there are.
func TestBytesOfRoots(t *testing.T) {
	const bytes = 3 << 19
	for _, x := range []struct {
		layout, algorithm string
		broadcast, reduce func(host string) int // the bytes that a rank sends; the root is on the first host
	}{
		{"abcd", "ports", func(h string) int { return map[bool]int{true: bytes, false: bytes / 3 * 2}[h == "a"] }, func(string) int { return bytes }},
		{"aabbcc", "hierarchical_large", func(h string) int { return map[bool]int{true: bytes / 2, false: bytes / 4}[h == "a"] }, func(string) int { return bytes / 2 }},
	} {
		at := strings.Split(x.layout, "")
		hosts(t, at, true, collectives.Options{Scratch: collectives.HostScratch}, func(_ context.Context, c *collectives.Comm) error {
			b := make([]byte, 2*bytes)
			for _, kind := range []collectives.Collective{collectives.Broadcast, collectives.Reduce} {
				call := func() error {
					return trial{Kind: kind, Algorithm: x.algorithm, Count: bytes / 4, Type: kernel.Float32, Op: kernel.Sum}.Call(c, pointer(b), pointer(b[bytes:]), 0)
				}
				if err := call(); err != nil { // makes the channels
					return err
				}
				_, mark := c.SentBy(nil)
				if err := call(); err != nil {
					return err
				}
				sent, _ := c.SentBy(mark)
				sum, want := 0, x.broadcast(at[c.Rank()])
				if kind == collectives.Reduce {
					want = x.reduce(at[c.Rank()])
				}
				for _, n := range sent {
					sum += int(n)
				}
				if sum != want {
					return fmt.Errorf("%s, %v: rank %d sent %d bytes (%v), expected %d of %d", x.layout, kind, c.Rank(), sum, sent, want, bytes)
				}
			}
			return nil
		})
	}
}
