package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/bench/compare"
	"github.com/mscclpp-go/mscclpp/bench/compare/comparetest"
)

// The test binary is launcher and bare loop: it prints the mode.
func TestMain(m *testing.M) {
	comparetest.Main(m, func(mode string, _ []string) {
		if mode == "crash" {
			os.Stderr.WriteString("no such device\n")
			os.Exit(3)
		}
		os.Stdout.WriteString(mode)
	})
}

func newJob(t *testing.T, mode string) *job {
	r := comparetest.Runner(t, mode)
	return &job{Runner: r, self: "ours", peer: r.Launcher, device: "d", facts: facts{Iterations: 100}}
}

func TestPoints(t *testing.T) {
	for _, p := range []point{{putSignal, 8, 1000}, {signals, 0, 1}, {completed, 0, 7}, {flushed, 0, 7}, {bandwidth, room, 5}} {
		if got, err := parsePoint(p.String()); err != nil || got != p {
			t.Errorf("%s: %+v, %v", p, got, err)
		}
	}
	for _, text := range []string{"", "signal", "signal:0", "signal:0:0", "get:8:1", "bandwidth:2000000:1", "signal:-1:5"} {
		if p, err := parsePoint(text); err == nil || !strings.Contains(err.Error(), "expected") {
			t.Errorf("%q: %+v, %v", text, p, err)
		}
	}
}

// The text that perftest prints around the one line of numbers differs from version to version.
func TestColumn(t *testing.T) {
	const latency = ` TX depth        : 1
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
 8       100          16.29          94.27        24.19    	       23.36       	2.61   		94.27   		94.27
---------
`
	if v, err := column([]byte(latency), 9, 4); err != nil || v != 24.19 {
		t.Errorf("%v, %v: expected the median 24.19", v, err)
	}
	const stream = "#bytes ...\n 65536      100              121.13             81.74  		   0.001308\n"
	if v, err := column([]byte(stream), 5, 3); err != nil || v != 81.74 {
		t.Errorf("%v, %v: expected the average 81.74", v, err)
	}
	if _, err := column([]byte(stream), 9, 4); err == nil {
		t.Error("a line of another program is taken")
	}
}

