package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/mscclpp-go/mscclpp/bench"
	"github.com/mscclpp-go/mscclpp/bench/compare"
	"github.com/mscclpp-go/mscclpp/bench/sizes"
)

// job is one comparison.
type job struct {
	compare.Runner
	mpirun, peer, first, only string
	facts                     facts
}

// facts are what machine.json says.
type facts struct {
	compare.Machine
	MPI     string         `json:"mpi"`
	Version string         `json:"mscclpp_run"`
	Sizes   string         `json:"bytes_by_factors_of_4"` // of the larger buffer
	Tables  []string       `json:"tables"`                // names of settings, with a file of raw output each
	Starts  map[string]int `json:"start_up_runs,omitempty"`
}

// run returns how many targets are missed.
func (j *job) run(ctx context.Context) (missed int, err error) {
	return j.Run(&j.facts, func() error { return j.measure(ctx) }, j.summary)
}

func (j *job) measure(ctx context.Context) error {
	if _, err := sizes.ParseRange(j.facts.Sizes, 4); err != nil {
		return err
	}
	for _, s := range settings {
		if j.only == "" || j.only == s.name {
			j.facts.Tables = append(j.facts.Tables, s.name)
		}
	}
	if len(j.facts.Tables) == 0 {
		return fmt.Errorf("no setting %q", j.only)
	}
	j.facts.MPI, j.facts.Version = firstLine(ctx, j.mpirun, "--version"), firstLine(ctx, j.Launcher, "--version")
	j.facts.Starts = map[string]int{}
	for _, s := range j.starts() {
		j.facts.Starts[s.name] = startRuns
	}
	if j.first == "" {
		delete(j.facts.Starts, firstAllReduce)
	}
	if err := j.Begin(&j.facts); err != nil {
		return err
	}
	for _, name := range j.facts.Tables {
		if err := j.setting(ctx, name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return j.measureStarts(ctx)
}

// setting runs both sides in turn.
func (j *job) setting(ctx context.Context, name string) error {
	s, t, err := j.table(name)
	if err != nil {
		return err
	}
	return j.InTurn(ctx, t, func(turn int) (ours, theirs [][]string) {
		return [][]string{j.ourCommand(s, collectives[turn])}, [][]string{j.theirCommand(s, t.Turns[turn])}
	})
}

// table returns what the raw output of a setting has: a turn for each collective.
func (j *job) table(name string) (setting, compare.Table, error) {
	i := slices.IndexFunc(settings, func(s setting) bool { return s.name == name })
	if i < 0 {
		return setting{}, compare.Table{}, fmt.Errorf("machine.json lists table %q: expected names of settings, such as %s", name, settings[0].name)
	}
	sweep, err := sizes.ParseRange(j.facts.Sizes, 4)
	if err != nil {
		return setting{}, compare.Table{}, fmt.Errorf("bytes_by_factors_of_4: %w", err)
	}
	t := compare.Table{Name: name, Sound: settings[i].sound}
	for _, c := range collectives {
		var turn []compare.Key
		for _, bytes := range sweep.List() {
			turn = append(turn, compare.Key{Collective: c, Bytes: bytes})
		}
		t.Turns = append(t.Turns, turn)
	}
	return settings[i], t, nil
}

func (j *job) ourCommand(s setting, collective string) []string {
	c := []string{j.Launcher, "-n", strconv.Itoa(s.ranks)}
	c = append(c, binding(s.ranks)...)
	c = append(c, "bench", collective, "--bytes", j.facts.Sizes, "--factor", "4", "--check", "--format", "json")
	if s.registered {
		c = append(c, "--registered")
	}
	return c
}

func (j *job) theirCommand(s setting, turn []compare.Key) []string {
	c := append(j.mpi(s.ranks), binding(s.ranks)...)
	c = append(c, j.peer, turn[0].Collective)
	for _, k := range turn {
		p := bench.DefaultPlan(k.Bytes)
		c = append(c, fmt.Sprintf("%d:%d:%d", k.Bytes, p.Iterations, p.Calls))
	}
	return c
}

func (j *job) mpi(ranks int) []string {
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
