// Command compare-tcp compares the tcp transport with a pair of C processes that send
// the same bytes over as many streams, and an all-reduce of two ranks with that of an
// MPI implementation over TCP. The sides run in turn. scripts/bench-tcp.sh builds what
// it needs, and makes the network namespaces. With -summarize it writes the summary alone,
// again from the raw output.
//
// Its own ranks are this program as well: compare-tcp put|pingpong BYTES:COUNT …
package main

import (
	"context"
	"flag"
	"os"

	"github.com/mscclpp-go/mscclpp/bench/compare"
)

func main() {
	j := job{Runner: compare.Runner{Out: "docs/results/tcp", Repetitions: 11}}
	j.Flags()
	flag.StringVar(&j.self, "self", "bin/compare-tcp", "this program, as ranks are started")
	flag.StringVar(&j.peer, "peer", "bin/tcp-peer", "the program built from bench/tcp/peer.c")
	flag.StringVar(&j.mpirun, "mpirun", "", "the MPI launcher; empty: not compared")
	flag.StringVar(&j.mpiPeer, "mpi-peer", "bin/mpi-peer", "the program built from bench/mpi/peer.c")
	flag.StringVar(&j.first, "first", "", "network namespace of the first host; empty: no comparison over namespaces")
	flag.StringVar(&j.second, "second", "", "network namespace of the second host")
	flag.StringVar(&j.firstAddr, "first-address", "", "address of the first host")
	flag.StringVar(&j.secondAddr, "second-address", "", "address of the second host")
	flag.Parse()
	j.Main("compare-tcp", func(ctx context.Context) (int, error) {
		if what := flag.Arg(0); flag.NArg() > 1 && (what == "put" || what == "pingpong") {
			return 0, rank(ctx, os.Stdout, flag.Args())
		}
		return j.run(ctx)
	})
}
