package checks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/internal/ownfile"
	"github.com/mscclpp-go/mscclpp/internal/supervise"
)

// Runner runs stages.
type Runner struct {
	Root   string
	Out    io.Writer
	Proofs Proofs
	User   int // the user id of the run; 0 has all rights that every stage needs
}

// cannotRun is the exit status of what a machine or a user lacks something for. It counts
// as nothing for an ordinary user, and as a failure for root.
const cannotRun = 77

// Result counts stages by outcome.
type Result struct {
	Passed, Failed int
	Skipped        int // all that did not run
	Proven         int // of these, the ones that have passed before
}

// Run runs all stages, each lane beside the others, and prints a line for each, and
// in the end what has failed. Later stages run also if one has failed: one failure often
// explains another.
func (r *Runner) Run(ctx context.Context, stages []Stage) (Result, error) {
	logs, err := os.MkdirTemp("", "checks-")
	if err != nil {
		return Result{}, fmt.Errorf("checks: %w", err)
	}
	defer os.RemoveAll(logs)
	var (
		mu    sync.Mutex
		total Result
		bad   []failure
		ended = map[string]chan struct{}{}
		lanes = map[string][]Stage{}
		order []string
	)
	for _, s := range stages {
		ended[s.Name] = make(chan struct{})
		if lanes[s.Lane] == nil && s.Lane != last {
			order = append(order, s.Lane)
		}
		lanes[s.Lane] = append(lanes[s.Lane], s)
	}
	fmt.Fprintf(r.Out, "%-11s %8s %8s %8s\n", "stage", "seconds", "planned", "CPU")
	lane := func(name string) {
		for _, s := range lanes[name] {
			for _, a := range s.After {
				if done := ended[a]; done != nil {
					<-done
				}
			}
			o := r.stage(ctx, s, filepath.Join(logs, s.Name))
			mu.Lock()
			o.print(r.Out, s)
			switch {
			case o.skipped:
				total.Skipped++
				if o.proven {
					total.Proven++
				}
			case o.err != nil:
				total.Failed++
				bad = append(bad, failure{s.Name, o.err, o.log})
			default:
				total.Passed++
			}
			mu.Unlock()
			close(ended[s.Name])
		}
	}
	var wait sync.WaitGroup
	for _, name := range order {
		wait.Go(func() { lane(name) })
	}
	wait.Wait()
	lane(last)
	summarize(r.Out, bad)
	return total, nil
}

// outcome is how a stage ended.
type outcome struct {
	seconds, cpu float64
	skipped      bool
	proven       bool
	why          string // of a stage that was skipped
	err          error
	log          []byte // of a stage that has failed
}

// stage runs one, unless its inputs are proven.
func (r *Runner) stage(ctx context.Context, s Stage, log string) (o outcome) {
	begin := time.Now()
	defer func() { o.seconds = time.Since(begin).Seconds() }()
	// A stage may install the tools that its key names, so an error here is one only afterwards, and for
	// root: another user's stage passes without tools that it can do without, and proves nothing.
	when, key, unknown := r.Proofs.proven(ctx, s)
	if !when.IsZero() {
		return outcome{skipped: true, proven: true, why: "proven " + when.Format("2006-01-02 15:04")}
	}
	f, err := ownfile.Open(log, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return outcome{err: fmt.Errorf("log: %w", err)}
	}
	defer f.Close()
	within, cancel := context.WithTimeout(ctx, s.Bound)
	defer cancel()
	state, err := execute(within, r.Root, s.Run, f)
	if state != nil {
		o.cpu = (state.UserTime() + state.SystemTime()).Seconds()
	}
	text, readErr := os.ReadFile(log)
	switch {
	case err == nil:
		// Sources that have changed meanwhile are not those that have passed.
		_, after, err := r.Proofs.proven(ctx, s)
		switch {
		case err != nil && r.User == 0:
			o.err = err
		case err == nil && unknown == nil && after == key:
			o.err = r.Proofs.keep(s, after)
		}
	case within.Err() != nil && ctx.Err() == nil:
		o.err, o.log = fmt.Errorf("not done after %v", s.Bound), text
	case state != nil && state.ExitCode() == cannotRun && r.User != 0:
		o.skipped, o.why = true, string(lastLine(text))
	default:
		o.err, o.log = errors.Join(err, readErr), text
	}
	return o
}

// grace is how long a stage that was asked to end may take to do it.
const grace = 10 * time.Second

// execute runs a command of bash in a group of its own, which ends with it: when the
// command does, and when the context is done. The group is named by a descriptor, and
// the command is reaped last, so that the number of the group is nobody else's meanwhile.
func execute(ctx context.Context, dir, command string, out *os.File) (*os.ProcessState, error) {
	fd := -1
	c := exec.Command("bash", "-euo", "pipefail", "-c", command)
	c.Dir, c.Stdout, c.Stderr = dir, out, out
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, PidFD: &fd}
	if err := c.Start(); err != nil {
		return nil, err
	}
	child := supervise.NewChild(c.Process.Pid, fd)
	defer child.Close()
	ended := make(chan struct{})
	go func() {
		child.Wait(unix.WEXITED)
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		_ = child.Signal(syscall.SIGTERM) // it may end at this moment
		select {
		case <-ended:
		case <-time.After(grace):
		}
	}
	_ = child.Signal(syscall.SIGKILL) // to whatever is left of the group
	<-ended
	err := c.Wait()
	return c.ProcessState, err
}

func lastLine(text []byte) []byte {
	text = bytes.TrimSpace(text)
	return text[bytes.LastIndexByte(text, '\n')+1:]
}

func (o outcome) print(w io.Writer, s Stage) {
	verdict := "ok"
	switch {
	case o.skipped:
		verdict = o.why
	case o.err != nil:
		verdict = "FAIL: " + o.err.Error()
	}
	fmt.Fprintf(w, "%-11s %8.1f %8d %8.1f  %s\n", s.Name, o.seconds, s.Seconds, o.cpu, verdict)
	if o.err == nil {
		return
	}
	for _, l := range excerpt(o.log) {
		fmt.Fprintf(w, "    %s\n", l)
	}
}
