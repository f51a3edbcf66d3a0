package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/internal/outputpump"
)

// Run starts the ranks and returns when all of them have ended. The error says why the
// job could not be started; the result says how the program ended. When ctx ends, the
// ranks are ended as by SIGTERM.
func Run(ctx context.Context, j Job) (Result, error) {
	if err := j.validate(); err != nil {
		return Result{Code: 1, Rank: -1}, err
	}
	if j.Guard != nil {
		j.ID = j.Guard.id
		defer j.Guard.Dismiss()
	}
	if j.ID == "" {
		j.ID = newID()
	}
	if j.Report == nil {
		j.Report = io.Discard
	}
	report, to := outputpump.New(), j.Report
	j.Report = report.To(to)
	if j.OwnOrphans {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return Result{Code: 1, Rank: -1}, fmt.Errorf("become parent of orphans: %w", err)
		}
	}
	out, err := newOutputs(&j)
	if err != nil {
		return Result{Code: 1, Rank: -1}, err
	}
	w := &watch{job: &j, ends: make(chan os.Signal, 1), result: Result{Rank: -1}}
	signal.Notify(w.ends, syscall.SIGCHLD)
	defer signal.Stop(w.ends)
	w.guard = j.guard()
	err = w.start(out)
	w.alive = len(w.procs)
	if err != nil {
		w.asked, j.Grace = true, 0
		w.job.Report = io.Discard
		dead, cancel := context.WithCancel(ctx)
		cancel()
		w.loop(dead)
		w.clean()
		over, enough := outputpump.Patience(dead, w.endRequested, j.Signals, out.took)
		defer enough()
		out.drain(over)
		_ = report.Flush(over)
		return Result{Code: StartCode(err), Rank: -1}, err
	}
	w.loop(ctx)
	w.clean()
	w.result.Asked = w.endRequested
	over, enough := outputpump.Patience(ctx, w.endRequested, j.Signals, out.took)
	defer enough()
	out.drain(over)
	_ = report.Flush(over)
	if err := out.missing(); err != nil {
		outputpump.WriteLast(to, "mscclpp-run: output of ranks was lost: %v\n", err)
		if w.result.Code == 0 {
			w.result.Code = 1 // as if a rank had written it there itself
		}
	}
	return w.result, nil
}

// StartCode returns the exit code for a program that could not be started, as shells
// do.
func StartCode(err error) int {
	switch {
	case errors.Is(err, os.ErrNotExist):
		return 127
	case errors.Is(err, os.ErrPermission), errors.Is(err, syscall.ENOEXEC):
		return 126
	}
	return 1
}
