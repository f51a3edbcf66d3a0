// Command compare-tcp compares the tcp transport with a pair of C processes that send
// the same bytes over as many streams, and an all-reduce of two ranks with that of an
// MPI implementation over TCP. The sides run in turn. scripts/bench-tcp.sh builds what
// it needs, and makes the network namespaces.
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) > 2 && (os.Args[1] == "put" || os.Args[1] == "pingpong") {
		if err := rank(ctx, os.Stdout, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "compare-tcp:", err)
			os.Exit(1)
		}
		return
	}
	j := job{log: os.Stderr}
	flag.StringVar(&j.launcher, "launcher", "bin/mscclpp-run", "our launcher")
	flag.StringVar(&j.self, "self", "bin/compare-tcp", "this program, as ranks are started")
	flag.StringVar(&j.peer, "peer", "bin/tcp-peer", "the program built from bench/tcp/peer.c")
	flag.StringVar(&j.mpirun, "mpirun", "", "the MPI launcher; empty: not compared")
	flag.StringVar(&j.mpiPeer, "mpi-peer", "bin/mpi-peer", "the program built from bench/mpi/peer.c")
	flag.StringVar(&j.first, "first", "", "network namespace of the first host; empty: no comparison over namespaces")
	flag.StringVar(&j.second, "second", "", "network namespace of the second host")
	flag.StringVar(&j.firstAddr, "first-address", "", "address of the first host")
	flag.StringVar(&j.secondAddr, "second-address", "", "address of the second host")
	flag.StringVar(&j.out, "out", "docs/results/tcp", "folder for raw output and summary")
	flag.IntVar(&j.repetitions, "repetitions", 4, "runs of each side")
	flag.Parse()
	broken, err := j.run(ctx)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "compare-tcp:", err)
		os.Exit(2)
	case broken > 0:
		fmt.Fprintf(os.Stderr, "compare-tcp: %d promises not kept, see %s/README.md\n", broken, j.out)
		os.Exit(1)
	}
}
