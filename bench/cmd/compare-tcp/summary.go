package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/mscclpp-go/mscclpp/bench/compare"
	"github.com/mscclpp-go/mscclpp/bench/sizes"
)

// heading writes the top of a summary.
func heading(w io.Writer, repetitions int) {
	m, load := compare.Here(), "unknown"
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		load, _, _ = strings.Cut(string(text), " ")
	}
	usual := "unknown"
	if text, err := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control"); err == nil {
		usual = strings.TrimSpace(string(text))
	}
	fmt.Fprintf(w, "# The tcp transport against C, and against MPI over TCP\n\n%s, %d CPUs, Linux %s, load %s at the start.\n\n", m.Date, m.CPUs, m.Kernel, load)
	fmt.Fprintf(w, `Made by scripts/bench-tcp.sh: %d short runs of each side in turn. Times are microseconds, the median over the runs. The ratio
of a pair of neighboring runs is theirs over ours, above 1 is faster; the table has the median over the pairs, and as low and
high the extremes. Runs of either side differ by a factor of two: a few of them say nothing. Puts and latencies:
two ranks, which drive the streams that their plugins have made, against two C processes (bench/tcp/peer.c) with as many
streams, the same buffers and nothing else to do. All-reduce: two ranks on one machine that take themselves for two hosts, each bound
to a core, with its plugin, since mpirun binds two ranks so.
Congestion control: C and MPI have what this system gives to all, %s; ours has %s within a host (option local_congestion). In
the tables called alike C has that as well, and what is promised is the same.
With a load far from 0 at the start others had the processors too: whoever polls suffers from that, and a ratio says little.
`, repetitions, usual, alike)
}

// section writes one table, and returns how many of its promises are not kept.
func section(w io.Writer, s setting, lines []compare.Line) (broken int) {
	fmt.Fprintf(w, "\n## %s\n\n| | size | ours µs | theirs µs | ours GB/s | ratio | low | high |\n|---|---:|---:|---:|---:|---:|---:|---:|\n", s.name)
	var late []string
	for _, l := range lines {
		fmt.Fprintf(w, "| %s | %s | %.2f | %.2f | %.3f | %.3f | %.3f | %.3f |\n", l.Collective, sizes.Format(l.Bytes), l.Ours, l.Theirs,
			float64(l.Bytes)/l.Ours*1e-3, 1/l.Paired, 1/l.High, 1/l.Low)
		if s.most > 0 && !(l.Paired <= s.most) {
			late = append(late, fmt.Sprintf("%s (%.2f)", sizes.Format(l.Bytes), 1/l.Paired))
		}
	}
	switch {
	case s.most == 0:
		fmt.Fprint(w, "\nNothing is promised.\n")
	case len(late) == 0:
		fmt.Fprintf(w, "\nPromised: at least %.2f at every size. Kept.\n", 1/s.most)
	default:
		fmt.Fprintf(w, "\nPromised: at least %.2f at every size. Not kept: %s.\n", 1/s.most, strings.Join(late, ", "))
	}
	return len(late)
}
