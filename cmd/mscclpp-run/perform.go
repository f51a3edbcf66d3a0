package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/metrics"
	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/sight"
	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/verb"
	"github.com/mscclpp-go/mscclpp/framework/config"
	"github.com/mscclpp-go/mscclpp/internal/socketdir"
	"github.com/mscclpp-go/mscclpp/launch"
)

// perform runs the job, or prints it, and runs it again after a failure as often as --max-restarts says. It is not run
// again when a signal has ended it. Ranks know by TORCHELASTIC_RESTART_COUNT, as under torchrun, how often.
func (a *app) perform(job launch.Job, cfg *config.Effective) error {
	signals := forJob()
	defer signal.Stop(signals) // the last messages may wait for a reader
	job.Signals = signals
	env, most := job.Env, a.maxRestarts()
	var numbers *metrics.Server
	defer func() {
		if err := numbers.Close(); err != nil {
			fmt.Fprintf(a.reports(), "mscclpp-run: the last metrics are missing: %v\n", err)
		}
	}()
	for turn := 0; ; turn++ {
		job.Env = env[:len(env):len(env)]
		if most > 0 {
			job.Env = append(job.Env, fmt.Sprintf("TORCHELASTIC_RESTART_COUNT=%d", turn), fmt.Sprintf("TORCHELASTIC_MAX_RESTARTS=%d", most))
		}
		if err := meet(&job, cfg.Bootstrap.Family); err != nil {
			return err
		}
		if a.opts.dryRun {
			defer hangUp(job.Listener)
			return a.printJob(&job)
		}
		var err error
		if turn == 0 {
			if numbers, err = sight.Metrics(cfg.Observe, a.reports()); err != nil {
				hangUp(job.Listener)
				return err
			}
		}
		watch, err := sight.Open(cfg.Observe, numbers, job.Place.Local, job.Place.Node, a.reports())
		if err != nil {
			hangUp(job.Listener)
			return err
		}
		job.Env, job.Failed = append(job.Env, watch.Env()...), watch.Failed
		result, err := launch.Run(context.Background(), job)
		watch.Close(result)
		hangUp(job.Listener)
		if err != nil || result.Code != 0 {
			socketdir.Sweep() // of ranks that were killed while they started a plugin
		}
		switch {
		case err != nil:
			return &verb.Error{Code: result.Code, Err: err}
		case result.Code == 0:
			return nil
		case result.Asked || turn >= most:
			return &verb.Error{Code: result.Code}
		}
		if job.Report != nil {
			fmt.Fprintf(a.stderr, "mscclpp-run: restart %d of %d\n", turn+1, most)
		}
		job.Guard, job.Listener = nil, nil
		job.Stdin = nil // the first ranks have read it
	}
}

// restarts refuses --max-restarts where ranks of other hosts would have to start again at the same time, or other
// processes of an engine.
func (a *app) restarts(place *launch.Place) error {
	if a.maxRestarts() > 0 && (place == nil || place.Nodes > 1) {
		return verb.Usage("--max-restarts is for a job on one host: expected all of its ranks to be started by this mscclpp-run")
	}
	return nil
}

func (a *app) maxRestarts() int {
	n, _ := a.flags.GetInt("max-restarts") // the flag is there
	return n
}

func hangUp(listener *os.File) {
	if listener != nil {
		_ = listener.Close()
	}
}
