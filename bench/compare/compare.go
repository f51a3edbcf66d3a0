// Package compare compares our times with those of other programs on the same machine,
// in the same run. The commands compare-mpi, compare-tcp and compare-verbs use it.
//
// The two sides run alternately, several times each, so that other work of the machine
// affects both. For each point there are the ratio of the medians of both sides and the
// median of the paired ratios, of a run of ours and the run of theirs next to it.
//
// A folder of results has machine.json (when, where and how was measured), raw output as
// JSON lines, and README.md, a summary that follows from the other files alone.
package compare

import (
	"fmt"
	"math"
	"slices"

	"github.com/mscclpp-go/mscclpp/bench/stats"
)

// Key is one point of a comparison.
type Key struct {
	Collective string
	Bytes      int64
}

// Times collects what one side measured: for each point one time a run.
type Times map[Key][]float64

// Line is the result for one point.
type Line struct {
	Key
	Ours, Theirs float64 // medians over the runs
	Ratio        float64
	Paired       float64 // the median of the ratios of a run of ours to the run of theirs next to it
	Low, High    float64 // the smallest and largest ratio of a run of ours to the run of theirs next to it
}

// Pair compares what two sides measured for one point, run by run.
func Pair(k Key, ours, theirs []float64) (Line, error) {
	if len(ours) == 0 || len(ours) != len(theirs) {
		return Line{}, fmt.Errorf("%s of %d bytes: we ran %d times, they %d: expected as often", k.Collective, k.Bytes, len(ours), len(theirs))
	}
	l := Line{Key: k, Low: math.Inf(1), High: math.Inf(-1)}
	ratios := make([]float64, len(ours))
	for i := range ours {
		r := ours[i] / theirs[i]
		ratios[i] = r
		l.Low, l.High = min(l.Low, r), max(l.High, r)
	}
	l.Ours, l.Theirs = stats.Median(slices.Clone(ours)), stats.Median(slices.Clone(theirs))
	l.Ratio, l.Paired = l.Ours/l.Theirs, stats.Median(ratios)
	return l, nil
}

// Mean returns the geometric mean of the ratios of one collective, or of all
// collectives for "".
func Mean(lines []Line, collective string) float64 {
	var ratios []float64
	for _, l := range lines {
		if collective == "" || l.Collective == collective {
			ratios = append(ratios, l.Ratio)
		}
	}
	return stats.GeoMean(ratios)
}
