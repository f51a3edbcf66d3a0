package compare

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Runner is what the commands that compare have in common.
type Runner struct {
	Launcher    string // of ours
	Out         string // folder for raw output and README.md
	Repetitions int
	Log         io.Writer
}

// Flags defines the flags of a runner. What it has already are their defaults.
func (r *Runner) Flags() {
	r.Log = os.Stderr
	flag.StringVar(&r.Launcher, "launcher", "bin/mscclpp-run", "our launcher")
	flag.StringVar(&r.Out, "out", r.Out, "folder for raw output and summary")
	flag.IntVar(&r.Repetitions, "repetitions", r.Repetitions, "runs of each side")
}

// Main runs a command until a signal, and ends the process: with 2 after an error, and
// with 1 if promises are broken.
func (r *Runner) Main(name string, run func(ctx context.Context) (broken int, err error)) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	broken, err := run(ctx)
	stop()
	switch {
	case err != nil:
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(2)
	case broken > 0:
		fmt.Fprintf(os.Stderr, "%s: %d promises not kept, see %s/README.md\n", name, broken, r.Out)
		os.Exit(1)
	}
}

// Summarize makes the folder, and in it README.md of what fill writes. That of an earlier
// comparison stays if fill fails.
func (r *Runner) Summarize(fill func(summary io.Writer) (broken int, err error)) (broken int, err error) {
	if r.Repetitions < 1 {
		return 0, fmt.Errorf("%d repetitions: expected 1 or more", r.Repetitions)
	}
	if err := os.MkdirAll(r.Out, 0o755); err != nil {
		return 0, err
	}
	var summary bytes.Buffer
	if broken, err = fill(&summary); err != nil {
		return 0, err
	}
	return broken, os.WriteFile(filepath.Join(r.Out, "README.md"), summary.Bytes(), 0o644)
}

// Repeat calls once for every repetition, from 1 on. What it writes is the raw output
// NAME.jsonl, and stays whatever happens.
func (r *Runner) Repeat(name string, once func(run int, raw io.Writer) error) error {
	raw, err := os.Create(filepath.Join(r.Out, name+".jsonl"))
	if err != nil {
		return err
	}
	defer raw.Close()
	for n := range r.Repetitions {
		if err := once(n+1, raw); err != nil {
			return err
		}
	}
	return raw.Close()
}

// Turn is what runs next to each other: commands of each side, which run at the same time.
type Turn struct {
	Name         string // for the log
	Ours, Theirs [][]string
}

// InTurn runs, in every repetition, the given turns, and compares what they print, in the
// given order of collectives. Unless it is nil, sound may refuse after each repetition what
// the other side has done so far.
func (r *Runner) InTurn(ctx context.Context, name string, turns func() []Turn, sound func(theirs Times) error, order ...string) ([]Line, error) {
	ours, theirs := Times{}, Times{}
	err := r.Repeat(name, func(run int, raw io.Writer) error {
		for _, t := range turns() {
			fmt.Fprintf(r.Log, "%s, run %d of %d\n", t.Name, run, r.Repetitions)
			if err := collect(ctx, raw, ours, t.Ours); err != nil {
				return err
			}
			if err := collect(ctx, raw, theirs, t.Theirs); err != nil {
				return err
			}
		}
		if sound == nil {
			return nil
		}
		return sound(theirs)
	})
	if err != nil {
		return nil, err
	}
	return Compare(ours, theirs, order...)
}

func collect(ctx context.Context, raw io.Writer, times Times, commands [][]string) error {
	out, err := Output(ctx, commands...)
	if err != nil {
		return err
	}
	if _, err := raw.Write(portable(out)); err != nil {
		return err
	}
	if err := times.Add(out); err != nil {
		return fmt.Errorf("%s: %w", commands[0], err)
	}
	return nil
}

// portable takes the folder in which this runs out of paths: results are published.
func portable(out []byte) []byte {
	here, err := os.Getwd()
	if err != nil {
		return out
	}
	return bytes.ReplaceAll(out, []byte(here+"/"), nil)
}

// limit is far above what any run takes: only a hang reaches it.
const limit = 10 * time.Minute

// Output runs commands at the same time, and returns what they print. If one fails, the
// others are ended.
func Output(ctx context.Context, commands ...[]string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	outs, failed := make([][]byte, len(commands)), make([]error, len(commands))
	var all sync.WaitGroup
	for i, command := range commands {
		all.Go(func() {
			var stdout, stderr bytes.Buffer
			cmd := Command(ctx, command)
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			if err := cmd.Run(); err != nil {
				failed[i] = fmt.Errorf("%s: %w\n%s%s", command, errors.Join(err, context.Cause(ctx)), stdout.Bytes(), stderr.Bytes())
				cancel()
			}
			outs[i] = stdout.Bytes()
		})
	}
	all.Wait()
	return slices.Concat(outs...), errors.Join(failed...)
}

// Command returns a command that gets time to end its ranks before it is killed.
func Command(ctx context.Context, command []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}
