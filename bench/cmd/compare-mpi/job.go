package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/mscclpp-go/mscclpp/bench"
	"github.com/mscclpp-go/mscclpp/bench/compare"
	"github.com/mscclpp-go/mscclpp/bench/sizes"
)

// job is one comparison.
type job struct {
	compare.Runner
	mpirun, peer, first, sizes string
}

// run returns how many promises are not kept.
func (j job) run(ctx context.Context, only string) (broken int, err error) {
	sweep, err := sizes.ParseRange(j.sizes, 4)
	if err != nil {
		return 0, err
	}
	return j.Summarize(func(summary io.Writer) (broken int, err error) {
		heading(summary, compare.Here(), firstLine(ctx, j.mpirun, "--version"), firstLine(ctx, j.Launcher, "--version"), j.Repetitions)
		found := false
		for _, s := range settings {
			if only != "" && only != s.name {
				continue
			}
			found = true
			lines, err := j.setting(ctx, s, sweep)
			if err != nil {
				return 0, fmt.Errorf("%s: %w", s.name, err)
			}
			broken += section(summary, s, lines)
		}
		if !found {
			return 0, fmt.Errorf("no setting %q", only)
		}
		all, err := j.starts(ctx)
		if err != nil {
			return 0, err
		}
		return broken + starts(summary, all), nil
	})
}

// setting runs both sides in turn.
func (j job) setting(ctx context.Context, s setting, sweep sizes.Range) ([]compare.Line, error) {
	var turns []compare.Turn
	for _, c := range collectives {
		turns = append(turns, compare.Turn{Name: s.name + " " + c, Ours: [][]string{j.ourCommand(s, c)}, Theirs: [][]string{j.theirCommand(s, c, sweep)}})
	}
	return j.InTurn(ctx, s.name, func() []compare.Turn { return turns }, s.sound, collectives...)
}

func (j job) ourCommand(s setting, collective string) []string {
	c := []string{j.Launcher, "-n", strconv.Itoa(s.ranks)}
	c = append(c, binding(s.ranks)...)
	c = append(c, "bench", collective, "--bytes", j.sizes, "--factor", "4", "--check", "--format", "json")
	if s.registered {
		c = append(c, "--registered")
	}
	return c
}

func (j job) theirCommand(s setting, collective string, sweep sizes.Range) []string {
	c := append(j.mpi(s.ranks), binding(s.ranks)...)
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
	if ranks <= runtime.NumCPU() {
		return []string{"--bind-to", "core"}
	}
	return []string{"--bind-to", "none"}
}

func firstLine(ctx context.Context, command ...string) string {
	out, err := compare.Output(ctx, command)
	if err != nil {
		return "unknown"
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(line)
}
