package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/mscclpp-go/mscclpp/bench/compare"
)

// comparison is a row of the summary: a ratio of two sources, and what we promise of it.
type comparison struct {
	text         string
	unit         string
	ours, theirs string      // sources
	key          compare.Key // what of both
	other        compare.Key // of theirs, where it is not the same
	most, least  float64
}

var comparisons = func() (all []comparison) {
	for _, b := range latencySizes {
		all = append(all, comparison{text: fmt.Sprintf("put+signal to wait, %d B, half a round trip", b), unit: "µs", ours: hostIn, theirs: bareLoop, key: keyOf(putSignal, b), most: 1.15})
	}
	all = append(all,
		comparison{text: "sustained puts of 64 KiB", unit: "MiB/s", ours: hostIn, theirs: perftestBW, key: keyOf(bandwidth, streamBytes), least: 0.95},
		comparison{text: "a signal with its completion, in one request", unit: "µs", ours: hostIn, theirs: perftestAtom, key: keyOf(completed, 0), most: 1.1},
		comparison{text: "a signal, then a flush", unit: "µs", ours: hostIn, theirs: perftestAtom, key: keyOf(flushed, 0), other: keyOf(completed, 0)},
		comparison{text: "a signal by immediate, and one by atomic, half a round trip", unit: "µs", ours: otherIn, theirs: hostIn, key: keyOf(signals, 0), most: 1.3})
	for _, b := range latencySizes {
		all = append(all, comparison{text: fmt.Sprintf("rank and plugin as two processes, %d B, half a round trip", b), unit: "µs", ours: hostApart, theirs: hostIn, key: keyOf(putSignal, b)})
	}
	return append(all, comparison{text: "rank and plugin as two processes, puts of 64 KiB", unit: "MiB/s", ours: hostApart, theirs: hostIn, key: keyOf(bandwidth, streamBytes)})
}()

// kept says whether a ratio is as promised.
func (c comparison) kept(ratio float64) bool {
	return !math.IsNaN(ratio) && (c.most == 0 || ratio <= c.most) && (c.least == 0 || ratio >= c.least)
}

// best is that of the runs: the shortest time, or the most bytes.
func (c comparison) best(runs []float64) float64 {
	if c.unit == "MiB/s" {
		return slices.Max(runs)
	}
	return slices.Min(runs)
}

func (c comparison) verdict(ratio float64) string {
	promise := "reported"
	switch {
	case c.most > 0:
		promise = fmt.Sprintf("at most %.2f", c.most)
	case c.least > 0:
		promise = fmt.Sprintf("at least %.2f", c.least)
	default:
		return promise + " |"
	}
	if c.kept(ratio) {
		return promise + " | kept"
	}
	return promise + " | **not kept**"
}

// summary writes the table. A source that has no value for a row is an error.
func summary(w io.Writer, m compare.Machine, j job, all results) error {
	fmt.Fprintf(w, "# Verbs, beside programs without us\n\n%s, %d processors (%s), Linux %s.\n\n", m.Date, m.CPUs, m.CPU, m.Kernel)
	fmt.Fprintf(w, "Two processes on one soft-RoCE device; %d runs of each side in turn, up to %d iterations in a run; every second\n"+
		"turn goes backwards. A value is the median over the iterations of a run (bandwidth: all of them together), then over\n"+
		"the runs. Ratios are ours over theirs. What counts is the median of the ratios of runs next to each other; low and high\n"+
		"are the extremes of these, medians is the ratio of the two medians, and best that of the best run of each side.\n"+
		"Each program has runs that take longer by a half from beginning to end. A ratio of medians sets those of one side\n"+
		"against others of the other side where they are about as many; in pairs they meet as often one way as the other.\n"+
		"The device and the processors are emulated: only ratios mean something. Raw output: raw.jsonl.\n"+
		"What a plugin costs as a process of its own, here and where processors are real, and why, is in docs/decisions/0008.\n\n", j.Repetitions, j.iterations)
	if j.load != "" {
		fmt.Fprintf(w, "Load of the machine below when it began: %s.\n\n", j.load)
	}
	if len(j.settings) > 0 {
		fmt.Fprintf(w, "Settings of ours: %s.\n\n", strings.Join(j.settings, ", "))
	}
	fmt.Fprint(w, "| what | ours | theirs | unit | ours | theirs | ratio | low | high | medians | best | promised | |\n|---|---|---|---|---:|---:|---:|---:|---:|---:|---:|---|---|\n")
	broken := 0
	for _, c := range comparisons {
		other := c.other
		if other == (compare.Key{}) {
			other = c.key
		}
		ours, theirs := all[c.ours][c.key], all[c.theirs][other]
		l, err := compare.Pair(c.key, ours, theirs)
		if err != nil {
			return fmt.Errorf("%s and %s: %w", c.ours, c.theirs, err)
		}
		if !c.kept(l.Paired) {
			broken++
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %.1f | %.1f | %.3f | %.3f | %.3f | %.3f | %.3f | %s |\n", c.text, c.ours, c.theirs, c.unit, l.Ours, l.Theirs, l.Paired, l.Low, l.High, l.Ratio, c.best(ours)/c.best(theirs), c.verdict(l.Paired))
	}
	if broken == 0 {
		fmt.Fprint(w, "\nAll promises are kept.\n")
	} else {
		fmt.Fprintf(w, "\n%d promises are not kept.\n", broken)
	}
	return nil
}
