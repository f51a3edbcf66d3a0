package setup

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/config"
	"github.com/mscclpp-go/mscclpp/framework/observe"
	"github.com/mscclpp-go/mscclpp/internal/traces"
)

// One thread closes the ranks of a job one after the other, in any order: none of them waits, and the trace has all. A trace is there once rank 0 has
// ended, also if another rank never does.
func TestRanksOfOneThreadGiveTheirRecords(t *testing.T) {
	for name, order := range map[string][]int{"rank 0 first": {0, 1, 2}, "rank 0 last": {2, 1, 0}, "rank 0 between": {1, 0, 2}} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "job.perfetto")
			made := filepath.Join(filepath.Dir(file), "job-0a0b0c0d.perfetto")
			var all [3]*recorder
			var boards [3]*observe.Board
			for rank := range all {
				o, err := observe.Open(observe.Facts{Job: name, Rank: rank, Size: 3, Local: -1, HostID: "here", On: true})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = o.Close() })
				all[rank] = newRecorder(config.Observe{Trace: file}, o, placeInJob{name, "0a0b0c0d", rank, 3}, slog.New(slog.DiscardHandler))
				boards[rank] = o.Board("world", rank, 3)
			}
			boots := meet(t, 3)
			call := func(rank int) {
				boards[rank].Begin(boards[rank].Clock(), collective.AllReduce, 8, "ring", 0)
				boards[rank].End()
			}
			for rank := range all {
				call(rank)
			}
			began := observe.Now()
			for n, rank := range order {
				call(rank)
				all[rank].end(boots[rank])
				_, err := os.Stat(made)
				if done := slices.Index(order, 0) <= n; (err == nil) != done {
					t.Errorf("behind rank %d: %v: expected a trace: %v", rank, err, done)
				}
			}
			if took := observe.Now() - began; took > int64(gatherLimit) {
				t.Errorf("the ranks have waited for each other for %d ns", took)
			}
			trace, err := traces.ReadFile(made)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range trace.Ranks {
				if len(r.Calls) != 2 {
					t.Errorf("rank %d: %d calls, expected 2", r.Rank, len(r.Calls))
				}
			}
			if len(trace.Ranks) != 3 || len(here.jobs) != 0 {
				t.Errorf("%d ranks, and %d jobs are left: expected 3 and 0", len(trace.Ranks), len(here.jobs))
			}
		})
	}
}

// Two processes have a rank 0 of one of two jobs each, and a thread each closes them, its own first. None waits for long, and both traces have all.
func TestJobsAreClosedInOppositeOrder(t *testing.T) {
	dir := t.TempDir()
	var recorders [2][2]*recorder // by job and rank
	var boots [2][]*bootstrap.TCP
	for job := range recorders {
		boots[job] = meet(t, 2)
		for rank := range 2 {
			o, err := observe.Open(observe.Facts{Job: "j", Rank: rank, Size: 2, Local: -1, HostID: "here", On: true})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = o.Close() })
			place := placeInJob{fmt.Sprint("process ", (job+rank)%2), fmt.Sprint(job), rank, 2}
			r := newRecorder(config.Observe{Trace: filepath.Join(dir, "job.perfetto")}, o, place, slog.New(slog.DiscardHandler))
			b := o.Board("world", rank, 2)
			b.Begin(b.Clock(), collective.AllReduce, 8, "ring", 0)
			b.End()
			r.meet(boots[job][rank])
			recorders[job][rank] = r
		}
	}
	began := observe.Now()
	var all sync.WaitGroup
	for process := range 2 {
		all.Go(func() {
			recorders[process][0].end(boots[process][0])
			recorders[1-process][1].end(boots[1-process][1])
		})
	}
	all.Wait()
	if took := observe.Now() - began; took > int64(gatherLimit) {
		t.Errorf("the threads have waited for each other for %d ns", took)
	}
	for job := range recorders {
		trace, err := traces.ReadFile(filepath.Join(dir, fmt.Sprintf("job-%d.perfetto", job)))
		if err != nil {
			t.Fatal(err)
		}
		if len(trace.Ranks) != 2 || len(trace.Ranks[1].Calls) != 1 {
			t.Errorf("job %d: %d ranks: expected 2, and the call of each", job, len(trace.Ranks))
		}
	}
}

// meet returns the bootstraps of a job in this process.
func meet(t *testing.T, n int) []*bootstrap.TCP {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	id, err := bootstrap.NewUniqueID(l.Addr().(*net.TCPAddr).AddrPort())
	if err != nil {
		t.Fatal(err)
	}
	boots := make([]*bootstrap.TCP, n)
	var all sync.WaitGroup
	for rank := range boots {
		all.Go(func() {
			c := bootstrap.Config{Rank: rank, Size: n, ID: id}
			if rank == 0 {
				c.Listener = l
			}
			b, err := bootstrap.Join(t.Context(), c)
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { _ = b.Close() })
			boots[rank] = b
		})
	}
	if all.Wait(); t.Failed() {
		t.FailNow()
	}
	return boots
}
