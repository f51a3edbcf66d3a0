package setup

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/config"
	"github.com/mscclpp-go/mscclpp/framework/observe"
	"github.com/mscclpp-go/mscclpp/internal/atomicfile"
	"github.com/mscclpp-go/mscclpp/internal/traces"
)

// recorder reads the records of a rank that was not started by mscclpp-run on its host: by torchrun, an MPI, Slurm or over ssh. At the
// end rank 0 gets those of all ranks, and writes one trace. The nil recorder reads nothing.
type recorder struct {
	config config.Observe
	rank   *observe.Rank
	place  placeInJob
	number int // of the job among those of this process that have no id
	log    *slog.Logger
	c      *traces.Collector
	self   *member
	all    *together // the ranks of the job in this process

	gave   bool   // the part to rank 0, which has asked for it
	unmeet func() // ends the wait for that question
}

// placeInJob is a rank of a job.
type placeInJob struct {
	job        string // its name, which is the same on all ranks
	id         string // of jobs that the program makes, else ""; the same on all ranks, and no other job's
	rank, size int
}

const (
	gatherLimit    = 10 * time.Second // for the other ranks to come to their end
	gatherPatience = time.Second      // until rank 0 asks for what the others have so far

	gatherRecords = 80_000 // of a rank, since its part goes in one parcel; all together have what a trace keeps

	tagTrace    framework.Tag = 1<<40 + 1<<20 // behind those of communicators
	tagTraceGot framework.Tag = tagTrace + 1
	tagTraceAsk framework.Tag = tagTrace + 2
)

// recorders counts those of jobs without an id, which come one after the other.
var recorders atomic.Int32

func newRecorder(c config.Observe, o *observe.Rank, place placeInJob, log *slog.Logger) *recorder {
	own := o.Own()
	if own == nil || c.Trace == "" && !c.Report {
		return nil
	}
	r := &recorder{config: c, rank: o, place: place, log: log, c: traces.NewCollector(own)}
	if place.id == "" {
		r.number = int(recorders.Add(1))
	}
	r.self = &member{rank: place.rank, size: place.size, now: r.part, write: r.finish}
	r.all = enter(place.job+"\x00"+place.id, r.self)
	r.c.Bound(share(place.size))
	r.c.Start()
	return r
}

// share is how many records a rank of a job keeps: rank 0 has the memory for those of all.
func share(size int) int { return min(gatherRecords, traces.MostRecords/max(1, size)) }

// end has rank 0 write the trace. Where the job has failed each rank writes what it has.
func (r *recorder) end(boot *bootstrap.TCP) {
	if r == nil {
		return
	}
	if boot != nil {
		r.rank.Fail(boot.Err()) // the goroutine that notes this may not have come to it
	}
	if r.unmeet != nil {
		r.unmeet()
	}
	r.c.Stop()
	if r.gave { // rank 0 has come to its end before
		r.all.leave(r.self)
		return
	}
	part := r.part()
	if part == nil || boot == nil || boot.Err() != nil {
		r.all.leave(r.self)
		if part != nil && boot != nil {
			r.write(traces.Assemble([]*traces.Part{part}), fmt.Sprintf(".rank-%d", boot.Rank()))
		}
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), gatherLimit)
	defer cancel()
	switch {
	case boot.Rank() == 0:
		r.all.gather(r.self, part, func(others []int) []*traces.Part { return r.gather(ctx, boot, others) })
	case r.all.give(r.self, part):
	default:
		if err := give(ctx, boot, part); err != nil {
			r.log.Warn("rank 0 has not got this rank's part of the trace", "error", err)
		}
	}
}

