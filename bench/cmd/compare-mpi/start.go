package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/mscclpp-go/mscclpp/bench/compare"
)

// startRuns is how often each start is timed: starts are short and vary a lot.
const startRuns = 21

const (
	startFile      = "start-up" // of raw output
	firstAllReduce = "first-allreduce"
)

// start is a comparison of start-up times.
type start struct {
	name, text   string
	ours, theirs func(ctx context.Context) (ms float64, err error)
	ratio        float64 // target for the ratio; 0: none
	ms           float64 // target for our time; 0: none
}

// starts are compared: launching processes that do nothing, and getting from the command
// to the end of every rank's first all-reduce.
func (j *job) starts() []start {
	return []start{{name: "launch", text: "launch 8 processes that do nothing", ratio: 0.25,
		ours: func(ctx context.Context) (float64, error) {
			return duration(ctx, []string{j.Launcher, "-n", "8", "true"})
		},
		theirs: func(ctx context.Context) (float64, error) { return duration(ctx, append(j.mpi(8), "true")) },
	}, {name: firstAllReduce, text: "launch 4 ranks and complete their first all-reduce", ms: 150,
		ours: func(ctx context.Context) (float64, error) {
			return untilLines(ctx, []string{j.Launcher, "-n", "4", j.first}, 4)
		},
		theirs: func(ctx context.Context) (float64, error) {
			return untilLines(ctx, append(j.mpi(4), j.peer, "first"), 4)
		},
	}}
}

// startTimes is a line of raw output: one start of each side.
type startTimes struct {
	Name   string  `json:"start"`
	Run    int     `json:"run"`
	Ours   float64 `json:"ours_ms"`
	Theirs float64 `json:"theirs_ms"`
}

func (j *job) measureStarts(ctx context.Context) error {
	fmt.Fprintln(j.Log, "start-up")
	once := *j
	once.Repetitions = 1 // of all starts
	return once.Repeat(startFile, func(_ int, raw io.Writer) error {
		for _, s := range j.starts() {
			for run := range j.facts.Starts[s.name] {
				ours, err := s.ours(ctx)
				if err != nil {
					return err
				}
				theirs, err := s.theirs(ctx)
				if err != nil {
					return err
				}
				if err := json.NewEncoder(raw).Encode(startTimes{s.name, run + 1, ours, theirs}); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// startRun identifies the run of a line of raw output.
type startRun struct {
	name string
	run  int
}

func (s startRun) String() string { return fmt.Sprintf("start-up %q, run %d", s.name, s.run) }

// readStarts compares the starts that were measured, in the order of starts.
func (j *job) readStarts() (all []start, lines []compare.Line, err error) {
	var want []startRun
	for _, s := range j.starts() {
		if n := j.facts.Starts[s.name]; n > 0 {
			all = append(all, s)
			for run := range n {
				want = append(want, startRun{s.name, run + 1})
			}
		}
	}
	if len(all) != len(j.facts.Starts) {
		return nil, nil, fmt.Errorf("machine.json lists start_up_runs of %v: expected launch and first-allreduce at most", j.facts.Starts)
	}
	if len(all) == 0 {
		return nil, nil, nil
	}
	path, text, err := j.Raw(startFile)
	if err != nil {
		return nil, nil, err
	}
	ours, theirs := map[string][]float64{}, map[string][]float64{}
	if err := compare.Lines(path, text, want, func(t startTimes) (startRun, error) {
		ours[t.Name], theirs[t.Name] = append(ours[t.Name], t.Ours), append(theirs[t.Name], t.Theirs)
		if !(t.Ours > 0 && t.Theirs > 0) {
			return startRun{t.Name, t.Run}, fmt.Errorf("times of %v and %v ms: expected more than 0", t.Ours, t.Theirs)
		}
		return startRun{t.Name, t.Run}, nil
	}); err != nil {
		return nil, nil, err
	}
	for _, s := range all {
		l, err := compare.Pair(compare.Key{Collective: s.name}, ours[s.name], theirs[s.name])
		if err != nil {
			return nil, nil, err
		}
		lines = append(lines, l)
	}
	return all, lines, nil
}

// duration is the time of a whole command, in milliseconds.
func duration(ctx context.Context, command []string) (float64, error) {
	began := time.Now()
	_, err := compare.Output(ctx, command)
	return ms(began), err
}

// untilLines is the time from the start of a command until it has printed the given
// number of lines, one from each rank.
func untilLines(ctx context.Context, command []string, lines int) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := compare.Command(ctx, command)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	in := bufio.NewScanner(out)
	seen, took := 0, 0.0
	for in.Scan() {
		if seen++; seen == lines {
			took = ms(began)
		}
	}
	if err := cmd.Wait(); err != nil {
		return 0, fmt.Errorf("%s: %w", command, err)
	}
	if seen < lines {
		return 0, fmt.Errorf("%s printed %s lines, expected %d", command, strconv.Itoa(seen), lines)
	}
	return took, in.Err()
}

func ms(began time.Time) float64 { return float64(time.Since(began).Microseconds()) / 1e3 }
