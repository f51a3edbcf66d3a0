package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/mscclpp-go/mscclpp/bench/compare"
	"github.com/mscclpp-go/mscclpp/bench/sizes"
)

// summary is made of the folder alone. It returns how many targets are missed.
func (j *job) summary(w io.Writer) (missed int, err error) {
	f := j.facts
	fmt.Fprintf(w, `# The tcp transport compared with C, and with MPI over TCP

%s.

Our program and the other one ran %d times each, in alternation; the runs are short. Three operations are compared, all
on one machine:

- *put*: two ranks send large numbers of puts in one direction. The ranks themselves drive the streams that their transport
  plugins opened. They are compared with two C processes (`+"`bench/tcp/peer.c`"+`) that send the same sizes over the same
  number of TCP streams, reuse buffers in the same way, and do nothing else.
- *pingpong*: the latency of a message between the same programs, as half of a round trip.
- *allreduce*: two ranks that are configured as two hosts, compared with MPI over TCP. Each rank and its plugin are bound
  to one core, because mpirun binds two ranks in this way.

How to read the tables:

- Times are per operation, in microseconds: medians over the runs.
- *Ratio* is the median of the paired ratios. A pair is a run of ours and the other program's run after it; its ratio is
  their time divided by our time. Above 1, ours is faster. *Lowest* and *highest* are the extremes of the paired ratios.
- Runs of one program vary by a factor of two, so a few runs show little.
- A load average far above 0 at the start means that other programs were using the processors. This slows down whoever
  polls, and then a ratio shows little.
- Congestion control: C and MPI use the system's default, %s. Our streams use %s within a host (option
  `+"`local_congestion`"+`). In the tables with *equal congestion control*, C uses %[4]s as well; the target is the same.

Each title names the file with the raw output. `+"`machine.json`"+` has the facts about the machine and the run. This file is
generated from both: `+"`go run ./bench/cmd/compare-tcp -summarize`"+`. The measurements are made by
`+"`scripts/bench-tcp.sh`"+`.
`, &f.Machine, f.Repetitions, f.Congestion, f.Ours)
	if f.Note != "" {
		fmt.Fprintf(w, "\n%s\n", f.Note)
	}
	return compare.Sections(&j.Runner, f.Tables, f.Repetitions, j.table, func(s setting, lines []compare.Line) int { return section(w, s, lines) })
}

// section writes one table, and returns how many of its targets are missed.
func section(w io.Writer, s setting, lines []compare.Line) int {
	fmt.Fprintf(w, "\n## %s (`%s.jsonl`)\n\n| operation | size | our time (µs) | their time (µs) | our throughput (GB/s) | ratio | lowest | highest |\n|---|---:|---:|---:|---:|---:|---:|---:|\n", s.text, s.name)
	var missed []string
	for _, l := range lines {
		fmt.Fprintf(w, "| %s | %s | %.2f | %.2f | %.3f | %.3f | %.3f | %.3f |\n", l.Collective, sizes.Format(l.Bytes), l.Ours, l.Theirs,
			float64(l.Bytes)/l.Ours*1e-3, 1/l.Paired, 1/l.High, 1/l.Low)
		if s.most > 0 && !(l.Paired <= s.most) {
			missed = append(missed, fmt.Sprintf("%s (%.2f)", sizes.Format(l.Bytes), 1/l.Paired))
		}
	}
	if s.most == 0 {
		fmt.Fprint(w, "\nThere is no target.\n")
		return 0
	}
	result := "Met"
	if len(missed) > 0 {
		result = "Missed at " + strings.Join(missed, ", ")
	}
	fmt.Fprintf(w, "\nTarget: a ratio of at least %.2f at every size. %s.\n", 1/s.most, result)
	return len(missed)
}
