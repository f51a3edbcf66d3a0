package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/bench/compare"
	"github.com/mscclpp-go/mscclpp/bench/compare/comparetest"
	"github.com/mscclpp-go/mscclpp/internal/processors"
)

// The test binary is both sides: what it prints depends on its arguments.
func TestMain(m *testing.M) { comparetest.Main(m, fake) }

func fake(mode string, args []string) {
	at := func(a string) int { return slices.Index(args, a) }
	if at("--node-rank") >= 0 && args[at("--node-rank")+1] == "1" {
		return // the second host prints nothing
	}
	us, transport, points := 1.0, "tcp", args
	if at("peer") >= 0 || at("--mca") >= 0 {
		us, transport = 0.95, "c"
	}
	if mode == "slow" && us == 1 {
		us = 5
	}
	if mode == "crash" && at("pingpong") >= 0 {
		fmt.Fprintln(os.Stderr, "rank 1 was killed")
		os.Exit(3)
	}
	what := "put"
	for _, w := range []string{"pingpong", "allreduce"} {
		if at(w) >= 0 {
			what = w
		}
	}
	if what == "allreduce" && us > 0.96 {
		points = nil
		for _, k := range turnOf("loopback-allreduce") {
			points = append(points, fmt.Sprintf("%d:1", k.Bytes))
		}
		us -= 0.1
	}
	for _, a := range points {
		var bytes, count int
		if n, _ := fmt.Sscanf(a, "%d:%d", &bytes, &count); n == 2 {
			fmt.Printf(`{"collective":%q,"bytes":%d,"transport":%q,"time_us":%v,"errors":0}`+"\n", what, bytes, transport, us)
		}
	}
}

// turnOf are the points of a setting.
func turnOf(name string) []compare.Key {
	_, t, err := (&job{facts: facts{Sizes: ranges}}).table(name)
	if err != nil {
		panic(err)
	}
	return t.Turns[0]
}