func TestGIDIndex(t *testing.T) {
	port := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		path := filepath.Join(port, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("gid_attrs/types/0", "IB/RoCE v1\n")
	put("gids/0", "0000:0000:0000:0000:0000:ffff:c000:0201\n")
	if i, err := gidIndex(port); err == nil {
		t.Errorf("index %d of RoCE v1 is taken", i)
	}
	put("gid_attrs/types/1", "RoCE v2\n")
	put("gids/1", "fe80:0000:0000:0000:0000:0000:0000:0001\n")
	if i, err := gidIndex(port); err != nil || i != 1 {
		t.Errorf("%d, %v: expected the only one, 1", i, err)
	}
	put("gid_attrs/types/4", "RoCE v2\n") // there are gaps
	put("gids/4", "0000:0000:0000:0000:0000:ffff:c000:0201\n")
	if i, err := gidIndex(port); err != nil || i != 4 {
		t.Errorf("%d, %v: expected that of IPv4, 4", i, err)
	}
}

// measured makes the folder of a measurement in which each of ours is factor times theirs.
func measured(t *testing.T, factor float64, runs int) *job {
	t.Helper()
	j := newJob(t, "")
	j.Repetitions, j.facts.HostLoad, j.facts.Settings = runs, "0.5 with 2 processors", []string{"a.b=1", "c=2"}
	if err := j.Begin(&j.facts); err != nil {
		t.Fatal(err)
	}
	scale := map[string]float64{bareLoop: 1, perftestAtom: 1, perftestBW: 1, hostIn: factor, otherIn: factor * factor, hostApart: 9}
	if err := j.Repeat(rawFile, func(run int, raw io.Writer) error {
		for _, s := range inTurn(run) {
			for _, p := range s.points(j) {
				r := recordOf(s.name, run, p)
				r.Value = 100 * scale[s.name]
				if err := json.NewEncoder(raw).Encode(r); err != nil {
					return err
				}
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	j.facts, j.Again = facts{}, true
	return j
}

func TestSummary(t *testing.T) {
	for factor, want := range map[float64][]string{
		1.0: {"Result: all targets met.", "| 100.0 | 100.0 | 1.000 | 1.000 | 1.000 | 1.000 | 1.000 | at most 1.15 | met |"},
		1.5: {"Result: 5 targets missed.", "| 150.0 | 100.0 | 1.500 | 1.500 | 1.500 | 1.500 | 1.500 | at most 1.15 | **missed** |", "at least 0.95 | met"},
		0.5: {"Result: 1 target missed.", "at least 0.95 | **missed**"},
	} {
		j := measured(t, factor, 3)
		if _, err := j.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(j.Out, "README.md"))
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range append(want, "ran 3 times", "100 iterations", "| none | |", "Settings of our ranks: a.b=1, c=2.", "at the start: 0.5 with 2 processors.") {
			if !strings.Contains(string(text), w) {
				t.Errorf("factor %v: no %q in\n%s", factor, w, text)
			}
		}
	}
	slow := results{}
	slow.add(bareLoop, putSignal, 8, 4000)
	if err := sound(slow); err == nil || !strings.Contains(err.Error(), "comparison refused: the bare loop takes 4000 µs") {
		t.Errorf("a busy machine: %v", err)
	}
	if err := sound(results{}); err == nil {
		t.Error("a machine on which nothing was measured is sound")
	}
}

// Raw output is in the order of the runs, of what machine.json says.
func TestRawOutputOfAnotherRun(t *testing.T) {
	for want, change := range map[string]func(text string) string{
		"raw.jsonl:1: run 1 of bare loop, flush of 8 bytes, 100 iterations, in us: expected run 1 of bare loop, put+signal of 8 bytes": func(s string) string { return strings.Replace(s, putSignal, flushed, 1) },
		"raw.jsonl:1: run 1 of bare loop, put+signal of 8 bytes, 100 iterations, in us: a value of 0":                                  func(s string) string { return strings.Replace(s, `"value":100`, `"value":0`, 1) },
		`raw.jsonl:1: "{\"source\":\"bare loop\"`: func(s string) string { return strings.Replace(s, `"unit":"us"`, `"unit":5`, 1) },
		"raw.jsonl:79: ": func(s string) string { return s + "{}\n" },
	} {
		j := measured(t, 1, 3)
		file := filepath.Join(j.Out, "raw.jsonl")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(change(string(text))), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := j.run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, expected %q", err, want)
		}
	}
}

func TestCommittedSummary(t *testing.T) {
	comparetest.Committed(t, "verbs", func(r compare.Runner) error {
		_, err := (&job{Runner: r}).run(t.Context())
		return err
	})
}

// The best run is the shortest, or that with the most bytes.
func TestBest(t *testing.T) {
	for unit, want := range map[string]float64{"µs": 1, "MiB/s": 3} {
		if got := (comparison{unit: unit}).best([]float64{2, 1, 3}); got != want {
			t.Errorf("%v is the best of 2, 1 and 3 %s: expected %v", got, unit, want)
		}
	}
}

// Both sides have runs that take longer by a half, as often and each for itself. The ratio of
// pairs is that of runs of the same kind, where one of medians depends on which kind is one more.
func TestPairs(t *testing.T) {
	var ours, theirs []float64
	for i, long := range []string{"--", "o-", "-t", "ot", "o-", "-t", "--", "ot", "--", "o-", "-t"} {
		a, b := 11+float64(i)/100, 10+float64(i)/110
		if long[0] == 'o' {
			a *= 1.5
		}
		if long[1] == 't' {
			b *= 1.5
		}
		ours, theirs = append(ours, a), append(theirs, b)
	}
	pair := func() compare.Line {
		l, err := compare.Pair(keyOf(signals, 0), ours, theirs)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	if got := pair().Paired; got < 1.09 || got > 1.11 {
		t.Errorf("the ratio of pairs is %v, expected 1.1", got)
	}
	ours[0] *= 1.5 // now six of eleven of ours are long, and five of theirs
	l := pair()
	if l.Ratio < 1.6 {
		t.Errorf("the ratio of medians is %v: expected that of a long run and a short one", l.Ratio)
	}
	if l.Paired < 1.09 || l.Paired > 1.11 {
		t.Errorf("the ratio of pairs is %v with one long run more, expected 1.1", l.Paired)
	}
}

// Of two that are compared each runs first as often, and none is left out.
func TestInTurn(t *testing.T) {
	first := map[string]int{}
	for run := 1; run <= 6; run++ {
		all := inTurn(run)
		first[all[0].name]++
		seen := map[string]bool{}
		for _, s := range all {
			seen[s.name] = true
		}
		if len(all) != len(sources) || len(seen) != len(sources) {
			t.Errorf("run %d has %d sources of %d names, expected %d", run, len(all), len(seen), len(sources))
		}
	}
	if len(first) != 2 || first[sources[0].name] != 3 {
		t.Errorf("the first of each run: %v", first)
	}
}

// Raw results say what they are, with their unit.
func TestRecords(t *testing.T) {
	for unit, p := range map[string]point{"us": {signals, 0, 7}, "MiB/s": {bandwidth, 64, 7}} {
		if got := recordOf("x", 2, p); got != (record{"x", 2, p.what, p.bytes, 7, 0, unit}) {
			t.Errorf("%+v: expected unit %s", got, unit)
		}
	}
}

// A side that fails, or says nothing that can be read, ends the comparison, and is named.
func TestFailures(t *testing.T) {
	for mode, want := range map[string]string{
		"crash":      "no such device",
		"good day\n": "expected a JSON object, put+signal:8:100",
		`{"us":0}`:   "expected put+signal:8:100",
		`{"what":"put+signal","bytes":8,"iterations":100,"us":0}`:   "a value of 0: expected more than 0",
		`{"what":"put+signal","bytes":8,"iterations":100,"us":1.5}`: "after 1 of 3 results: expected put+signal:4096:100",
	} {
		if _, err := newJob(t, mode).run(t.Context()); err == nil || !strings.Contains(err.Error(), bareLoop) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", mode, err, want)
		}
	}
	if _, err := (&job{}).run(t.Context()); err == nil || !strings.Contains(err.Error(), "0 iterations: expected 1 or more") {
		t.Errorf("no iterations: %v", err)
	}
}

// Both sides get as many iterations, and fewer of what takes longer.
func TestCommandsAreAlike(t *testing.T) {
	j := newJob(t, `{"what":"put+signal","bytes":8,"iterations":3,"us":1.5}`+"\n")
	for name, measure := range map[string]func(*job, context.Context, []point) ([]sample, error){"bare": (*job).bare, "ranks": ranks("ib-host", true)} {
		got, err := measure(j, t.Context(), []point{{putSignal, 8, 3}})
		if err != nil || len(got) != 1 || got[0] != (sample{putSignal, 8, 3, 1.5}) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for i, want := range []int{100, 100, 100, 100, 100, 20} {
		if p := sources[i].points(j)[0]; i != 3 && p.iterations != want || i == 3 && p != (point{bandwidth, streamBytes, 100}) {
			t.Errorf("%s: %s, expected %d iterations", sources[i].name, p, want)
		}
	}
	if n := j.iterationsOf(64 << 10); n != 25 {
		t.Errorf("%d iterations of 64 KiB", n)
	}
	j.facts.Iterations = 1
	if n := j.iterationsOf(64 << 10); n != 1 {
		t.Errorf("%d iterations, expected at least 1", n)
	}
}
