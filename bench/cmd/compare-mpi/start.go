package main

import (
	"bufio"
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"time"

	"github.com/mscclpp-go/mscclpp/bench/compare"
	"github.com/mscclpp-go/mscclpp/bench/stats"
)

// startRuns is how often each start is timed: starts are short and vary a lot.
const startRuns = 21

// starts compares how long it takes to launch processes that do nothing, and to get
// from the command to the end of every rank's first all-reduce.
func (j job) starts(ctx context.Context) ([]compare.Start, error) {
	fmt.Fprintln(j.log, "start-up")
	launch, err := inTurn(
		func() (float64, error) { return duration(ctx, []string{j.launcher, "-n", "8", "true"}) },
		func() (float64, error) { return duration(ctx, append(j.mpi(8), "true")) })
	if err != nil {
		return nil, err
	}
	launch.Name, launch.Limit = "8 processes that do nothing", 0.25
	all := []compare.Start{launch}
	if j.first == "" {
		return all, nil
	}
	first, err := inTurn(
		func() (float64, error) { return untilLines(ctx, []string{j.launcher, "-n", "4", j.first}, 4) },
		func() (float64, error) { return untilLines(ctx, append(j.mpi(4), j.peer, "first"), 4) })
	if err != nil {
		return nil, err
	}
	first.Name, first.LimitMS = "first all-reduce of 4 ranks", 150
	return append(all, first), nil
}

func inTurn(ours, theirs func() (float64, error)) (compare.Start, error) {
	var o, t []float64
	for range startRuns {
		for _, side := range []struct {
			run func() (float64, error)
			all *[]float64
		}{{ours, &o}, {theirs, &t}} {
			ms, err := side.run()
			if err != nil {
				return compare.Start{}, err
			}
			*side.all = append(*side.all, ms)
		}
	}
	s := compare.Start{Ours: stats.Median(o), Theirs: stats.Median(t)}
	s.Ratio = s.Ours / s.Theirs
	return s, nil
}

// duration is the time of a whole command, in milliseconds.
func duration(ctx context.Context, command []string) (float64, error) {
	start := time.Now()
	_, err := output(ctx, command)
	return ms(start), err
}

// untilLines is the time from the start of a command until it has printed the given
// number of lines, one from each rank.
func untilLines(ctx context.Context, command []string, lines int) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	stopGently(cmd)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	in := bufio.NewScanner(out)
	seen, took := 0, 0.0
	for in.Scan() {
		if seen++; seen == lines {
			took = ms(start)
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

func ms(start time.Time) float64 { return float64(time.Since(start).Microseconds()) / 1e3 }
