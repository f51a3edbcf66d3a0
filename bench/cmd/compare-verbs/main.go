// Command compare-verbs measures our port channels over verbs beside programs that use the
// same device without us: the loop in bench/verbs/peer.c, and perftest. Both sides run in
// turn, and raw output and a summary are written. scripts/rdma-bench.sh builds what it
// needs and runs it in a virtual machine with soft-RoCE.
//
// Its own ranks are this program as well: compare-verbs rank WHAT:BYTES:ITERATIONS …
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
	ctx, stop := signalContext()
	defer stop()
	if len(os.Args) > 1 && os.Args[1] == "rank" {
		if err := rank(ctx, os.Args[2:], os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "compare-verbs:", err)
			os.Exit(2)
		}
		return
	}
	j := job{log: os.Stderr}
	flag.StringVar(&j.launcher, "launcher", "bin/mscclpp-run", "our launcher")
	flag.StringVar(&j.peer, "peer", "bin/verbs-peer", "the program built from bench/verbs/peer.c")
	flag.StringVar(&j.device, "device", "rxe0", "RDMA device")
	flag.StringVar(&j.host, "host", "192.0.2.1", "this host's address, for perftest")
	flag.StringVar(&j.out, "out", "docs/results/verbs", "folder for raw output and summary")
	flag.IntVar(&j.repetitions, "repetitions", 5, "runs of each side")
	flag.IntVar(&j.iterations, "iterations", 1000, "round trips, signals or puts in each run")
	flag.StringVar(&j.load, "load", "", "load of the machine on which this one is emulated, for the summary")
	flag.Func("set", "KEY=VALUE of our configuration; may be repeated", func(text string) error {
		j.settings = append(j.settings, text)
		return nil
	})
	flag.Parse()
	var err error
	if j.self, err = os.Executable(); err == nil {
		err = j.run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare-verbs:", err)
		os.Exit(2)
	}
}

func signalContext() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
}
