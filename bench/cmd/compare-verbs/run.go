package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/mscclpp-go/mscclpp/bench/stats"
)

// job is one comparison.
type job struct {
	self, launcher, peer, device, host, out string
	load                                    string   // of the machine below
	settings                                []string // of ours, KEY=VALUE
	repetitions, iterations                 int
	log                                     io.Writer
}

// source is a program that measures. Its key in comparisons is its name.
type source struct {
	name    string
	measure func(j job, ctx context.Context) (out []byte, all []sample, err error)
}

// What is measured. Those that are compared run right after each other.
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
	{hostIn, func(j job, ctx context.Context) ([]byte, []sample, error) { return j.ranks(ctx, "ib-host", true) }},
	{perftestAtom, job.atomicLatency},
	{otherIn, func(j job, ctx context.Context) ([]byte, []sample, error) { return j.ranks(ctx, "ib-nonatomic", true) }},
	{perftestBW, job.writeBandwidth},
	{hostApart, func(j job, ctx context.Context) ([]byte, []sample, error) { return j.ranks(ctx, "ib-host", false) }},
}

// run measures everything in turn, and writes what came out.
func (j job) run(ctx context.Context) error {
	if j.repetitions < 1 || j.iterations < 1 {
		return fmt.Errorf("%d repetitions of %d iterations: expected 1 or more", j.repetitions, j.iterations)
	}
	if err := os.MkdirAll(j.out, 0o755); err != nil {
		return err
	}
	raw, err := os.Create(filepath.Join(j.out, "raw.jsonl"))
	if err != nil {
		return err
	}
	defer raw.Close()
	lines := json.NewEncoder(raw)
	all := results{}
	for n := range j.repetitions {
		for _, s := range sources {
			fmt.Fprintf(j.log, "run %d of %d: %s\n", n+1, j.repetitions, s.name)
			_, samples, err := s.measure(j, ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			for _, m := range samples {
				if err := lines.Encode(recordOf(s.name, n+1, m)); err != nil {
					return err
				}
			}
			all.add(s.name, samples)
		}
	}
	if err := raw.Close(); err != nil {
		return err
	}
	if err := sound(all); err != nil {
		return err
	}
	var text bytes.Buffer
	if err := summary(&text, describe(j), all); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(j.out, "README.md"), text.Bytes(), 0o644)
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
	if m := all.median(bareLoop, keyOf(putSignal, latencySizes[0])); !(m <= busy) {
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
func (j job) bare(ctx context.Context) ([]byte, []sample, error) {
	args := []string{j.device}
	for _, b := range latencySizes {
		args = append(args, fmt.Sprintf("%d:%d", b, j.iterationsOf(b)))
	}
	return lines(output(ctx, j.peer, args...))
}

// ranks are two of ours, with the transport inside of them or beside them.
func (j job) ranks(ctx context.Context, transport string, embedded bool) ([]byte, []sample, error) {
	args := []string{"--standalone", "-n", "2", "--transports", transport}
	if embedded {
		args = append(args, "--set", "plugins.embed="+transport)
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
	args = append(args, point{signals, 0, j.iterations}.String(), point{completed, 0, j.iterations}.String(),
		point{bandwidth, streamBytes, j.iterationsOf(streamBytes) * 4}.String())
	return lines(output(ctx, j.launcher, args...))
}

func lines(out []byte, err error) ([]byte, []sample, error) {
	if err != nil {
		return nil, nil, err
	}
	var all []sample
	for scan := bufio.NewScanner(bytes.NewReader(out)); scan.Scan(); {
		var s sample
		if err := json.Unmarshal(scan.Bytes(), &s); err != nil {
			return nil, nil, fmt.Errorf("line %q: expected a JSON object: %w", scan.Text(), err)
		}
		if !(s.Value > 0) {
			return nil, nil, fmt.Errorf("line %q: expected a JSON object with a time", scan.Text())
		}
		all = append(all, s)
	}
	return out, all, nil
}

// results has for each source, kind and size one value a run.
type results map[string]map[string][]float64

func (r results) add(source string, all []sample) {
	if r[source] == nil {
		r[source] = map[string][]float64{}
	}
	for _, s := range all {
		k := keyOf(s.What, s.Bytes)
		r[source][k] = append(r[source][k], s.Value)
	}
}

func keyOf(what string, bytes uint64) string { return what + ":" + strconv.FormatUint(bytes, 10) }

func (r results) median(source, key string) float64 {
	return stats.Median(append([]float64(nil), r[source][key]...))
}

// limit is far above what any run takes: only a hang reaches it.
const limit = 3 * time.Minute

func output(ctx context.Context, name string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), errors.Join(err, context.Cause(ctx)), stdout.Bytes(), stderr.Bytes())
	}
	return stdout.Bytes(), nil
}
