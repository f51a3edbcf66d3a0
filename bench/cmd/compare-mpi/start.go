package main

import (
	"bufio"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/mscclpp-go/mscclpp/bench/compare"
)

// startRuns is how often each start is timed: starts are short and vary a lot.
const startRuns = 21

// starts compares how long it takes to launch processes that do nothing, and to get
// from the command to the end of every rank's first all-reduce.
func (j job) starts(ctx context.Context) ([]start, error) {
	fmt.Fprintln(j.Log, "start-up")
	launch, err := inTurn(
		func() (float64, error) { return duration(ctx, []string{j.Launcher, "-n", "8", "true"}) },
		func() (float64, error) { return duration(ctx, append(j.mpi(8), "true")) })
	if err != nil {
		return nil, err
	}
	launch.name, launch.limit = "8 processes that do nothing", 0.25
	all := []start{launch}
	if j.first == "" {
		return all, nil
	}
	first, err := inTurn(
		func() (float64, error) { return untilLines(ctx, []string{j.Launcher, "-n", "4", j.first}, 4) },
		func() (float64, error) { return untilLines(ctx, append(j.mpi(4), j.peer, "first"), 4) })
	if err != nil {
		return nil, err
	}
	first.name, first.limitMS = "first all-reduce of 4 ranks", 150
	return append(all, first), nil
}

func inTurn(ours, theirs func() (float64, error)) (start, error) {
	var all [2][]float64
	for range startRuns {
		for i, run := range []func() (float64, error){ours, theirs} {
			ms, err := run()
			if err != nil {
				return start{}, err
			}
			all[i] = append(all[i], ms)
		}
	}
	l, err := compare.Pair(compare.Key{}, all[0], all[1])
	return start{ours: l.Ours, theirs: l.Theirs, ratio: l.Ratio}, err
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
