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

	"github.com/mscclpp-go/mscclpp/internal/atomicfile"
	"github.com/mscclpp-go/mscclpp/internal/ownfile"
)

// Runner is the part that the commands that compare have in common.
type Runner struct {
	Launcher    string // of ours
	Out         string // folder for machine.json, raw output and README.md
	Repetitions int
	Again       bool // the summary of what is in the folder: nothing is measured
	Log         io.Writer
}

// Flags defines the flags of a runner. The runner's present values are their defaults.
func (r *Runner) Flags() {
	r.Log = os.Stderr
	flag.StringVar(&r.Launcher, "launcher", "bin/mscclpp-run", "our launcher")
	flag.StringVar(&r.Out, "out", r.Out, "folder for machine.json, raw output and summary")
	flag.IntVar(&r.Repetitions, "repetitions", r.Repetitions, "runs of each side")
	flag.BoolVar(&r.Again, "summarize", false, "measure nothing: write the summary again, from the folder's machine.json and raw output")
}

// Main runs a command until a signal, and ends the process: with 2 after an error, and
// with 1 if targets are missed.
func (r *Runner) Main(name string, run func(ctx context.Context) (missed int, err error)) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	missed, err := run(ctx)
	stop()
	switch {
	case err != nil:
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(2)
	case missed > 0:
		fmt.Fprintf(os.Stderr, "%s: %s, see %s/README.md\n", name, Missed(missed), r.Out)
		os.Exit(1)
	}
}

// Missed says how many targets are missed.
func Missed(n int) string {
	switch n {
	case 0:
		return "all targets met"
	case 1:
		return "1 target missed"
	}
	return fmt.Sprintf("%d targets missed", n)
}

// Run measures, unless only the summary is asked for, and writes the summary: README.md of
// what fill writes after the facts are read from the folder. measure calls Begin first. The
// README.md of an earlier comparison stays if anything fails.
func (r *Runner) Run(facts Facts, measure func() error, fill func(summary io.Writer) (missed int, err error)) (missed int, err error) {
	if !r.Again {
		if err := measure(); err != nil {
			return 0, err
		}
	}
	if err := r.facts(facts); err != nil {
		return 0, err
	}
	var summary bytes.Buffer
	if missed, err = fill(&summary); err != nil {
		return 0, err
	}
	return missed, atomicfile.Bytes(filepath.Join(r.Out, "README.md"), summary.Bytes())
}

// Sections reads the raw output of the named tables, and writes a section of the summary for
// each. It returns how many targets are missed.
func Sections[Setting any](r *Runner, names []string, repetitions int, table func(name string) (Setting, Table, error), write func(Setting, []Line) (missed int)) (missed int, err error) {
	for _, name := range names {
		s, t, err := table(name)
		if err != nil {
			return 0, err
		}
		lines, err := r.Read(t, repetitions)
		if err != nil {
			return 0, err
		}
		missed += write(s, lines)
	}
	return missed, nil
}

// Repeat calls once for every repetition, from 1 on. The lines that once writes are the raw
// output NAME.jsonl, and stay whatever happens.
func (r *Runner) Repeat(name string, once func(run int, raw io.Writer) error) error {
	raw, err := ownfile.Open(filepath.Join(r.Out, name+".jsonl"), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o666)
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

// InTurn measures a table: in every repetition, for each turn, the commands of our side,
// which run at the same time, and then those of the other side.
func (r *Runner) InTurn(ctx context.Context, t Table, commands func(turn int) (ours, theirs [][]string)) error {
	s := sides{Times{}, Times{}}
	return r.Repeat(t.Name, func(run int, raw io.Writer) error {
		for i, keys := range t.Turns {
			fmt.Fprintf(r.Log, "%s %s, run %d of %d\n", t.Name, keys[0].Collective, run, r.Repetitions)
			ours, theirs := commands(i)
			for side, commands := range [][][]string{ours, theirs} {
				out, err := Output(ctx, commands...)
				if err != nil {
					return err
				}
				if _, err := raw.Write(portable(out)); err != nil {
					return err
				}
				if err := s.add(fmt.Sprint(commands[0]), out, points(keys, side == 1)); err != nil {
					return err
				}
			}
		}
		if t.Sound == nil {
			return nil
		}
		return t.Sound(s.theirs)
	})
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
