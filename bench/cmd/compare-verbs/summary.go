package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/mscclpp-go/mscclpp/bench/compare"
)

// comparison is a row of the summary: a ratio of two sources, and the target for it.
type comparison struct {
	text         string
	unit         string
	ours, theirs string      // sources
	key          compare.Key // the measurement that is compared
	other        compare.Key // of theirs, where it is not the same
	most, least  float64
}

var comparisons = func() (all []comparison) {
	for _, b := range latencySizes {
		all = append(all, comparison{text: fmt.Sprintf("put with signal, %d B: half round trip", b), unit: "µs", ours: hostIn, theirs: bareLoop, key: keyOf(putSignal, b), most: 1.15})
	}
	all = append(all,
		comparison{text: "puts of 64 KiB: throughput", unit: "MiB/s", ours: hostIn, theirs: perftestBW, key: keyOf(bandwidth, streamBytes), least: 0.95},
		comparison{text: "signal and completion in one request: latency", unit: "µs", ours: hostIn, theirs: perftestAtom, key: keyOf(completed, 0), most: 1.1},
		comparison{text: "signal, then flush: latency", unit: "µs", ours: hostIn, theirs: perftestAtom, key: keyOf(flushed, 0), other: keyOf(completed, 0)},
		comparison{text: "signal by immediate data, compared with an atomic: half round trip", unit: "µs", ours: otherIn, theirs: hostIn, key: keyOf(signals, 0), most: 1.3})
	for _, b := range latencySizes {
		all = append(all, comparison{text: fmt.Sprintf("transport in its own process, put with signal, %d B: half round trip", b), unit: "µs", ours: hostApart, theirs: hostIn, key: keyOf(putSignal, b)})
	}
	return append(all, comparison{text: "transport in its own process, puts of 64 KiB: throughput", unit: "MiB/s", ours: hostApart, theirs: hostIn, key: keyOf(bandwidth, streamBytes)})
}()

// met says whether a ratio reaches the target.
func (c comparison) met(ratio float64) bool {
	return !math.IsNaN(ratio) && (c.most == 0 || ratio <= c.most) && (c.least == 0 || ratio >= c.least)
}

// best is that of the runs: the shortest time, or the most bytes.
func (c comparison) best(runs []float64) float64 {
	if c.unit == "MiB/s" {
		return slices.Max(runs)
	}
	return slices.Min(runs)
}

// verdict is the last two columns: the target, and whether it is met.
func (c comparison) verdict(ratio float64) string {
	var target string
	switch {
	case c.most > 0:
		target = fmt.Sprintf("at most %.2f", c.most)
	case c.least > 0:
		target = fmt.Sprintf("at least %.2f", c.least)
	default:
		return "none |"
	}
	if c.met(ratio) {
		return target + " | met"
	}
	return target + " | **missed**"
}

// summary is made of the folder alone. It returns how many targets are missed.
func (j *job) summary(w io.Writer) (missed int, err error) {
	all, err := j.read()
	if err != nil {
		return 0, err
	}
	f := j.facts
	fmt.Fprintf(w, `# Port channels over verbs, compared with a loop in C and perftest

%s.

Two processes communicate over one soft-RoCE device in a virtual machine. Device and processors are emulated: only
ratios are meaningful, absolute values are not. Each program ran %d times, in alternation with the others and with up to
%d iterations in a run; every second time the order of the programs was reversed.

The programs:

- *ib-host* and *ib-nonatomic*: two ranks of ours, with the transport of that name embedded.
- *ib-host as plugin*: two ranks of ours, with the transport in processes of their own.
- *bare loop*: a loop in C that calls verbs directly (`+"`bench/verbs/peer.c`"+`).
- *ib_write_bw* and *ib_atomic_lat*: from perftest.

How to read the table:

- A latency is the median over the iterations of a run. A throughput is that of all iterations of a run. The table has
  the medians over the runs.
- *Ratio* is the median of paired ratios, and the targets are for it. A pair is a run of the program and the run of the
  compared program in the same repetition; its ratio is the program's value divided by the compared program's. *Lowest*
  and *highest* are the extremes of the paired ratios.
- *Ratio of medians* and *ratio of best runs* are given for comparison.
- Why pairs: each program has runs that take half as long again from beginning to end. If these are about half of the runs,
  the ratio of medians may compare slow runs of one program with normal runs of the other. In pairs, slow runs fall on
  either side equally often.
`, &f.Machine, f.Repetitions, f.Iterations)
	if f.HostLoad != "" {
		fmt.Fprintf(w, "\nLoad average of the machine that runs the virtual machine, at the start: %s.\n", f.HostLoad)
	}
	if len(f.Settings) > 0 {
		fmt.Fprintf(w, "\nSettings of our ranks: %s.\n", strings.Join(f.Settings, ", "))
	}
	if f.Note != "" {
		fmt.Fprintf(w, "\n%s\n", f.Note)
	}
	fmt.Fprint(w, "\n| measurement | program | compared with | unit | value | compared value | ratio | lowest | highest | ratio of medians | ratio of best runs | target | result |\n|---|---|---|---|---:|---:|---:|---:|---:|---:|---:|---|---|\n")
	for _, c := range comparisons {
		other := c.other
		if other == (compare.Key{}) {
			other = c.key
		}
		ours, theirs := all[c.ours][c.key], all[c.theirs][other]
		l, err := compare.Pair(c.key, ours, theirs)
		if err != nil {
			return 0, fmt.Errorf("%s and %s: %w", c.ours, c.theirs, err)
		}
		if !c.met(l.Paired) {
			missed++
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %.1f | %.1f | %.3f | %.3f | %.3f | %.3f | %.3f | %s |\n", c.text, c.ours, c.theirs, c.unit, l.Ours, l.Theirs, l.Paired, l.Low, l.High, l.Ratio, c.best(ours)/c.best(theirs), c.verdict(l.Paired))
	}
	fmt.Fprintf(w, `
Result: %s.

[Decision 8](../../decisions/0008-who-waits-does-the-proxys-work.md) explains what a transport in its own process costs,
here and on processors that are not emulated. The raw output is in `+"`raw.jsonl`, and `machine.json`"+` has the facts about
the machine and the run. This file is generated from both: `+"`go run ./bench/cmd/compare-verbs -summarize`"+`.

In instructions a signal with its completion is compared with ib_atomic_lat by `+"`scripts/rdma-bench.sh --count`"+`, whose
output does not depend on what else the machine does. It is in `+"`counted.txt`"+`, if that was run. In time the same call of the
same number of instructions differs by more than the target allows from process to process: `+"`same-requests.txt`"+` has what was
seen, if that was measured.
`, compare.Missed(missed))
	return missed, nil
}
