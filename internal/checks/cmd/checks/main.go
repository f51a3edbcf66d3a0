// Command checks runs what a change has to pass: all stages of .ci/stages.yaml, or those
// that are named. The last line is "N passed, N failed, N skipped".
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/mscclpp-go/mscclpp/internal/checks"
	"github.com/mscclpp-go/mscclpp/internal/proven"
)

var errFailed = errors.New("stages have failed, or none has passed")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		if !errors.Is(err, errFailed) {
			fmt.Fprintln(os.Stderr, "checks:", err)
		}
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	list := flag.String("stages", ".ci/stages.yaml", "the list of stages")
	all := flag.Bool("all", false, "run also what is proven")
	flag.Parse()
	stages, err := checks.Read(*list)
	if err != nil {
		return err
	}
	if stages, err = checks.Select(stages, flag.Args()); err != nil {
		return err
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	if *all {
		if err := os.Setenv(proven.Everything, "1"); err != nil { // for stages that keep proofs of their own
			return err
		}
	}
	proofs := checks.Proofs{Root: root, Host: checks.Host}
	if cache, err := os.UserCacheDir(); err == nil && !*all {
		proofs.Dir = filepath.Join(cache, "mscclpp-go", "proven", "stages")
	}
	r := checks.Runner{Root: root, Out: os.Stdout, Proofs: proofs, User: os.Getuid()}
	total, err := r.Run(ctx, stages)
	if err != nil {
		return err
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", total.Passed, total.Failed, total.Skipped)
	if total.Failed > 0 || total.Passed+total.Proven == 0 {
		return errFailed
	}
	return nil
}
