package sight

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/metrics"
	"github.com/mscclpp-go/mscclpp/framework/config"
	"github.com/mscclpp-go/mscclpp/framework/observe"
	"github.com/mscclpp-go/mscclpp/internal/atomicfile"
	"github.com/mscclpp-go/mscclpp/internal/ownfile"
	"github.com/mscclpp-go/mscclpp/internal/traces"
	"github.com/mscclpp-go/mscclpp/launch"
)

// Watch looks at the ranks that a launcher starts. The nil Watch looks at none.
type Watch struct {
	config config.Observe
	node   int
	report io.Writer
	memory *observe.Memory
	c      *traces.Collector
	leave  func()                   // of the metrics
	failed map[string]*traces.Trace // when the first rank had failed, by job

	stop  chan struct{}
	group sync.WaitGroup
	looks map[string]int // at which a rank of the job was behind
	late  map[string]map[int]int
}

// Metrics serves the metrics of a launcher, also over restarts of its job. Nil: none are wanted. report gets lines for people.
func Metrics(cfg config.Observe, report io.Writer) (*metrics.Server, error) {
	if !cfg.Enabled || cfg.Metrics == "" && cfg.OTLP == "" {
		return nil, nil //nolint:nilnil // all methods accept a nil Server
	}
	s, err := metrics.Serve(cfg.Metrics, cfg.OTLP)
	if err != nil {
		return nil, err
	}
	if at := s.Address(); at != "" {
		fmt.Fprintf(report, "mscclpp-run: metrics are at %s\n", at)
	}
	return s, nil
}

// Open makes memory for the ranks of a job, whose numbers go to the metrics.
func Open(cfg config.Observe, numbers *metrics.Server, ranks, node int, report io.Writer) (*Watch, error) {
	if !cfg.Enabled {
		return nil, nil //nolint:nilnil // observation is off: all methods accept a nil Watch
	}
	m, err := observe.New(ranks, cfg.Trace != "" || cfg.Metrics != "" || cfg.OTLP != "" || cfg.Report)
	if err != nil {
		return nil, err
	}
	w := &Watch{leave: numbers.Follow(m), config: cfg, node: node, report: report, memory: m, c: traces.NewCollector(m), stop: make(chan struct{}), looks: map[string]int{}, late: map[string]map[int]int{}}
	if cfg.Trace == "" {
		w.c.Summarize()
	}
	if cfg.Trace != "" || cfg.Report {
		w.c.Start()
	}
	if cfg.Report {
		w.group.Go(w.look)
	}
	return w, nil
}

// Env is the variable for the ranks.
func (w *Watch) Env() []string {
	if w == nil {
		return nil
	}
	return []string{observe.Env + "=" + w.memory.Variable()}
}

// lookEvery is how often the ranks are compared for the report.
const lookEvery = 5 * time.Millisecond

// look counts how often which rank is behind.
func (w *Watch) look() {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-w.stop:
			return
		}
		for job, views := range w.jobs() {
			states := make([][]observe.State, len(views))
			for i, v := range views {
				states[i] = v.States()
			}
			late := lateIn(states)
			if len(late) > 0 {
				w.looks[job]++
			}
			for _, i := range late {
				if w.late[job] == nil {
					w.late[job] = map[int]int{}
				}
				w.late[job][views[i].Info().Rank]++
			}
		}
	}
}

// jobs are those in which the ranks are now: a program may make jobs of its own.
func (w *Watch) jobs() map[string][]*observe.View {
	all := map[string][]*observe.View{}
	for _, v := range w.memory.Views() {
		job := v.Info().Job
		all[job] = append(all[job], v)
	}
	return all
}

// Failed notes what the ranks do when the first of them has failed: it is called right then.
func (w *Watch) Failed(launch.Result) {
	if w != nil {
		w.failed = map[string]*traces.Trace{}
		for job := range w.jobs() {
			w.failed[job] = traces.Newest(job, w.memory) // not of w.c, which may have read and dropped it
		}
	}
}

// stuckAfter is how long a call takes in which a rank is taken to be stuck.
const stuckAfter = int64(time.Second)

// stuck reports whether a rank was in a call for long.
func (w *Watch) stuck() bool {
	for _, v := range w.memory.Views() {
		ticked := v.Info().Ticked
		if slices.ContainsFunc(v.States(), func(s observe.State) bool { return s.Busy() && s.Since != 0 && ticked-s.Since >= stuckAfter }) {
			return true
		}
	}
	return false
}

// Close writes what is to be written of a job that has ended so.
func (w *Watch) Close(r launch.Result) {
	if w == nil {
		return
	}
	close(w.stop)
	w.group.Wait()
	w.leave()
	if w.config.Trace != "" || w.config.Report {
		w.c.Stop()
	}
	w.c.Poll()
	if len(w.memory.Views()) > 0 {
		w.trace()
		w.fly(r)
		w.tell()
	}
	_ = w.memory.Close() // the ranks have ended
}

