// Command compare-mpi runs our benchmark and that of an MPI implementation in turn
// and writes both sides' raw output and a summary. scripts/bench-mpi.sh builds what
// it needs.
package main

import (
	"context"
	"flag"

	"github.com/mscclpp-go/mscclpp/bench/compare"
)

func main() {
	j := job{Runner: compare.Runner{Out: "docs/results/mpi", Repetitions: 5}}
	j.Flags()
	flag.StringVar(&j.mpirun, "mpirun", "mpirun", "the MPI launcher")
	flag.StringVar(&j.peer, "peer", "", "the program built from bench/mpi/peer.c")
	flag.StringVar(&j.first, "first", "", "our program that prints a line for each rank after its first all-reduce; empty: not compared")
	flag.StringVar(&j.sizes, "bytes", "1K:16M", "sizes of the larger buffer, by a factor of 4")
	only := flag.String("only", "", "one setting by name; empty: all")
	flag.Parse()
	j.Main("compare-mpi", func(ctx context.Context) (int, error) { return j.run(ctx, *only) })
}