func newJob(t *testing.T, mode string) *job {
	t.Helper()
	r := comparetest.Runner(t, mode)
	link := filepath.Join(t.TempDir(), "peer") // our side has another name
	if err := os.WriteFile(link, []byte("#!/bin/sh\nexec "+r.Launcher+" peer \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return &job{Runner: r, self: "self", peer: link, mpirun: r.Launcher, mpiPeer: "mpi"}
}

func TestBothSidesInTurn(t *testing.T) {
	j := newJob(t, "good")
	missed, err := j.run(context.Background())
	if err != nil || missed != 0 {
		t.Fatalf("%d missed, %v", missed, err)
	}
	summary, err := os.ReadFile(filepath.Join(j.Out, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"## Puts over 4 streams, loopback (`loopback-put-4.jsonl`)", "| put | 64K | 1.00 | 0.95 | 65.536 | 0.950 |", "at least 0.90 at every size. Met.", "(`loopback-latency.jsonl`)", "There is no target.", "| allreduce | 64M |"} {
		if !strings.Contains(string(summary), want) {
			t.Errorf("no %q in\n%s", want, summary)
		}
	}
	files, err := filepath.Glob(filepath.Join(j.Out, "*.jsonl"))
	if err != nil || len(files) != len(j.facts.Tables) || len(files) != 6 {
		t.Errorf("raw output %q, %v: expected that of %q", files, err, j.facts.Tables)
	}
}

func TestMissedTargetsAreCounted(t *testing.T) {
	j := newJob(t, "slow")
	missed, err := j.run(context.Background())
	if want := 4*len(turnOf("loopback-put-1")) + len(turnOf("loopback-allreduce")); err != nil || missed != want {
		t.Errorf("%d missed, %v; want %d", missed, err, want)
	}
	var text bytes.Buffer
	n := section(&text, setting{name: "x", most: 1 / 0.9}, []compare.Line{
		{Key: compare.Key{Collective: "put", Bytes: 4096}, Ours: 10, Theirs: 9.1, Paired: 10 / 9.1, Low: 1, High: 2},
		{Key: compare.Key{Collective: "put", Bytes: 8192}, Ours: 10, Theirs: 8, Paired: 10.0 / 8, Low: 1, High: 2},
	})
	if n != 1 || !strings.Contains(text.String(), "Missed at 8K (0.80).") {
		t.Errorf("%d missed in\n%s", n, text.String())
	}
}

func TestCommittedSummary(t *testing.T) {
	comparetest.Committed(t, "tcp", func(r compare.Runner) error {
		_, err := (&job{Runner: r}).run(t.Context())
		return err
	})
}

func TestFailuresAreNamed(t *testing.T) {
	j := newJob(t, "crash")
	_, err := j.run(context.Background())
	for _, want := range []string{"loopback-latency: ", "exit status 3", "rank 1 was killed"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	if _, err := os.Stat(filepath.Join(j.Out, "README.md")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a summary of a comparison that failed: %v", err)
	}
}

// Both sides move the same bytes over as many streams, in the same places.
func TestCommandsAreAlike(t *testing.T) {
	j := &job{Runner: compare.Runner{Launcher: "ours"}, self: "self", peer: "peer", mpirun: "mpirun", mpiPeer: "mpi", first: "a", second: "b", firstAddr: "10.0.0.1", secondAddr: "10.0.0.2"}
	if len(settings) != 11 {
		t.Errorf("%d settings, want put with 1 and 4 streams, also alike, and latency in two places, and an all-reduce", len(settings))
	}
	cores, err := processors.Allowed()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range settings {
		if !j.possible(s) || (&job{}).possible(s) != (s.what != "allreduce" && !s.spaces) {
			t.Errorf("%s: possible here %v, without MPI and namespaces %v", s.name, j.possible(s), (&job{}).possible(s))
		}
		turn := turnOf(s.name)
		hosts, theirs := j.ourCommands(s, turn), strings.Join(j.theirCommand(s, turn), " ")
		if len(hosts) != 2 {
			t.Fatalf("%s: %d hosts", s.name, len(hosts))
		}
		for host, c := range hosts {
			ours := strings.Join(c, " ")
			for _, want := range []string{fmt.Sprintf("--node-rank %d ", host), fmt.Sprintf("HOST_ID=host-%d ", host), fmt.Sprintf("STREAMS=%d ", s.streams)} {
				if !strings.Contains(ours, want) {
					t.Errorf("%s: no %q in %q", s.name, want, ours)
				}
			}
			if s.spaces != strings.HasPrefix(ours, "ip netns exec "+[]string{j.first, j.second}[host]) {
				t.Errorf("%s: %q", s.name, ours)
			}
			if bound := strings.Contains(ours, "taskset -c "); bound != (s.what == "allreduce" && len(cores) > 1) {
				t.Errorf("%s: bound to a core: %v in %q", s.name, bound, ours)
			}
			if s.what != "allreduce" && !strings.HasSuffix(ours, strings.Join(points(turn), " ")) {
				t.Errorf("%s: other points in %q", s.name, ours)
			}
		}
		if !strings.HasSuffix(theirs, strings.Join(points(turn), " ")) || s.spaces != strings.Contains(theirs, "-to /run/netns/b") {
			t.Errorf("%s: %q", s.name, theirs)
		}
		if s.alike != strings.Contains(theirs, " -congestion reno ") || s.alike != strings.Contains(strings.Join(hosts[1], " "), "LOCAL_CONGESTION=reno ") {
			t.Errorf("%s: alike: %v, in %q and %q", s.name, s.alike, theirs, hosts[1])
		}
		if s.what == "put" && !strings.Contains(theirs, fmt.Sprintf(" put %d ", s.streams)) {
			t.Errorf("%s: other streams in %q", s.name, theirs)
		}
	}
}

func TestParsePoint(t *testing.T) {
	if p, err := parsePoint("4096:12"); err != nil || p != (point{4096, 12}) || p.String() != "4096:12" {
		t.Errorf("%v, %v", p, err)
	}
	for _, bad := range []string{"", "8", "8:", ":8", "0:1", "1:0", "8:8:8", "-1:1", "2147483648:1"} {
		if _, err := parsePoint(bad); err == nil || !strings.Contains(err.Error(), "expected BYTES:COUNT") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
