package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/mscclpp-go/mscclpp/bench"
	"github.com/mscclpp-go/mscclpp/bench/compare"
	"github.com/mscclpp-go/mscclpp/bench/sizes"
)

// job is one comparison.
type job struct {
	launcher, mpirun, peer, first, out, sizes string
	repetitions                               int
	log                                       io.Writer
}

// run returns how many promises are not kept.
func (j job) run(ctx context.Context, only string) (broken int, err error) {
	sweep, err := sizes.ParseRange(j.sizes, 4)
	if err != nil {
		return 0, err
	}
	if j.repetitions < 1 {
		return 0, fmt.Errorf("%d repetitions: expected 1 or more", j.repetitions)
	}
	if err := os.MkdirAll(j.out, 0o755); err != nil {
		return 0, err
	}
	var summary bytes.Buffer
	compare.Heading(&summary, describe(ctx, j))
	found := false
	for _, s := range compare.Settings {
		if only != "" && only != s.Name {
			continue
		}
		found = true
		lines, err := j.setting(ctx, s, sweep)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", s.Name, err)
		}
		compare.Section(&summary, s, lines)
		broken += len(s.Verdict(lines))
	}
	if !found {
		return 0, fmt.Errorf("no setting %q", only)
	}
	starts, err := j.starts(ctx)
	if err != nil {
		return 0, err
	}
	for _, s := range starts {
		if s.Broken() {
			broken++
		}
	}
	compare.Starts(&summary, starts)
	return broken, os.WriteFile(filepath.Join(j.out, "README.md"), summary.Bytes(), 0o644)
}

// setting runs both sides in turn.
func (j job) setting(ctx context.Context, s compare.Setting, sweep sizes.Range) ([]compare.Line, error) {
	ours, theirs := compare.Times{}, compare.Times{}
	raw, err := os.Create(filepath.Join(j.out, s.Name+".jsonl"))
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	for run := range j.repetitions {
		for _, collective := range compare.Collectives {
			fmt.Fprintf(j.log, "%s %s, run %d of %d\n", s.Name, collective, run+1, j.repetitions)
			for _, side := range []struct {
				times   compare.Times
				command []string
			}{{ours, j.ourCommand(s, collective)}, {theirs, j.theirCommand(s, collective, sweep)}} {
				out, err := output(ctx, side.command)
				if err != nil {
					return nil, err
				}
				if _, err := raw.Write(portable(out)); err != nil {
					return nil, err
				}
				if err := side.times.Add(out); err != nil {
					return nil, fmt.Errorf("%s: %w", side.command, err)
				}
			}
		}
		if s.Ranks == 2 {
			if err := compare.Sound(theirs); err != nil {
				return nil, err
			}
		}
	}
	if err := raw.Close(); err != nil {
		return nil, err
	}
	return compare.Compare(ours, theirs)
}

func (j job) ourCommand(s compare.Setting, collective string) []string {
	c := []string{j.launcher, "-n", strconv.Itoa(s.Ranks)}
	c = append(c, binding(s.Ranks)...)
	c = append(c, "bench", collective, "--bytes", j.sizes, "--factor", "4", "--check", "--format", "json")
	if s.Registered {
		c = append(c, "--registered")
	}
	return c
}

func (j job) theirCommand(s compare.Setting, collective string, sweep sizes.Range) []string {
	c := append(j.mpi(s.Ranks), binding(s.Ranks)...)
	c = append(c, j.peer, collective)
	for _, bytes := range sweep.List() {
		p := bench.DefaultPlan(bytes)
		c = append(c, fmt.Sprintf("%d:%d:%d", bytes, p.Iterations, p.Calls))
	}
	return c
}

func (j job) mpi(ranks int) []string {
	c := []string{j.mpirun, "-n", strconv.Itoa(ranks), "--oversubscribe"}
	if os.Geteuid() == 0 {
		c = append(c, "--allow-run-as-root")
	}
	return c
}

// binding is the same on both sides: a core for each rank where there are enough,
// none otherwise.
func binding(ranks int) []string {
	if ranks <= cpus() {
		return []string{"--bind-to", "core"}
	}
	return []string{"--bind-to", "none"}
}

// limit is far above what any run takes: only a hang reaches it.
const limit = 10 * time.Minute

func output(ctx context.Context, command []string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	stopGently(cmd)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", command, errors.Join(err, context.Cause(ctx)), stderr.Bytes())
	}
	return stdout.Bytes(), nil
}

// stopGently lets a launcher end its ranks before it is killed.
func stopGently(cmd *exec.Cmd) {
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
}

// portable takes the folder in which this runs out of paths: results are published.
func portable(out []byte) []byte {
	here, err := os.Getwd()
	if err != nil {
		return out
	}
	return bytes.ReplaceAll(out, []byte(here+"/"), nil)
}
