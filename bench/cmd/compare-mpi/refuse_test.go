package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/bench/compare"
)

// A peer that fell back to TCP is refused after its first run, and nothing that
// looks like a result of a comparison is left or replaced.
func TestRefusedComparisonLeavesNoSummary(t *testing.T) {
	j := newJob(t, "tcp")
	var log bytes.Buffer
	j.log = &log
	summary := filepath.Join(j.out, "README.md")
	if err := os.WriteFile(summary, []byte("of an earlier run"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken, err := j.run(context.Background(), "")
	if err == nil || !strings.Contains(err.Error(), "comparison refused: the peer takes 20.00 µs") || !strings.Contains(err.Error(), "does not use shared memory") {
		t.Errorf("%d broken, %v", broken, err)
	}
	if text, err := os.ReadFile(summary); err != nil || string(text) != "of an earlier run" {
		t.Errorf("the summary is %q, %v", text, err)
	}
	if strings.Contains(log.String(), "run 2 of") || strings.Contains(log.String(), "4-ranks") {
		t.Errorf("it went on after the refusal:\n%s", log.String())
	}
}

// Both launchers say why they failed; that must reach who reads the error.
func TestFailureOfASideIsQuoted(t *testing.T) {
	_, err := newJob(t, "crash").run(context.Background(), "")
	for _, want := range []string{compare.Settings[0].Name + ": ", "allgather", "exit status 3", "rank 1 was killed"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
}

func TestOneSettingAlone(t *testing.T) {
	j := newJob(t, "good")
	j.first = "" // nothing to start
	only := compare.Settings[len(compare.Settings)-1].Name
	if _, err := j.run(context.Background(), only); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(j.out, "*.jsonl"))
	if err != nil || len(files) != 1 || filepath.Base(files[0]) != only+".jsonl" {
		t.Errorf("%q, %v; want that of %s alone", files, err, only)
	}
	text, err := os.ReadFile(filepath.Join(j.out, "README.md"))
	if err != nil || strings.Count(string(text), "\n## ") != 2 || strings.Contains(string(text), "first all-reduce") {
		t.Errorf("%v: want that setting and the starts:\n%s", err, text)
	}
}

func TestBadJobsAreRefusedAtOnce(t *testing.T) {
	for want, change := range map[string]func(*job){
		`size "lots"`:                          func(j *job) { j.sizes = "lots" },
		"larger than the second":               func(j *job) { j.sizes = "4K:1K" },
		"0 repetitions: expected 1 or more":    func(j *job) { j.repetitions = 0 },
		"not a directory":                      func(j *job) { j.out = filepath.Join(j.out, "file", "below") },
		"no such file":                         func(j *job) { j.launcher = "/nonexistent/mscclpp-run" },
		"no result in the output":              func(j *job) { j.launcher = "true" },
		"expected a JSON object a line":        func(j *job) { j.launcher = "echo" },
		`executable file not found in $PATH`:   func(j *job) { j.mpirun = "no-such-mpirun" },
		"we have 4 points, they 2":             func(j *job) { j.mpirun = halfOf(j.mpirun, j.out) },
		"was wrong, or not checked: {\"collec": func(j *job) { j.launcher = unchecked(j.out) },
	} {
		j := newJob(t, "good")
		if err := os.WriteFile(filepath.Join(j.out, "file"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		change(&j)
		if _, err := j.run(context.Background(), compare.Settings[0].Name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// halfOf is a launcher that loses every second result of another one.
func halfOf(launcher, dir string) string {
	return script(dir, "half", `"`+launcher+`" "$@" | grep -v '"bytes":4096'`)
}

// unchecked is a launcher whose benchmark verifies nothing.
func unchecked(dir string) string {
	return script(dir, "unchecked", `echo '{"collective":"allreduce","bytes":1024,"time_us":1,"errors":null}'`)
}

func script(dir, name, text string) string {
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
		panic(err)
	}
	return path
}

// A launcher is asked to end before it is killed, so that its ranks end with it.
func TestInterruptedSideMayCleanUp(t *testing.T) {
	dir := t.TempDir()
	mark := filepath.Join(dir, "cleaned")
	slow := script(dir, "slow", `trap 'touch "`+mark+`"; exit 0' TERM; echo started >"`+mark+`.started"; while :; do sleep 0.01; done`)
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("interrupted by the test")
	go func() {
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			if _, err := os.Stat(mark + ".started"); err == nil {
				break
			}
		}
		cancel(why)
	}()
	if _, err := output(ctx, []string{slow}); !errors.Is(err, why) {
		t.Errorf("%v, want %v", err, why)
	}
	if _, err := os.Stat(mark); err != nil {
		t.Errorf("it could not clean up: %v", err)
	}
}

func TestTimeUntilTheLastRanksLine(t *testing.T) {
	dir := t.TempDir()
	late := script(dir, "late", `echo 0; echo 1; sleep 0.2; echo 2; sleep 0.4`)
	start := time.Now()
	took, err := untilLines(context.Background(), []string{late}, 3)
	if whole := ms(start); err != nil || took < 200 || took > whole-100 {
		t.Errorf("%v ms, %v; want the third line's, after 200 and well before the end at %v", took, err, whole)
	}
	if _, err := untilLines(context.Background(), []string{late}, 4); err == nil || !strings.Contains(err.Error(), "printed 3 lines, expected 4") {
		t.Errorf("%v", err)
	}
	if _, err := untilLines(context.Background(), []string{script(dir, "fails", "echo 0; exit 4")}, 1); err == nil || !strings.Contains(err.Error(), "exit status 4") {
		t.Errorf("%v", err)
	}
}

// Results are published: where they were taken is nobody's business.
func TestPathsAreTakenOut(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	in := `{"transport_source":"plugin ` + here + `/bin/plugins/p (pid 1)","cwd":"` + here + `er/x"}`
	want := `{"transport_source":"plugin bin/plugins/p (pid 1)","cwd":"` + here + `er/x"}`
	if got := string(portable([]byte(in))); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestDescriptionNeverFails(t *testing.T) {
	m := describe(context.Background(), job{launcher: "/nonexistent/a", mpirun: "/nonexistent/b", repetitions: 3})
	if m.MPI != "unknown" || m.Version != "unknown" || m.CPUs != cpus() || m.Repetitions != 3 || m.Kernel == "" || m.CPU == "" {
		t.Errorf("%+v", m)
	}
	if _, err := time.Parse("2006-01-02", m.Date); err != nil {
		t.Errorf("date %q: %v", m.Date, err)
	}
}
