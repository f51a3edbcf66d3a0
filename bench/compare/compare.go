// Package compare compares our times with those of other programs on the same machine,
// in the same run. The commands compare-mpi, compare-tcp and compare-verbs use it.
//
// The two sides run alternately, several times each, so that other work of the machine
// affects both. For each point the ratio is the median of our values over the median of
// theirs. Ratios are combined by their geometric mean.
package compare

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/mscclpp-go/mscclpp/bench/report"
	"github.com/mscclpp-go/mscclpp/bench/stats"
)

// Key is one point of a comparison.
type Key struct {
	Collective string
	Bytes      int64
}

// Times collects what one side measured: for each point one time a run.
type Times map[Key][]float64

// Add reads the JSON lines of one run. A wrong result is an error: a time for it
// means nothing.
func (t Times) Add(output []byte) error {
	lines := bufio.NewScanner(bytes.NewReader(output))
	n := 0
	for lines.Scan() {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var row report.Row
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			return fmt.Errorf("line %q: expected a JSON object a line: %w", lines.Text(), err)
		}
		if row.Errors == nil || *row.Errors != 0 {
			return fmt.Errorf("%s of %d bytes: the result was wrong, or not checked: %s", row.Collective, row.Bytes, lines.Text())
		}
		if !(row.TimeUS > 0) {
			return fmt.Errorf("%s of %d bytes: a time of %v µs", row.Collective, row.Bytes, row.TimeUS)
		}
		k := Key{row.Collective, row.Bytes}
		t[k] = append(t[k], row.TimeUS)
		n++
	}
	if n == 0 {
		return fmt.Errorf("no result in the output %q", output)
	}
	return lines.Err()
}

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

// Compare pairs the two sides, in the given order of collectives, and then by size. A
// point that one side lacks, or ran a different number of times, is an error.
func Compare(ours, theirs Times, order ...string) ([]Line, error) {
	if len(ours) != len(theirs) {
		return nil, fmt.Errorf("we have %d points, they %d", len(ours), len(theirs))
	}
	var lines []Line
	for k := range ours {
		l, err := Pair(k, ours[k], theirs[k])
		if err != nil {
			return nil, err
		}
		lines = append(lines, l)
	}
	slices.SortFunc(lines, func(a, b Line) int {
		return cmp.Or(slices.Index(order, a.Collective)-slices.Index(order, b.Collective), cmp.Compare(a.Bytes, b.Bytes))
	})
	return lines, nil
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