// meet has the rank give its part when rank 0 asks for it: rank 0 is at its end, and this rank comes there later. Both may be in a process with
// ranks of other jobs, and wait for each other, because threads close the jobs in different orders.
func (r *recorder) meet(boot *bootstrap.TCP) {
	if r == nil || boot.Rank() == 0 {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	r.unmeet = func() { cancel(); <-done }
	go func() {
		defer close(done)
		p, err := boot.Recv(ctx, 0, tagTraceAsk)
		if err != nil {
			return // this rank ends first, or the job has failed
		}
		p.Close()
		if part := r.part(); part != nil {
			limited, stop := context.WithTimeout(context.Background(), gatherLimit)
			defer stop()
			r.gave = give(limited, boot, part) == nil
		}
	}()
}

// part is what the rank has written so far.
func (r *recorder) part() *traces.Part {
	r.c.Poll()
	return r.c.Part()
}

// finish writes the trace of the job, and reports once it has all ranks.
func (r *recorder) finish(t *traces.Trace, all bool) {
	r.write(t, "")
	if all {
		r.report(t)
	}
}

// give sends a part to rank 0, and waits until that has got it.
func give(ctx context.Context, boot *bootstrap.TCP, part *traces.Part) error {
	b, err := part.Encode()
	if err == nil {
		err = boot.Send(ctx, 0, tagTrace, framework.Parcel{Data: b})
	}
	if err != nil {
		return err
	}
	p, err := boot.Recv(ctx, 0, tagTraceGot)
	p.Close() // there is nothing in it
	return err
}

// gather collects the parts of the ranks of other processes that come to their end in time.
func (r *recorder) gather(ctx context.Context, boot *bootstrap.TCP, others []int) []*traces.Part {
	parts := make([]*traces.Part, boot.Size())
	errs := make([]error, boot.Size())
	var all sync.WaitGroup
	late := make([]*time.Timer, boot.Size())
	for _, rank := range others {
		late[rank] = time.AfterFunc(gatherPatience, func() {
			_ = boot.Send(ctx, rank, tagTraceAsk, framework.Parcel{}) // a rank that is gone is missed below
		})
		all.Go(func() {
			p, err := boot.Recv(ctx, rank, tagTrace)
			late[rank].Stop()
			if err == nil {
				parts[rank], err = traces.DecodePart(p.Data, share(boot.Size()))
				p.Close()
				_ = boot.Send(ctx, rank, tagTraceGot, framework.Parcel{}) // a rank that is gone needs no answer
			}
			errs[rank] = err
		})
	}
	all.Wait()
	var got []*traces.Part
	var missing []int
	var why error
	for _, rank := range others {
		if parts[rank] == nil {
			missing, why = append(missing, rank), errs[rank]
			continue
		}
		got = append(got, parts[rank])
	}
	if len(missing) > 0 {
		r.log.Warn("the trace is without the records of ranks that have not closed their job", "ranks", fmt.Sprint(missing), "error", why)
	}
	return got
}

func (r *recorder) write(t *traces.Trace, suffix string) {
	if r.config.Trace == "" {
		return
	}
	name := r.file(suffix)
	if err := atomicfile.File(name, func(f io.Writer) error { return t.WritePerfetto(f) }); err != nil {
		r.log.Warn("the trace was not written", "error", err)
	}
}

// file is where a trace goes. That of a job which the program makes has the job's id in its name, since the ranks 0 of several such jobs may be
// in several processes; that of a second job of the process has a number.
func (r *recorder) file(suffix string) string {
	name := strings.ReplaceAll(r.config.Trace, "%n", "0")
	if r.place.id != "" {
		kind := filepath.Ext(name)
		name = strings.TrimSuffix(name, kind) + "-" + r.place.id + kind
	}
	if r.number > 1 {
		name += fmt.Sprintf(".%d", r.number)
	}
	return name + suffix
}

// report says which rank came late, and which link is slow. It was asked for, so it is shown at the usual level.
func (r *recorder) report(t *traces.Trace) {
	if !r.config.Report {
		return
	}
	s := t.Tell()
	lines := s.SlowLinks()
	if line := s.Straggler(); line != "" {
		lines = append([]string{line}, lines...)
	}
	if len(lines) == 0 {
		lines = []string{"no rank and no link stands out"}
	}
	for _, line := range lines {
		r.log.Warn("report: " + line)
	}
}
