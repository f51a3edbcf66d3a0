package sight

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/config"
	"github.com/mscclpp-go/mscclpp/framework/observe"
	"github.com/mscclpp-go/mscclpp/internal/traces"
	"github.com/mscclpp-go/mscclpp/launch"
)

// Ranks of one launcher make jobs of their own, beside each other and one after the other: each has a trace, a report and ranks of its own.
func TestJobsOfOneLauncherAreApart(t *testing.T) {
	for _, traced := range []bool{true, false} {
		dir := t.TempDir()
		cfg := config.Observe{Enabled: true, Report: true, Flight: filepath.Join(dir, "flight")}
		if traced {
			cfg.Trace = filepath.Join(dir, "t.perfetto")
		}
		var said strings.Builder
		w, err := Open(cfg, nil, 4, 0, &said)
		if err != nil {
			t.Fatal(err)
		}
		variable, _ := strings.CutPrefix(w.Env()[0], observe.Env+"=")
		// A rank of a job makes so many calls, and stays in the last one if it fails.
		job := func(name string, local, rank, calls int, fails error) {
			r, err := observe.Open(observe.Facts{Job: name, Rank: rank, Size: 2, Local: local, HostID: "here", Getenv: func(name string) string { return map[string]string{observe.Env: variable}[name] }})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if r.Own() != nil {
				t.Fatal("the rank has memory of its own")
			}
			r.Running()
			b := r.Board("world", rank, 2)
			for range calls {
				b.Begin(b.Clock(), collective.AllReduce, 8, "ring", 0)
				b.End()
			}
			if fails != nil {
				b.Begin(b.Clock(), collective.AllGather, 8, "ring", 0)
				r.Fail(fails)
			}
			w.c.Poll()
		}
		lost := &framework.Error{Op: "wait", Peer: 0, Err: framework.ErrPeer}
		for rank := range 2 {
			job("run-aaaa", rank, rank, 3, nil)
		}
		for rank := range 2 {
			job("run-bbbb", 2+rank, rank, 4, map[int]error{1: lost}[rank])
		}
		for rank := range 2 {
			job("run-aaaa", rank, rank, 5, nil)
		}
		w.Failed(launch.Result{Rank: 3, Code: 1})
		w.Close(launch.Result{Rank: 3, Code: 1})

		calls := func(file string, want ...int) {
			x, err := traces.ReadAll([]string{file})
			if err != nil {
				t.Fatal(err)
			}
			var got []int
			for i, r := range x.Ranks {
				if got = append(got, len(r.Calls)); r.Rank != i {
					t.Errorf("%s: rank %d is at place %d", file, r.Rank, i)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: ranks with %d calls: expected %d", file, got, want)
			}
		}
		if traced {
			calls(filepath.Join(dir, "t.perfetto"), 3, 3)
			calls(filepath.Join(dir, "t-bbbb.perfetto"), 4, 5)
			calls(filepath.Join(dir, "t-aaaa.2.perfetto"), 5, 5)
		}
		flights, err := filepath.Glob(filepath.Join(dir, "flight", "*"))
		if err != nil || len(flights) != 1 {
			t.Fatalf("%q, %v: expected one folder", flights, err)
		}
		calls(flights[0], 4, 5)
		for _, name := range []string{"run-aaaa", "run-bbbb", "run-aaaa.2"} {
			if !strings.Contains(said.String(), "report: job "+name+": ") {
				t.Errorf("%s: expected a report of job %s", said.String(), name)
			}
		}
	}
}
