package main

import (
	"fmt"
	"io"

	"github.com/mscclpp-go/mscclpp/bench/compare"
	"github.com/mscclpp-go/mscclpp/bench/sizes"
)

// target says what is to be reached.
func (s start) target() string {
	if s.ratio > 0 {
		return fmt.Sprintf("ratio at most %.2f", s.ratio)
	}
	return fmt.Sprintf("at most %.0f ms", s.ms)
}

// missed says whether the target is.
func (s start) missed(l compare.Line) bool {
	return s.ratio > 0 && !(l.Ratio <= s.ratio) || s.ms > 0 && !(l.Ours <= s.ms)
}

// summary is made of the folder alone. It returns how many targets are missed.
func (j *job) summary(w io.Writer) (missed int, err error) {
	f := j.facts
	fmt.Fprintf(w, `# Collectives compared with MPI

%s, %s, %s.

All-reduce and all-gather of this library, compared with the MPI library installed on the same machine. The data are
float32, the reduction is a sum, and source and destination are different buffers. Our program and the MPI program ran
%d times each, in alternation.

- A time is in microseconds. Within a run it is the median over the iterations, of the slowest rank (`+"`go doc ./bench`"+`
  describes the method). The tables have the median over the runs.
- *Ratio* is the median of our times divided by the median of MPI's times. Below 1, ours is faster.
- *Lowest* and *highest* are the extremes of the paired ratios. A pair is a run of ours and the MPI run after it.

Each title names the file with the raw output. `+"`machine.json`"+` has the facts about the machine and the run. This file is
generated from both: `+"`go run ./bench/cmd/compare-mpi -summarize`"+`.
`, &f.Machine, f.MPI, f.Version, f.Repetitions)
	if f.Note != "" {
		fmt.Fprintf(w, "\n%s\n", f.Note)
	}
	missed, err = compare.Sections(&j.Runner, f.Tables, f.Repetitions, j.table, func(s setting, lines []compare.Line) int { return section(w, s, lines) })
	if err != nil {
		return 0, err
	}
	all, lines, err := j.readStarts()
	if err != nil || len(all) == 0 {
		return missed, err
	}
	return missed + startSection(w, all, lines), nil
}

// section writes one setting, and returns how many of its targets are missed.
func section(w io.Writer, s setting, lines []compare.Line) int {
	fmt.Fprintf(w, "\n## %s (`%s.jsonl`)\n\n| collective | size | our time (µs) | MPI time (µs) | ratio | lowest | highest |\n|---|---:|---:|---:|---:|---:|---:|\n", s.text, s.name)
	for _, l := range lines {
		fmt.Fprintf(w, "| %s | %s | %.2f | %.2f | %.3f | %.3f | %.3f |\n", l.Collective, sizes.Format(l.Bytes), l.Ours, l.Theirs, l.Ratio, l.Low, l.High)
	}
	fmt.Fprintf(w, "\nGeometric mean of the ratios: **%.3f**", compare.Mean(lines, ""))
	for _, c := range collectives {
		fmt.Fprintf(w, ", %s %.3f", c, compare.Mean(lines, c))
	}
	fmt.Fprintf(w, ".\n\nTarget: a geometric mean of at most %.2f", s.mean)
	if s.worst > 0 {
		fmt.Fprintf(w, ", and no ratio above %.2f", s.worst)
	}
	missed := s.missed(lines)
	if len(missed) == 0 {
		fmt.Fprint(w, ". Met.\n")
		return 0
	}
	fmt.Fprint(w, ". Missed:\n\n")
	for _, m := range missed {
		fmt.Fprintf(w, "- %s\n", m)
	}
	return len(missed)
}

// startSection writes the start-up times, and returns how many of their targets are missed.
func startSection(w io.Writer, all []start, lines []compare.Line) (missed int) {
	fmt.Fprintf(w, "\n## Start-up (`%s.jsonl`)\n\n| start-up | our time (ms) | MPI time (ms) | ratio | target | result |\n|---|---:|---:|---:|---|---|\n", startFile)
	for i, s := range all {
		l, result := lines[i], "met"
		if s.missed(l) {
			result = "missed"
			missed++
		}
		fmt.Fprintf(w, "| %s | %.1f | %.1f | %.3f | %s | %s |\n", s.text, l.Ours, l.Theirs, l.Ratio, s.target(), result)
	}
	return missed
}
