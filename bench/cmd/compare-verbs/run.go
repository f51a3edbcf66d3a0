package main

import (
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
	facts                    facts
}

// facts are what machine.json says.
type facts struct {
	compare.Machine
	HostLoad   string   `json:"host_load,omitempty"` // of the machine on which this one is emulated, at the start
	Settings   []string `json:"settings,omitempty"`  // of ours, KEY=VALUE
	Iterations int      `json:"iterations"`          // of the shortest operations, in a run
}

// source is a program that measures. Its key in comparisons is its name.
type source struct {
	name    string
	points  func(j *job) []point
	measure func(j *job, ctx context.Context, points []point) ([]sample, error)
}

// Measured configurations. Those that are compared run right after each other, mostly.
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
	{bareLoop, (*job).latencies, (*job).bare},
	{hostIn, (*job).everything, ranks("ib-host", true)},
	{perftestAtom, func(j *job) []point { return []point{{completed, 0, j.facts.Iterations}} }, (*job).atomicLatency},
	{perftestBW, func(j *job) []point { return []point{j.stream()} }, (*job).writeBandwidth},
	{otherIn, (*job).everything, ranks("ib-nonatomic", true)},
	// A process beside the rank takes some fifty times as long: there is no target for that, so
	// it gets fewer iterations.
	{hostApart, func(j *job) []point {
		few := *j
		few.facts.Iterations = max(1, j.facts.Iterations/5)
		return few.everything()
	}, ranks("ib-host", false)},
}

// latencies are of puts with their signals.
func (j *job) latencies() (all []point) {
	for _, b := range latencySizes {
		all = append(all, point{putSignal, b, j.iterationsOf(b)})
	}
	return all
}

func (j *job) stream() point {
	return point{bandwidth, streamBytes, j.iterationsOf(streamBytes) * 4}
}

// everything lists the points that ranks of ours measure.
func (j *job) everything() []point {
	n := j.facts.Iterations
	return append(j.latencies(), point{signals, 0, n}, point{completed, 0, n}, point{flushed, 0, n}, j.stream())
}

// iterationsOf makes long transfers take as long as short ones, about.
func (j *job) iterationsOf(bytes uint64) int {
	if bytes >= 64<<10 {
		return max(1, j.facts.Iterations/4)
	}
	return j.facts.Iterations
}

// run returns how many targets are missed.
func (j *job) run(ctx context.Context) (missed int, err error) {
	return j.Run(&j.facts, func() error { return j.measure(ctx) }, j.summary)
}

