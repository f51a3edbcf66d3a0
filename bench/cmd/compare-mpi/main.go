// Command compare-mpi runs our benchmark and that of an MPI implementation in turn
// and writes both sides' raw output and a summary. scripts/bench-mpi.sh builds what
// it needs. With -summarize it writes the summary alone, again from the raw output.
package main

import (
	"flag"

	"github.com/mscclpp-go/mscclpp/bench/compare"
)

func main() {
	j := job{Runner: compare.Runner{Out: "docs/results/mpi", Repetitions: 5}}
	j.Flags()
	flag.StringVar(&j.mpirun, "mpirun", "mpirun", "the MPI launcher")
	flag.StringVar(&j.peer, "peer", "", "the program built from bench/mpi/peer.c")
	flag.StringVar(&j.first, "first", "", "our program that prints a line for each rank after its first all-reduce; empty: not compared")
	flag.StringVar(&j.facts.Sizes, "bytes", "1K:16M", "sizes of the larger buffer, by a factor of 4")
	flag.StringVar(&j.only, "only", "", "one setting by name; empty: all")
	flag.Parse()
	j.Main("compare-mpi", j.run)
}
