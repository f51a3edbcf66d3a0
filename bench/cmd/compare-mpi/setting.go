package main

import (
	"fmt"
	"slices"

	"github.com/mscclpp-go/mscclpp/bench/compare"
	"github.com/mscclpp-go/mscclpp/bench/stats"
)

// setting is one comparison, with what we promise about it.
type setting struct {
	name       string
	ranks      int
	registered bool    // our buffers; MPI knows no such thing
	mean       float64 // the geometric mean of all ratios may be at most this
	worst      float64 // no single ratio may be above; 0: no promise
}

// settings is what is compared.
var settings = []setting{
	{name: "2-ranks-heap", ranks: 2, mean: 0.8, worst: 1.2},
	{name: "2-ranks-registered", ranks: 2, registered: true, mean: 0.6},
	{name: "4-ranks-heap", ranks: 4, mean: 1.0},
}

// collectives that are compared, in float32, sum.
var collectives = []string{"allreduce", "allgather"}

// verdict compares the lines with what the setting promises: nothing if it is kept.
func (s setting) verdict(lines []compare.Line) (broken []string) {
	if m := compare.Mean(lines, ""); !(m <= s.mean) {
		broken = append(broken, fmt.Sprintf("the mean is %.3f, promised is %.2f", m, s.mean))
	}
	for _, l := range lines {
		if s.worst > 0 && !(l.Ratio <= s.worst) {
			broken = append(broken, fmt.Sprintf("%s of %d bytes is %.3f, promised is %.2f", l.Collective, l.Bytes, l.Ratio, s.worst))
		}
	}
	return broken
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