// measure runs all sources in turn. The raw output is kept also if it is refused later.
func (j *job) measure(ctx context.Context) error {
	if j.facts.Iterations < 1 {
		return fmt.Errorf("%d iterations: expected 1 or more", j.facts.Iterations)
	}
	if err := j.Begin(&j.facts); err != nil {
		return err
	}
	return j.Repeat(rawFile, func(run int, raw io.Writer) error {
		for _, s := range inTurn(run) {
			fmt.Fprintf(j.Log, "run %d of %d: %s\n", run, j.Repetitions, s.name)
			samples, err := s.measure(j, ctx, s.points(j))
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			for _, m := range samples {
				r := recordOf(s.name, run, m.point())
				r.Value = m.Value
				if err := json.NewEncoder(raw).Encode(r); err != nil {
					return err
				}
			}
		}
		return nil
	})
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

// rawFile has the raw output of all sources.
const rawFile = "raw"

// record is a line of raw output. Without its value it identifies the measurement.
type record struct {
	Source     string  `json:"source"`
	Run        int     `json:"run"`
	What       string  `json:"what"`
	Bytes      uint64  `json:"bytes"`
	Iterations int     `json:"iterations"`
	Value      float64 `json:"value"`
	Unit       string  `json:"unit"`
}

func recordOf(source string, run int, p point) record {
	r := record{Source: source, Run: run, What: p.what, Bytes: p.bytes, Iterations: p.iterations, Unit: "us"}
	if p.what == bandwidth {
		r.Unit = "MiB/s"
	}
	return r
}

func (r record) String() string {
	return fmt.Sprintf("run %d of %s, %s of %d bytes, %d iterations, in %s", r.Run, r.Source, r.What, r.Bytes, r.Iterations, r.Unit)
}

// read returns the raw output of all sources. That of a busy machine is refused.
func (j *job) read() (results, error) {
	path, text, err := j.Raw(rawFile)
	if err != nil {
		return nil, err
	}
	var want []record
	for run := 1; run <= j.facts.Repetitions; run++ {
		for _, s := range inTurn(run) {
			for _, p := range s.points(j) {
				want = append(want, recordOf(s.name, run, p))
			}
		}
	}
	all := results{}
	if err := compare.Lines(path, text, want, func(r record) (record, error) {
		all.add(r.Source, r.What, r.Bytes, r.Value)
		value := r.Value
		if r.Value = 0; !(value > 0) {
			return r, fmt.Errorf("a value of %v: expected more than 0", value)
		}
		return r, nil
	}); err != nil {
		return nil, err
	}
	if err := sound(all); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return all, nil
}

// busy is the time of the bare loop for 8 bytes on a machine that does something else at the
// same time: on its own it takes 20 to 40 µs, also under emulation.
const busy = 150.0

// sound refuses a comparison on such a machine: there both sides wait for a turn of the
// processor, one for more threads than the other.
func sound(all results) error {
	runs := all[bareLoop][keyOf(putSignal, latencySizes[0])]
	if m := stats.Median(slices.Clone(runs)); !(m <= busy) {
		return fmt.Errorf("comparison refused: the bare loop takes %.0f µs, more than %.0f: the machine is busy with something else", m, busy)
	}
	return nil
}

// bare is the loop in C.
func (j *job) bare(ctx context.Context, points []point) ([]sample, error) {
	args := []string{j.peer, j.device}
	for _, p := range points {
		args = append(args, fmt.Sprintf("%d:%d", p.bytes, p.iterations))
	}
	out, err := compare.Output(ctx, args)
	return lines(j.peer, points, out, err)
}

// ranks are two of ours, with the transport inside of them or beside them.
func ranks(transport string, embedded bool) func(*job, context.Context, []point) ([]sample, error) {
	return func(j *job, ctx context.Context, points []point) ([]sample, error) {
		args := []string{j.Launcher, "--standalone", "-n", "2", "--transports", transport}
		if embedded {
			args = append(args, "--set", "plugins.embed="+transport)
		}
		for _, text := range j.facts.Settings {
			// A job refuses settings of a transport that it does not have.
			if !strings.HasPrefix(text, "transport.") || strings.HasPrefix(text, "transport."+transport+".") {
				args = append(args, "--set", text)
			}
		}
		args = append(args, j.self, "rank")
		for _, p := range points {
			args = append(args, p.String())
		}
		out, err := compare.Output(ctx, args)
		return lines(j.Launcher, points, out, err)
	}
}

// lines are what a program prints, one for each point.
func lines(program string, points []point, out []byte, err error) (all []sample, _ error) {
	if err != nil {
		return nil, err
	}
	return all, compare.Lines(program, out, points, func(s sample) (point, error) {
		all = append(all, s)
		if !(s.Value > 0) {
			return s.point(), fmt.Errorf("a value of %v: expected more than 0", s.Value)
		}
		return s.point(), nil
	})
}

// results has for each source what it measured, one value a run.
type results map[string]compare.Times

func (r results) add(source, what string, bytes uint64, value float64) {
	if r[source] == nil {
		r[source] = compare.Times{}
	}
	k := keyOf(what, bytes)
	r[source][k] = append(r[source][k], value)
}

func keyOf(what string, bytes uint64) compare.Key {
	return compare.Key{Collective: what, Bytes: int64(bytes)}
}
