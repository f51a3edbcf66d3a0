// Package compare sets our benchmark against that of an MPI implementation on the
// same machine, in the same run.
//
// The two sides run alternately, several times each, so that whatever else the
// machine does meets both. For each size the ratio is the median of our times over
// the median of theirs; below 1 is faster. Ratios are combined by their geometric
// mean.
package compare

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/mscclpp-go/mscclpp/bench/report"
	"github.com/mscclpp-go/mscclpp/bench/stats"
)

// Setting is one comparison, with what we promise about it.
type Setting struct {
	Name       string
	Ranks      int
	Registered bool    // our buffers; MPI knows no such thing
	Mean       float64 // the geometric mean of all ratios may be at most this
	Worst      float64 // no single ratio may be above; 0: no promise
}

// Settings is what is compared.
var Settings = []Setting{
	{Name: "2-ranks-heap", Ranks: 2, Mean: 0.8, Worst: 1.2},
	{Name: "2-ranks-registered", Ranks: 2, Registered: true, Mean: 0.6},
	{Name: "4-ranks-heap", Ranks: 4, Mean: 1.0},
}

// Collectives that are compared, in float32, sum.
var Collectives = []string{"allreduce", "allgather"}

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

// Line is the verdict on one point.
type Line struct {
	Key
	Ours, Theirs float64 // medians over the runs, µs
	Ratio        float64
	Low, High    float64 // the smallest and largest ratio of a run of ours to the run of theirs next to it
}

// Compare pairs the two sides. A point that one side lacks, or ran a different
// number of times, is an error.
func Compare(ours, theirs Times) ([]Line, error) {
	if len(ours) != len(theirs) {
		return nil, fmt.Errorf("we have %d points, they %d", len(ours), len(theirs))
	}
	var lines []Line
	for k, o := range ours {
		t := theirs[k]
		if len(t) != len(o) {
			return nil, fmt.Errorf("%s of %d bytes: we ran %d times, they %d", k.Collective, k.Bytes, len(o), len(t))
		}
		l := Line{Key: k}
		for i := range o {
			r := o[i] / t[i]
			if i == 0 {
				l.Low, l.High = r, r
			}
			l.Low, l.High = min(l.Low, r), max(l.High, r)
		}
		l.Ours, l.Theirs = stats.Median(slices.Clone(o)), stats.Median(slices.Clone(t))
		l.Ratio = l.Ours / l.Theirs
		lines = append(lines, l)
	}
	slices.SortFunc(lines, func(a, b Line) int {
		if a.Collective != b.Collective {
			return slices.Index(Collectives, a.Collective) - slices.Index(Collectives, b.Collective)
		}
		return int(a.Bytes - b.Bytes)
	})
	return lines, nil
}

// Mean is the geometric mean of the ratios of one collective, or of all for "".
func Mean(lines []Line, collective string) float64 {
	var ratios []float64
	for _, l := range lines {
		if collective == "" || l.Collective == collective {
			ratios = append(ratios, l.Ratio)
		}
	}
	return stats.GeoMean(ratios)
}

// Verdict compares the lines with what the setting promises: nothing if it is kept.
func (s Setting) Verdict(lines []Line) (broken []string) {
	if m := Mean(lines, ""); !(m <= s.Mean) {
		broken = append(broken, fmt.Sprintf("the mean is %.3f, promised is %.2f", m, s.Mean))
	}
	for _, l := range lines {
		if s.Worst > 0 && !(l.Ratio <= s.Worst) {
			broken = append(broken, fmt.Sprintf("%s of %d bytes is %.3f, promised is %.2f", l.Collective, l.Bytes, l.Ratio, s.Worst))
		}
	}
	return broken
}

// FallenBack is the time of an all-reduce of 1 KiB between two ranks above which the
// MPI implementation cannot be using shared memory: it talks TCP to itself, and to be
// faster than that proves nothing.
const FallenBack = 4.0

// Sound refuses a comparison with a peer that runs on a slow path. Theirs are times
// of two ranks.
func Sound(theirs Times) error {
	t := theirs[Key{"allreduce", 1024}]
	if len(t) == 0 {
		return fmt.Errorf("comparison refused: the peer has no time for an all-reduce of 1 KiB")
	}
	if m := stats.Median(slices.Clone(t)); !(m <= FallenBack) {
		return fmt.Errorf("comparison refused: the peer takes %.2f µs for an all-reduce of 1 KiB between two ranks, more than %.0f µs: it does not use shared memory", m, FallenBack)
	}
	return nil
}
