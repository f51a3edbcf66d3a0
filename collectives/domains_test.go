package collectives_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/collectives/collectivetest"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// More ranks share memory than a launch can address: the host counts as several, and all
// collectives give what they give otherwise. Lanes are made for what is called.
func TestResultsOnADividedHost(t *testing.T) {
	defer collectives.Divide(3)()
	for ranks, first := range map[int]int{
		6: 1, // two parts of three: one counterpart
		7: 6, // parts that differ: all
	} {
		t.Run(fmt.Sprint(ranks), func(t *testing.T) {
			at := slices.Repeat([]string{"a"}, ranks)
			hosts(t, at, true, collectives.Options{Scratch: 1}, func(ctx context.Context, c *collectives.Comm) error {
				const most = 20011 + 8
				b := buffers{make([]byte, 2*most*8*ranks), make([]byte, 2*most*8*ranks)}
				x := trial{Kind: collectives.AllReduce, Count: counts[0], Type: kernel.Float32}
				if err := x.Run(b.of(c), 1); err != nil {
					return err
				}
				if n := c.Lanes(); n != first {
					return fmt.Errorf("rank %d has lanes to %d ranks after an all-reduce: expected %d", c.Rank(), n, first)
				}
				i := 0
				for _, kind := range collectivetest.Kinds() {
					for _, algorithm := range []string{"", "ports", "hierarchical_small", "hierarchical_large"} {
						x := trial{
							Kind: kind, Algorithm: algorithm, Count: counts[i%len(counts)], Type: kernel.DataType(i % kernel.DataTypes),
							Op: kernel.Op(i / 2 % kernel.Ops), Root: i % ranks, InPlace: i/3%2 == 0,
						}
						i += 7
						if !fits(c, x) {
							continue
						}
						if err := x.Run(b.of(c), uint64(i)); err != nil {
							return fmt.Errorf("%+v: %w", x, err)
						}
					}
				}
				return c.Barrier(nil)
			})
		})
	}
}

// Before, 73 ranks of a host were refused.
func TestMoreRanksThanALaunchAddresses(t *testing.T) {
	const ranks = 80
	shared := local{at: slices.Repeat([]string{"a"}, ranks), offers: []offer{asItIs}, together: true}
	shared.run(t, func(ctx context.Context, world *comm.Communicator) error {
		c, err := collectives.New(ctx, world, collectives.Options{Scratch: 1})
		if err != nil {
			return err
		}
		defer c.Close()
		in, out := []int32{int32(c.Rank())}, []int32{0}
		if err := c.AllReduce(unsafe.Pointer(&in[0]), unsafe.Pointer(&out[0]), 1, kernel.Int32, kernel.Sum, nil); err != nil {
			return err
		}
		if out[0] != ranks*(ranks-1)/2 {
			return fmt.Errorf("%d, expected %d", out[0], ranks*(ranks-1)/2)
		}
		return c.Barrier(nil)
	})
}

// Parts are equal where they can be, have few links, and are never larger than a launch can
// address.
func TestPartsOfAHost(t *testing.T) {
	for _, c := range []struct{ ranks, parts, most int }{{73, 2, 37}, {80, 8, 10}, {200, 10, 20}, {1024, 32, 32}, {144, 9, 16}, {146, 73, 2}, {151, 3, 51}} {
		sizes := collectives.Divided(c.ranks, 72)
		sum := 0
		for _, n := range sizes {
			sum += n
		}
		if len(sizes) != c.parts || slices.Max(sizes) != c.most || sum != c.ranks || slices.Min(sizes) < c.most-1 {
			t.Errorf("%d ranks: parts of %v, expected %d of at most %d", c.ranks, sizes, c.parts, c.most)
		}
	}
}
