package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/mscclpp-go/mscclpp/bench/compare"
	"github.com/mscclpp-go/mscclpp/bench/stats"
)

// job is one comparison.
type job struct {
	compare.Runner
	self, peer, device, host string
	load                     string   // of the machine below
	settings                 []string // of ours, KEY=VALUE
	iterations               int
}

// source is a program that measures. Its key in comparisons is its name.
type source struct {
	name    string
	measure func(j job, ctx context.Context) ([]sample, error)
}

// What is measured. Those that are compared run right after each other, mostly.
const (
	bareLoop     = "bare loop"
	perftestBW   = "ib_write_bw"
	perftestAtom = "ib_atomic_lat"
	hostIn       = "ib-host"
	hostApart    = "ib-host as plugin"
	otherIn      = "ib-nonatomic"
)

var latencySizes = []uint64{8, 4 << 10, 64 << 10}

const streamBytes = 64 << 10

var sources = []source{
	{bareLoop, job.bare},
	{hostIn, func(j job, ctx context.Context) ([]sample, error) { return j.ranks(ctx, "ib-host", true) }},
	{perftestAtom, job.atomicLatency},
	{perftestBW, job.writeBandwidth},
	{otherIn, func(j job, ctx context.Context) ([]sample, error) { return j.ranks(ctx, "ib-nonatomic", true) }},
	{hostApart, func(j job, ctx context.Context) ([]sample, error) { return j.ranks(ctx, "ib-host", false) }},
}

// run measures everything in turn, and writes what came out.
func (j job) run(ctx context.Context) error {
	if j.iterations < 1 {
		return fmt.Errorf("%d iterations: expected 1 or more", j.iterations)
	}
	_, err := j.Summarize(func(text io.Writer) (int, error) {
		all := results{}
		err := j.Repeat("raw", func(run int, raw io.Writer) error {
			for _, s := range inTurn(run) {
				fmt.Fprintf(j.Log, "run %d of %d: %s\n", run, j.Repetitions, s.name)
				samples, err := s.measure(j, ctx)
				if err != nil {
					return fmt.Errorf("%s: %w", s.name, err)
				}
				for _, m := range samples {
					if err := json.NewEncoder(raw).Encode(recordOf(s.name, run, m)); err != nil {
						return err
					}
				}
				all.add(s.name, samples)
			}
			return nil
		})
		if err == nil {
			err = sound(all)
		}
		if err != nil {
			return 0, err
		}
		return 0, summary(text, compare.Here(), j, all)
	})
	return err
}

// inTurn are the sources in the order of a run: every second one goes backwards, so that of
// two that are compared each is the first as often.
func inTurn(run int) []source {
	all := slices.Clone(sources)
	if run%2 == 0 {
		slices.Reverse(all)
	}
	return all
}

// record is a line of the raw results.
type record struct {
	Source     string  `json:"source"`
	Run        int     `json:"run"`
	What       string  `json:"what"`
	Bytes      uint64  `json:"bytes"`
	Iterations int     `json:"iterations"`
	Value      float64 `json:"value"`
	Unit       string  `json:"unit"`
}

func recordOf(source string, run int, s sample) record {
	r := record{Source: source, Run: run, What: s.What, Bytes: s.Bytes, Iterations: s.Iterations, Value: s.Value, Unit: "us"}
	if s.What == bandwidth {
		r.Unit = "MiB/s"
	}
	return r
}

// busy is what the bare loop takes for 8 bytes on a machine that does something else at the
// same time: on its own it takes 20 to 40 µs, also under emulation.
const busy = 150.0

// sound refuses a comparison on such a machine: there both sides wait for a turn of the
// processor, one for more threads than the other.
func sound(all results) error {
	runs := all[bareLoop][keyOf(putSignal, latencySizes[0])]
	if m := stats.Median(slices.Clone(runs)); !(m <= busy) {
		return fmt.Errorf("comparison refused: the bare loop takes %.0f µs, more than %.0f: the machine is busy with something else; raw output is kept", m, busy)
	}
	return nil
}

// iterationsOf makes long transfers take as long as short ones, about.
func (j job) iterationsOf(bytes uint64) int {
	if bytes >= 64<<10 {
		return max(1, j.iterations/4)
	}
	return j.iterations
}

// bare is the loop in C.
func (j job) bare(ctx context.Context) ([]sample, error) {
	args := []string{j.peer, j.device}
	for _, b := range latencySizes {
		args = append(args, fmt.Sprintf("%d:%d", b, j.iterationsOf(b)))
	}
	return lines(compare.Output(ctx, args))
}

// ranks are two of ours, with the transport inside of them or beside them, which takes some
// fifty times as long: nothing is promised of that, so it gets fewer iterations.
func (j job) ranks(ctx context.Context, transport string, embedded bool) ([]sample, error) {
	args := []string{j.Launcher, "--standalone", "-n", "2", "--transports", transport}
	if embedded {
		args = append(args, "--set", "plugins.embed="+transport)
	} else {
		j.iterations = max(1, j.iterations/5)
	}
	for _, text := range j.settings {
		// What is set for a transport that a job does not have is refused by it.
		if !strings.HasPrefix(text, "transport.") || strings.HasPrefix(text, "transport."+transport+".") {
			args = append(args, "--set", text)
		}
	}
	args = append(args, j.self, "rank")
	for _, b := range latencySizes {
		args = append(args, point{putSignal, b, j.iterationsOf(b)}.String())
	}
	args = append(args, point{signals, 0, j.iterations}.String(), point{completed, 0, j.iterations}.String(), point{flushed, 0, j.iterations}.String(),
		point{bandwidth, streamBytes, j.iterationsOf(streamBytes) * 4}.String())
	return lines(compare.Output(ctx, args))
}

func lines(out []byte, err error) ([]sample, error) {
	if err != nil {
		return nil, err
	}
	var all []sample
	for scan := bufio.NewScanner(bytes.NewReader(out)); scan.Scan(); {
		var s sample
		if err := json.Unmarshal(scan.Bytes(), &s); err != nil {
			return nil, fmt.Errorf("line %q: expected a JSON object: %w", scan.Text(), err)
		}
		if !(s.Value > 0) {
			return nil, fmt.Errorf("line %q: expected a JSON object with a time", scan.Text())
		}
		all = append(all, s)
	}
	return all, nil
}

// results has for each source what it measured, one value a run.
type results map[string]compare.Times

func (r results) add(source string, all []sample) {
	if r[source] == nil {
		r[source] = compare.Times{}
	}
	for _, s := range all {
		k := keyOf(s.What, s.Bytes)
		r[source][k] = append(r[source][k], s.Value)
	}
}

func keyOf(what string, bytes uint64) compare.Key {
	return compare.Key{Collective: what, Bytes: int64(bytes)}
}
