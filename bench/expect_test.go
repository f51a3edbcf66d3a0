package bench

import (
	"fmt"
	"testing"
)

// origin is where an element of an output comes from: the rank whose input it is,
// or everyone, and its place there.
type origin struct{ from, at int }

// definition says what the collective is to leave at place i of a rank's output, in
// the words of its documentation and one element at a time.
func definition(c *Call, rank, ranks, i int) origin {
	n := c.Count
	switch c.Collective {
	case AllReduce, Reduce:
		return origin{everyone, i}
	case ReduceScatter:
		return origin{everyone, rank*n + i}
	case Broadcast:
		return origin{c.Root, i}
	case Scatter:
		return origin{c.Root, rank*n + i}
	case SendRecv:
		for from := range ranks {
			if (from+1)%ranks == rank {
				return origin{from, i}
			}
		}
	case AllGather, Gather:
		return origin{i / n, i % n}
	case AllToAll:
		return origin{i / n, rank*n + i%n}
	case AllToAllV:
		// Blocks lie one behind the other at both ends, in the order of the ranks.
		unit := blockUnit(n, ranks)
		for from := range ranks {
			size := unit * (1 + (from+rank)%ranks)
			if i < size {
				before := 0
				for to := range rank {
					before += unit * (1 + (from+to)%ranks)
				}
				return origin{from, before + i}
			}
			i -= size
		}
	}
	panic(fmt.Sprintf("no definition of element %d of %s", i, c.Collective))
}

// The stretches that the verifier expects cover every element of the output once, and agree
// with the definition: a stretch left out would be a stretch never checked.
func TestExpectedOutputIsTheDefinition(t *testing.T) {
	for _, collective := range All() {
		for _, ranks := range []int{1, 2, 3, 4, 7} {
			for _, count := range []int{0, 1, 5, 12} {
				for root := range ranks {
					if root > 0 && !collective.Rooted() {
						break
					}
					for rank := range ranks {
						c := &Call{Collective: collective, Count: count, Root: root}
						_, size := collective.Elements(count, ranks, rank, root)
						if collective == AllToAllV {
							c.V = UnevenBlocks(count, ranks, rank)
							_, size = c.V.Totals()
						}
						name := fmt.Sprintf("%s of %d, rank %d of %d, root %d", collective, count, rank, ranks, root)
						compareOrigins(t, name, c, rank, ranks, size)
					}
				}
			}
		}
	}
}

func compareOrigins(t *testing.T, name string, c *Call, rank, ranks, size int) {
	t.Helper()
	times := make([]int, size)
	for _, r := range c.expected(rank, ranks) {
		for i := range r.n {
			if r.out+i >= size {
				t.Fatalf("%s: element %d is expected of an output of %d", name, r.out+i, size)
			}
			times[r.out+i]++
			if got, want := (origin{r.from, r.first + i}), definition(c, rank, ranks, r.out+i); got != want {
				t.Fatalf("%s: element %d comes from %+v, want %+v", name, r.out+i, got, want)
			}
		}
	}
	for i, n := range times {
		if n != 1 {
			t.Fatalf("%s: element %d is checked %d times", name, i, n)
		}
	}
}

// In place, input and output of a rank lie in one buffer that is as large as the
// larger of them, wherever NCCL puts the smaller one.
func TestSharedBuffersAreLargeEnough(t *testing.T) {
	for _, collective := range All() {
		if !collective.HasInPlace() {
			continue
		}
		const count, ranks = 6, 4
		for rank := range ranks {
			for root := range ranks {
				if root > 0 && !collective.Rooted() {
					break
				}
				atIn, atOut := collective.SharedAt(count, rank, root)
				in, out := collective.Elements(count, ranks, rank, root)
				room := int(Larger(collective, count, ranks))
				if atIn+in > room || atOut+out > room || atIn < 0 || atOut < 0 {
					t.Errorf("%s, rank %d, root %d: input %d+%d and output %d+%d in a buffer of %d", collective, rank, root, atIn, in, atOut, out, room)
				}
				if in > out && atIn != 0 || out > in && atOut != 0 {
					t.Errorf("%s, rank %d, root %d: the larger part starts at %d or %d, want 0", collective, rank, root, atIn, atOut)
				}
			}
		}
	}
}
