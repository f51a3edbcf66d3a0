package main

import (
	"fmt"
	"slices"

	"github.com/mscclpp-go/mscclpp/bench/compare"
	"github.com/mscclpp-go/mscclpp/bench/sizes"
	"github.com/mscclpp-go/mscclpp/bench/stats"
)

// setting is one comparison, with the targets for it.
type setting struct {
	name, text string
	ranks      int
	registered bool    // our buffers; MPI knows no such thing
	mean       float64 // the geometric mean of all ratios may be at most this
	worst      float64 // no single ratio may be above; 0: no target
}

// settings are compared, each by itself.
var settings = []setting{
	{name: "2-ranks-heap", text: "2 ranks, ordinary buffers", ranks: 2, mean: 0.8, worst: 1.2},
	{name: "2-ranks-registered", text: "2 ranks, registered buffers", ranks: 2, registered: true, mean: 0.6},
	{name: "4-ranks-heap", text: "4 ranks, ordinary buffers", ranks: 4, mean: 1.0},
}

// collectives that are compared, in float32, sum.
var collectives = []string{"allreduce", "allgather"}

// missed returns what the lines miss of the targets.
func (s setting) missed(lines []compare.Line) (all []string) {
	if m := compare.Mean(lines, ""); !(m <= s.mean) {
		all = append(all, fmt.Sprintf("the geometric mean is %.3f, above %.2f", m, s.mean))
	}
	for _, l := range lines {
		if s.worst > 0 && !(l.Ratio <= s.worst) {
			all = append(all, fmt.Sprintf("the ratio of %s at %s is %.3f, above %.2f", l.Collective, sizes.Format(l.Bytes), l.Ratio, s.worst))
		}
	}
	return all
}

// fallenBack is the time of an all-reduce of 1 KiB between two ranks above which the
// MPI implementation cannot be using shared memory: it talks TCP to itself, and to be
// faster than that proves nothing.
const fallenBack = 4.0

// sound refuses a comparison of two ranks with a peer that runs on a slow path.
func (s setting) sound(theirs compare.Times) error {
	if s.ranks != 2 {
		return nil
	}
	t := theirs[compare.Key{Collective: "allreduce", Bytes: 1024}]
	if len(t) == 0 {
		return fmt.Errorf("comparison refused: the peer has no time for an all-reduce of 1 KiB")
	}
	if m := stats.Median(slices.Clone(t)); !(m <= fallenBack) {
		return fmt.Errorf("comparison refused: the peer takes %.2f µs for an all-reduce of 1 KiB between two ranks, more than %.0f µs: it does not use shared memory", m, fallenBack)
	}
	return nil
}
