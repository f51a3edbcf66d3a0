package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/bench/compare"
	"github.com/mscclpp-go/mscclpp/bench/compare/comparetest"
)

// The test binary is both launchers: what it prints depends on its arguments.
func TestMain(m *testing.M) { comparetest.Main(m, fake) }

func fake(mode string, args []string) {
	has := func(a string) bool { return slices.Contains(args, a) }
	us, transport := 1.0, "shm"
	switch {
	case has("--version"):
		fmt.Println("fake 1.0\nmore")
		return
	case has("true"):
		return
	case has("first"):
		if fmt.Print("done\n", "done\n", "done\n"); mode != "silent" {
			fmt.Println("done")
		}
		return
	case has("peer"):
		us, transport = 2, "mpi"
	}
	if mode == "tcp" {
		us *= 10
	}
	if mode == "crash" && has("allgather") {
		fmt.Fprintln(os.Stderr, "rank 1 was killed")
		os.Exit(3)
	}
	collective := "allreduce"
	if has("allgather") {
		collective = "allgather"
	}
	for _, bytes := range []int{1024, 4096} {
		fmt.Printf(`{"collective":%q,"bytes":%d,"transport":%q,"time_us":%v,"errors":0}`+"\n", collective, bytes, transport, us)
	}
}

func newJob(t *testing.T, mode string) *job {
	r := comparetest.Runner(t, mode)
	return &job{Runner: r, mpirun: r.Launcher, peer: "peer", first: "first", facts: facts{Sizes: "1K:4K"}}
}

func TestBothSidesInTurn(t *testing.T) {
	j := newJob(t, "good")
	missed, err := j.run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	summary, err := os.ReadFile(filepath.Join(j.Out, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	// The fakes start equally fast, which misses the target for starting.
	if missed > 1 || strings.Count(string(summary), " Met.\n") != len(settings) {
		t.Errorf("%d targets missed in\n%s", missed, summary)
	}
	for _, want := range []string{", fake 1.0, fake 1.0.\n", "| allgather | 4K | 1.00 | 2.00 | 0.500 |", "| launch 4 ranks and complete their first all-reduce |"} {
		if !strings.Contains(string(summary), want) {
			t.Errorf("no %q in\n%s", want, summary)
		}
	}
	for _, s := range settings {
		raw, err := os.ReadFile(filepath.Join(j.Out, s.name+".jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		var times []string
		for line := range strings.Lines(string(raw)) {
			if strings.Contains(line, `"allreduce","bytes":1024`) {
				times = append(times, line[strings.Index(line, "time_us")+9:][:1])
			}
		}
		if got := strings.Join(times, ""); got != "121212" {
			t.Errorf("%s: order of the runs %q, want ours and theirs in turn", s.name, got)
		}
	}
}

func TestRefusals(t *testing.T) {
	for mode, want := range map[string]string{
		"tcp":    "refused",
		"crash":  settings[0].name + ": [",
		"silent": "printed 3 lines, expected 4",
	} {
		if _, err := newJob(t, mode).run(context.Background()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", mode, err, want)
		}
	}
	j := newJob(t, "good")
	j.only = "3-ranks"
	if _, err := j.run(context.Background()); err == nil {
		t.Error("an unknown setting is accepted")
	}
}

func TestCommandsAreAlike(t *testing.T) {
	j := &job{Runner: compare.Runner{Launcher: "ours"}, mpirun: "theirs", peer: "peer", facts: facts{Sizes: "1K:16K"}}
	for _, s := range settings {
		_, table, err := j.table(s.name)
		if err != nil {
			t.Fatal(err)
		}
		ours := strings.Join(j.ourCommand(s, "allreduce"), " ")
		theirs := strings.Join(j.theirCommand(s, table.Turns[0]), " ")
		bind := strings.Join(binding(s.ranks), " ")
		if !strings.Contains(ours, bind) || !strings.Contains(theirs, bind) {
			t.Errorf("%s is bound differently: %q and %q", s.name, ours, theirs)
		}
		if !strings.HasSuffix(theirs, "peer allreduce 1024:200:64 4096:200:64 16384:200:64") {
			t.Errorf("the peer gets another plan: %q", theirs)
		}
		if strings.Contains(ours, "--registered") != s.registered {
			t.Errorf("%s: %q", s.name, ours)
		}
	}
}

// The summary of a measurement, made again, is the same; so is the one that is committed.
func TestSummaryFromTheFolder(t *testing.T) {
	j := newJob(t, "good")
	if _, err := j.run(context.Background()); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(j.Out, "README.md")
	first, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	again := &job{Runner: j.Runner}
	again.Again = true
	if _, err := again.run(context.Background()); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != string(first) {
		t.Errorf("%v, %s\nexpected\n%s", err, text, first)
	}
	if err := os.Truncate(filepath.Join(j.Out, "start-up.jsonl"), 100); err != nil {
		t.Fatal(err)
	}
	if _, err := again.run(context.Background()); err == nil || !strings.Contains(err.Error(), `start-up.jsonl:2: `) || !strings.Contains(err.Error(), `start-up "launch", run 2`) {
		t.Errorf("start-up times that break off: %v", err)
	}
	comparetest.Committed(t, "mpi", func(r compare.Runner) error {
		_, err := (&job{Runner: r}).run(t.Context())
		return err
	})
}
