package compare

import (
	"fmt"
	"io"

	"github.com/mscclpp-go/mscclpp/bench/sizes"
)

// Machine describes where a comparison ran.
type Machine struct {
	Date, CPU, Kernel, MPI, Version string
	CPUs, Repetitions               int
}

// Start is a comparison of start-up times, in milliseconds.
type Start struct {
	Name         string
	Ours, Theirs float64 // Theirs 0: nothing to compare with
	Ratio, Limit float64 // promised ratio; 0: none
	LimitMS      float64 // promised time of ours; 0: none
}

// Broken says whether the promise is not kept.
func (s Start) Broken() bool {
	return s.Limit > 0 && !(s.Ratio <= s.Limit) || s.LimitMS > 0 && !(s.Ours <= s.LimitMS)
}

func (s Start) promise() string {
	switch {
	case s.Limit > 0:
		return fmt.Sprintf("at most %.2f of theirs", s.Limit)
	case s.LimitMS > 0:
		return fmt.Sprintf("at most %.0f ms", s.LimitMS)
	}
	return "none"
}

// Heading writes the top of a summary.
func Heading(w io.Writer, m Machine) {
	fmt.Fprintf(w, "# Against %s\n\n%s, %d CPUs (%s), Linux %s, %s.\n\n", m.MPI, m.Date, m.CPUs, m.CPU, m.Kernel, m.Version)
	fmt.Fprintf(w, "float32, sum, out of place, %d runs of each side in turn. Times are microseconds: the slowest\n"+
		"rank's median over iterations (method: package bench), then the median over the runs. A ratio is ours over\n"+
		"theirs, below 1 is faster; low and high are the extremes over pairs of neighboring runs.\n", m.Repetitions)
}

// Section writes one setting.
func Section(w io.Writer, s Setting, lines []Line) {
	fmt.Fprintf(w, "\n## %s\n\n| collective | size | ours µs | theirs µs | ratio | low | high |\n|---|---:|---:|---:|---:|---:|---:|\n", s.Name)
	for _, l := range lines {
		fmt.Fprintf(w, "| %s | %s | %.2f | %.2f | %.3f | %.3f | %.3f |\n", l.Collective, sizes.Format(l.Bytes), l.Ours, l.Theirs, l.Ratio, l.Low, l.High)
	}
	fmt.Fprintf(w, "\nGeometric mean: **%.3f**", Mean(lines, ""))
	for _, c := range Collectives {
		fmt.Fprintf(w, ", %s %.3f", c, Mean(lines, c))
	}
	fmt.Fprintf(w, ". Promised: at most %.2f", s.Mean)
	if s.Worst > 0 {
		fmt.Fprintf(w, ", no size above %.2f", s.Worst)
	}
	fmt.Fprintln(w, ".")
	verdict(w, s.Verdict(lines))
}

func verdict(w io.Writer, broken []string) {
	if len(broken) == 0 {
		fmt.Fprint(w, "\nKept.\n")
		return
	}
	fmt.Fprint(w, "\nNot kept:\n\n")
	for _, b := range broken {
		fmt.Fprintf(w, "- %s\n", b)
	}
}

// Starts writes the start-up times.
func Starts(w io.Writer, all []Start) {
	fmt.Fprint(w, "\n## Start-up\n\n| | ours ms | theirs ms | ratio | promised | |\n|---|---:|---:|---:|---|---|\n")
	for _, s := range all {
		kept := "kept"
		if s.Broken() {
			kept = "not kept"
		}
		fmt.Fprintf(w, "| %s | %.1f | %.1f | %.3f | %s | %s |\n", s.Name, s.Ours, s.Theirs, s.Ratio, s.promise(), kept)
	}
}
