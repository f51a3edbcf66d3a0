// Command compare-mpi runs our benchmark and that of an MPI implementation in turn
// and writes both sides' raw output and a summary. scripts/bench-mpi.sh builds what
// it needs.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	j := job{log: os.Stderr}
	flag.StringVar(&j.launcher, "launcher", "bin/mscclpp-run", "our launcher")
	flag.StringVar(&j.mpirun, "mpirun", "mpirun", "the MPI launcher")
	flag.StringVar(&j.peer, "peer", "", "the program built from bench/mpi/peer.c")
	flag.StringVar(&j.first, "first", "", "our program that prints a line for each rank after its first all-reduce; empty: not compared")
	flag.StringVar(&j.out, "out", "docs/results/mpi", "folder for raw output and summary")
	flag.IntVar(&j.repetitions, "repetitions", 5, "runs of each side")
	flag.StringVar(&j.sizes, "bytes", "1K:16M", "sizes of the larger buffer, by a factor of 4")
	only := flag.String("only", "", "one setting by name; empty: all")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	broken, err := j.run(ctx, *only)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "compare-mpi:", err)
		os.Exit(2)
	case broken > 0:
		fmt.Fprintf(os.Stderr, "compare-mpi: %d promises not kept, see %s/README.md\n", broken, j.out)
		os.Exit(1)
	}
}