func (w *Watch) trace() {
	if w.config.Trace == "" {
		return
	}
	for i, job := range w.c.Jobs() {
		t := w.c.Trace(job)
		name := strings.ReplaceAll(w.config.Trace, "%n", fmt.Sprint(w.node))
		if i > 0 { // ranks of two jobs have the same numbers
			kind := filepath.Ext(name)
			name = strings.TrimSuffix(name, kind) + "-" + suffixOf(job) + kind
		}
		if err := atomicfile.File(name, func(f io.Writer) error { return t.WritePerfetto(f) }); err != nil {
			fmt.Fprintf(w.report, "mscclpp-run: the trace was not written: %v\n", err)
		}
	}
}

// suffixOf is the part of a job's name that other jobs of the launcher do not have, as a part of the name of a file.
func suffixOf(job string) string {
	return strings.ReplaceAll(job[strings.LastIndex(job, "-")+1:], "/", "_")
}

// failedIn is the job that has failed, of several: that of a rank that says so, else that of the rank which ended first, or of one in a call.
func (w *Watch) failedIn(r launch.Result) string {
	best, job := 0, ""
	for _, v := range w.memory.Views() {
		info, weight := v.Info(), 1
		switch {
		case info.State == observe.StateFailed:
			weight = 4
		case info.Rank == r.Rank && info.State != observe.StateLeft:
			weight = 3
		case slices.ContainsFunc(v.States(), func(s observe.State) bool { return s.Open && s.Busy() }):
			weight = 2
		}
		if weight > best {
			best, job = weight, info.Job
		}
	}
	return job
}

// fly writes the flight record of a job that did not end well. A signal that asked it to end is no failure, unless the job stood still.
func (w *Watch) fly(r launch.Result) {
	if r.Code == 0 || w.config.Flight == "none" {
		return
	}
	job := w.failedIn(r)
	t := traces.Newest(job, w.memory)
	said := slices.ContainsFunc(t.Ranks, func(r *traces.Rank) bool { return r.Failure != "" && !strings.Contains(r.Failure, bySignal) })
	asked := (r.Asked || r.Signal == "SIGTERM" || r.Signal == "SIGINT" || r.Signal == "SIGHUP") && !said
	if asked && !w.stuck() {
		return
	}
	base, err := w.config.Flight, error(nil)
	if base == "" {
		base, err = ownfile.Cache("flight")
	}
	if failed := w.failed[job]; failed != nil { // since then the calls of the others have ended with an error
		for _, then := range failed.Ranks {
			if now := t.RankOf(then.Rank); now != nil {
				now.Calls = then.Calls
			}
		}
		t.Finish()
	}
	what := fmt.Sprintf("exited with code %d", r.Code)
	if r.Signal != "" {
		what = fmt.Sprintf("was killed by signal %d (%s)", r.Code-128, r.Signal)
	}
	dir := ""
	if err == nil {
		dir, err = t.WriteFlight(base, traces.End{Rank: r.Rank, What: what, Asked: asked})
	}
	if err != nil {
		fmt.Fprintf(w.report, "mscclpp-run: what the ranks did last was not written: %v\n", err)
		return
	}
	fmt.Fprintf(w.report, "mscclpp-run: what the ranks did last is in %s\n", dir)
}

// bySignal is a part of the error of Go programs that a signal has asked to end.
const bySignal = " signal received"

// tell prints the report of each job.
func (w *Watch) tell() {
	if !w.config.Report {
		return
	}
	jobs := w.c.Jobs()
	for _, job := range jobs {
		of := ""
		if len(jobs) > 1 {
			of = "job " + job + ": "
		}
		for _, line := range w.reportOf(job) {
			fmt.Fprintf(w.report, "mscclpp-run: report: %s%s\n", of, line)
		}
	}
}

func (w *Watch) reportOf(job string) (lines []string) {
	var behind []Behind
	for rank, times := range w.late[job] {
		behind = append(behind, Behind{rank, times, w.looks[job]})
	}
	slices.SortFunc(behind, func(a, b Behind) int { return cmp.Or(b.Times-a.Times, a.Rank-b.Rank) })
	s := w.c.Tell(job)
	for i, b := range behind {
		if i < mostBehind && b.standsOut(behind, s.Ranks) {
			lines = append(lines, b.text())
		}
	}
	if line := s.Straggler(); line != "" {
		lines = append(lines, line)
	}
	links := s.SlowLinks()
	if lines = append(lines, links[:min(4, len(links))]...); len(lines) == 0 {
		lines = []string{"no rank and no link stands out"}
	}
	return lines
}
