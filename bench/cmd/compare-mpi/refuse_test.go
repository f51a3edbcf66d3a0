package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A peer that fell back to TCP is refused after its first run, and nothing that
// looks like a result of a comparison is left or replaced.
func TestRefusedComparisonLeavesNoSummary(t *testing.T) {
	j := newJob(t, "tcp")
	var log bytes.Buffer
	j.Log = &log
	summary := filepath.Join(j.Out, "README.md")
	if err := os.WriteFile(summary, []byte("of an earlier run"), 0o600); err != nil {
		t.Fatal(err)
	}
	missed, err := j.run(context.Background())
	if err == nil || !strings.Contains(err.Error(), "comparison refused: the peer takes 20.00 µs") || !strings.Contains(err.Error(), "does not use shared memory") {
		t.Errorf("%d missed, %v", missed, err)
	}
	if text, err := os.ReadFile(summary); err != nil || string(text) != "of an earlier run" {
		t.Errorf("the summary is %q, %v", text, err)
	}
	if strings.Contains(log.String(), "run 2 of") || strings.Contains(log.String(), "4-ranks") {
		t.Errorf("it went on after the refusal:\n%s", log.String())
	}
}

func TestOneSettingAlone(t *testing.T) {
	j := newJob(t, "good")
	j.first = "" // nothing to start
	only := settings[len(settings)-1].name
	j.only = only
	if _, err := j.run(context.Background()); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(j.Out, "*.jsonl"))
	if err != nil || len(files) != 2 || filepath.Base(files[0]) != only+".jsonl" || filepath.Base(files[1]) != "start-up.jsonl" {
		t.Errorf("%q, %v; want that of %s and of the start-up alone", files, err, only)
	}
	text, err := os.ReadFile(filepath.Join(j.Out, "README.md"))
	if err != nil || strings.Count(string(text), "\n## ") != 2 || strings.Contains(string(text), "first all-reduce") {
		t.Errorf("%v: want that setting and the starts:\n%s", err, text)
	}
}

func TestBadJobsAreRefusedAtOnce(t *testing.T) {
	for want, change := range map[string]func(*job){
		`size "lots"`:                        func(j *job) { j.facts.Sizes = "lots" },
		"larger than the second":             func(j *job) { j.facts.Sizes = "4K:1K" },
		"0 repetitions: expected 1 or more":  func(j *job) { j.Repetitions = 0 },
		"the end, after 0 of 2 results":      func(j *job) { j.Launcher = "true" },
		`executable file not found in $PATH`: func(j *job) { j.mpirun = "no-such-mpirun" },
	} {
		j := newJob(t, "good")
		j.only = settings[0].name
		change(j)
		if _, err := j.run(context.Background()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func script(dir, name, text string) string {
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
		panic(err)
	}
	return path
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
