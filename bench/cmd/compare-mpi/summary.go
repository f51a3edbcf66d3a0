package main

import (
	"fmt"
	"io"

	"github.com/mscclpp-go/mscclpp/bench/compare"
	"github.com/mscclpp-go/mscclpp/bench/sizes"
)

// start is a comparison of start-up times, in milliseconds.
type start struct {
	name         string
	ours, theirs float64 // theirs 0: nothing to compare with
	ratio, limit float64 // promised ratio; 0: none
	limitMS      float64 // promised time of ours; 0: none
}

// broken says whether the promise is not kept.
func (s start) broken() bool {
	return s.limit > 0 && !(s.ratio <= s.limit) || s.limitMS > 0 && !(s.ours <= s.limitMS)
}

func (s start) promise() string {
	switch {
	case s.limit > 0:
		return fmt.Sprintf("at most %.2f of theirs", s.limit)
	case s.limitMS > 0:
		return fmt.Sprintf("at most %.0f ms", s.limitMS)
	}
	return "none"
}

// heading writes the top of a summary.
func heading(w io.Writer, m compare.Machine, mpi, version string, repetitions int) {
	fmt.Fprintf(w, "# Against %s\n\n%s, %d CPUs (%s), Linux %s, %s.\n\n", mpi, m.Date, m.CPUs, m.CPU, m.Kernel, version)
	fmt.Fprintf(w, "float32, sum, out of place, %d runs of each side in turn. Times are microseconds: the slowest\n"+
		"rank's median over iterations (method: package bench), then the median over the runs. A ratio is ours over\n"+
		"theirs, below 1 is faster; low and high are the extremes over pairs of neighboring runs.\n", repetitions)
}

// section writes one setting, and returns how many of its promises are not kept.
func section(w io.Writer, s setting, lines []compare.Line) (broken int) {
	fmt.Fprintf(w, "\n## %s\n\n| collective | size | ours µs | theirs µs | ratio | low | high |\n|---|---:|---:|---:|---:|---:|---:|\n", s.name)
	for _, l := range lines {
		fmt.Fprintf(w, "| %s | %s | %.2f | %.2f | %.3f | %.3f | %.3f |\n", l.Collective, sizes.Format(l.Bytes), l.Ours, l.Theirs, l.Ratio, l.Low, l.High)
	}
	fmt.Fprintf(w, "\nGeometric mean: **%.3f**", compare.Mean(lines, ""))
	for _, c := range collectives {
		fmt.Fprintf(w, ", %s %.3f", c, compare.Mean(lines, c))
	}
	fmt.Fprintf(w, ". Promised: at most %.2f", s.mean)
	if s.worst > 0 {
		fmt.Fprintf(w, ", no size above %.2f", s.worst)
	}
	fmt.Fprintln(w, ".")
	promises := s.verdict(lines)
	if len(promises) == 0 {
		fmt.Fprint(w, "\nKept.\n")
		return 0
	}
	fmt.Fprint(w, "\nNot kept:\n\n")
	for _, b := range promises {
		fmt.Fprintf(w, "- %s\n", b)
	}
	return len(promises)
}

// starts writes the start-up times, and returns how many promises about them are not kept.
func starts(w io.Writer, all []start) (broken int) {
	fmt.Fprint(w, "\n## Start-up\n\n| | ours ms | theirs ms | ratio | promised | |\n|---|---:|---:|---:|---|---|\n")
	for _, s := range all {
		kept := "kept"
		if s.broken() {
			kept = "not kept"
			broken++
		}
		fmt.Fprintf(w, "| %s | %.1f | %.1f | %.3f | %s | %s |\n", s.name, s.ours, s.theirs, s.ratio, s.promise(), kept)
	}
	return broken
}
