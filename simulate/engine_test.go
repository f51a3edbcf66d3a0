package simulate

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Two pieces through a link, the network and the link again, by hand.
func TestSimulationByHand(t *testing.T) {
	const link, net = 0, 1
	s := newSimulation(2)
	a0 := s.add(link, 3, 1, 10)     // 10-13, arrives 14
	b0 := s.add(net, 5, 2, 10, a0)  // 14-19, arrives 21
	c0 := s.add(link, 3, 1, 10, b0) // 21-24, arrives 25
	a1 := s.add(link, 3, 1, 10)     // 13-16, arrives 17
	b1 := s.add(net, 5, 2, 10, a1)  // waits for the network until 19, 24, arrives 26
	c1 := s.add(link, 3, 1, 10, b1) // 26-29, arrives 30
	if end := s.run(); end != 30 {
		t.Errorf("ends at %v, want 30", end)
	}
	if s.busy[link] != 12 || s.busy[net] != 10 {
		t.Errorf("busy %v, want 12 on the link and 10 on the network", s.busy)
	}
	for _, id := range []int32{c0, c1} {
		if s.tasks[id].waits != 0 {
			t.Errorf("task %d never ran", id)
		}
	}
}

// A resource that becomes free takes the earliest piece, not the one that came first.
func TestEarliestPieceFirst(t *testing.T) {
	s := newSimulation(2)
	first := s.add(1, 4, 0, 0)         // keeps resource 1 until 4
	late := s.add(0, 1, 0, 0, first)   // of the first piece: ready at 4
	long := s.add(0, 5, 0, 0)          // of another piece: 0-5
	waiting := s.add(0, 100, 0, 0)     // ready at 0, after late by number
	after := s.add(1, 1, 0, 0, late)   // 6-7
	last := s.add(1, 1, 0, 0, waiting) // 106-107
	if end := s.run(); end != 107 {
		t.Errorf("ends at %v, want 107: 5 of the long one, 1 of the earlier piece, 100, 1", end)
	}
	_, _, _ = long, after, last
	if got := s.tasks[after].ready; got != 6 {
		t.Errorf("the earlier piece was through at %v, want 6", got)
	}
}

// Results wait for everything before them, and one that waits for nothing starts no
// sooner than it may.
func TestDependencies(t *testing.T) {
	s := newSimulation(4)
	x, y := s.add(0, 1, 0, 0), s.add(1, 7, 3, 0)
	z := s.add(2, 1, 0, 0, x, y)
	s.add(3, 1, 0, 50)
	if end := s.run(); end != 51 || s.tasks[z].ready != 10 {
		t.Errorf("ends at %v, z ready at %v: want 51 and 10", end, s.tasks[z].ready)
	}
}

// However tasks depend on each other, the end is no sooner than any resource's work
// and no later than all work one after the other.
func TestBoundsOfRandomGraphs(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		s := newSimulation(3)
		all := 0.0
		var work [3]float64
		n := int32(1 + r.IntN(60))
		longest := make([]float64, n) // way to the end of each
		for id := range n {
			on, occupies, late := r.IntN(3), float64(r.IntN(5)), float64(r.IntN(5))
			var before []int32
			start := 0.0
			for range r.IntN(3) {
				if id > 0 {
					b := r.Int32N(id)
					before = append(before, b)
					start = max(start, longest[b])
				}
			}
			longest[id] = start + occupies + late
			s.add(on, occupies, late, 0, before...)
			work[on] += occupies
			all += occupies + late
		}
		end := s.run()
		if low := max(slices.Max(longest), work[0], work[1], work[2]); end < low || end > all {
			t.Fatalf("ends at %v: expected %v to %v", end, low, all)
		}
		for i, w := range work {
			if s.busy[i] != w {
				t.Fatalf("resource %d worked %v of %v: a task was lost", i, s.busy[i], w)
			}
		}
	}
}

func TestHeap(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var heap, want, got []int32
	for range 1000 {
		x := r.Int32N(100)
		push(&heap, x, lower)
		want = append(want, x)
	}
	for len(heap) > 0 {
		got = append(got, pop(&heap, lower))
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Error("numbers come out of the heap in another order than sorted")
	}
}
