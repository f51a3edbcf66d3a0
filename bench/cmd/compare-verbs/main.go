// Command compare-verbs measures our port channels over verbs beside programs that use the
// same device without us: the loop in bench/verbs/peer.c, and perftest. Both sides run in
// turn, and raw output and a summary are written. `make rdma-bench` builds what it needs
// and runs it in a virtual machine with soft-RoCE, by scripts/rdma-bench.sh. With -summarize
// it writes the summary alone, again from the raw output, on any machine.
//
// Its own ranks are this program as well: compare-verbs rank WHAT:BYTES:ITERATIONS …
// `compare-verbs count` compares by instructions what can be: see rdma-bench.sh --count.
package main

import (
	"context"
	"flag"
	"os"

	"github.com/mscclpp-go/mscclpp/bench/compare"
)

func main() {
	j := job{Runner: compare.Runner{Out: "docs/results/verbs", Repetitions: 15}}
	j.Flags()
	flag.StringVar(&j.peer, "peer", "bin/verbs-peer", "the program built from bench/verbs/peer.c")
	flag.StringVar(&j.device, "device", "rxe0", "RDMA device")
	flag.StringVar(&j.host, "host", "192.0.2.1", "this host's address, for perftest")
	flag.IntVar(&j.facts.Iterations, "iterations", 300, "round trips, signals or puts in each run")
	flag.StringVar(&j.facts.HostLoad, "load", "", "load average of the machine on which this one is emulated, and its processors, for the summary")
	flag.Func("set", "KEY=VALUE of our configuration; may be repeated", func(text string) error {
		j.facts.Settings = append(j.facts.Settings, text)
		return nil
	})
	flag.Parse()
	j.Main("compare-verbs", func(ctx context.Context) (_ int, err error) {
		if flag.Arg(0) == "rank" {
			return 0, rank(ctx, flag.Args()[1:], os.Stdout)
		}
		if j.self, err = os.Executable(); err != nil {
			return 0, err
		}
		if flag.Arg(0) == "count" {
			met, err := j.count(ctx, os.Stdout)
			if err == nil && !met {
				return 1, nil
			}
			return 0, err
		}
		_, err = j.run(ctx) // under emulation a missed target fails nothing
		return 0, err
	})
}
