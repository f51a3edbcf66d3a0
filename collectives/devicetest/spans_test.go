package devicetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/observe"
	"github.com/mscclpp-go/mscclpp/internal/traces"
)

// A trace has when each call was on the GPU, also of each launch of a graph, and which rank it waited for there. Rank 1 comes once the
// GPU of rank 0 waits for it, and then some time later, so the trace has to say at least that.
func TestTracesHaveTheTimesOfGPUs(t *testing.T) {
	const calls, launches, late = 4, 3, 5 * time.Millisecond
	needsGPU(t)
	var observers []*observe.Rank
	var memories []*observe.Memory
	for i := range 2 {
		o, err := observe.Open(observe.Facts{Job: "spans", Rank: i, Size: 2, Local: -1, HostID: "here", Device: "cuda:0", On: true, Graphs: 1, Getenv: func(string) string { return "" }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { o.Close() })
		observers, memories = append(observers, o), append(memories, o.Own())
	}
	newest := func() *traces.Trace { return traces.Newest("spans", memories...) }
	// Calls until the clocks of the GPUs are compared so well that a trace says for whom rank 0 waited.
	known := func() bool {
		return slices.ContainsFunc(newest().RankOf(0).Spans, func(s traces.Span) bool { return s.Late == 1 })
	}
	before := 0
	turn := make(chan bool, 1) // of rank 1; false: the clocks are compared
	run(t, []string{"", ""}, setting{per: func(rank int, o *setting) { o.observer = observers[rank] }}, collectives.Options{}, func(ctx context.Context, r *rank) error {
		if r.Rank() == 0 {
			defer close(turn)
		}
		m, err := r.memory(ctx, 1<<16)
		if err != nil {
			return err
		}
		sum := func() error {
			x := trial{Kind: collectives.AllReduce, Algorithm: "oneshot_ll8", Count: 64, Type: kernel.Float32, Op: kernel.Sum}
			return x.Call(r.Comm, pointer(m.Addr()), pointer(m.Addr()), r.stream)
		}
		first := func(f func() error) error {
			from := observe.Now()
			err := errors.Join(f(), until(ctx, "a wait of rank 0 on its GPU", func() bool {
				x := newestWait(memories[0])
				return x.Event == observe.Wait|observe.Begin && x.Peer == 1 && x.Time >= from
			}))
			turn <- true
			return errors.Join(err, r.settle(ctx), until(ctx, "the end of that wait", func() bool { return newestWait(memories[0]).Event == observe.Wait|observe.End }))
		}
		second := func(f func() error) error {
			unsure := time.Duration(0)
			for _, x := range newest().Ranks {
				if n := len(x.Spans); n > 0 {
					unsure += time.Duration(x.Spans[n-1].Off)
				}
			}
			<-time.After(late + 2*unsure)
			return errors.Join(f(), r.settle(ctx))
		}
		both := func(f func() error) error {
			if r.Rank() == 0 {
				return first(f)
			}
			if !<-turn {
				return errors.New("rank 0 has failed")
			}
			return second(f)
		}
		n := 0
		for ; r.Rank() == 0 && !known(); n++ {
			if err := first(sum); err != nil {
				return err
			}
		}
		if r.Rank() == 0 {
			before = n
			turn <- false
		}
		for ; r.Rank() == 1 && <-turn; n++ {
			if err := second(sum); err != nil {
				return err
			}
		}
		made := 0
		measured := func(f func() error) error {
			made++
			return errors.Join(both(f), until(ctx, fmt.Sprintf("span %d of rank %d", made, r.Rank()), func() bool {
				return len(spansBehind(newest().RankOf(r.Rank()), n)) >= made
			}))
		}
		for range calls {
			if err := measured(sum); err != nil {
				return err
			}
		}
		if err := r.dev.BeginCapture(r.stream, cuda.CaptureThreadLocal); err != nil {
			return err
		}
		err = sum()
		g, ended := r.dev.EndCapture(r.stream)
		if err := errors.Join(err, ended); err != nil {
			return err
		}
		defer g.Close()
		for range launches {
			if err := measured(func() error { return g.Launch(r.stream) }); err != nil {
				return err
			}
		}
		return nil
	})
	if t.Failed() {
		return
	}

	trace := newest()
	for _, r := range trace.Ranks {
		spans := spansBehind(r, before)
		if len(spans) != calls+launches || len(r.Calls) != before+calls+1 {
			t.Fatalf("rank %d: %d spans, %d calls: expected %d and %d", r.Rank, len(spans), len(r.Calls), calls+launches, before+calls+1)
		}
		for i, s := range spans {
			c := &r.Calls[before+min(i, calls)]
			if s.Comm != c.Comm || s.Number != c.Number || s.Graph != (i >= calls) || s.Off < 1 || s.Begin < c.Begin-s.Off {
				t.Errorf("rank %d: %+v: expected the span of %+v", r.Rank, s, *c)
			}
		}
	}
	for i, s := range spansBehind(trace.RankOf(0), before) {
		x := spansBehind(trace.RankOf(1), before)[i]
		unsure := s.Off + x.Off
		if x.Begin-s.Begin < int64(late)-unsure || x.Late != -1 {
			t.Errorf("%+v, %+v: expected that rank 1 came %v behind rank 0, and waited for no rank", s, x, late)
		}
		if x.Begin <= s.Begin+unsure || x.Begin >= s.End { // the clocks of the GPUs were compared too badly just then
			t.Logf("%+v, %+v: not known", s, x)
		} else if s.Late != 1 || s.Met != x.Begin || s.Waited() != x.Begin-s.Begin {
			t.Errorf("%+v, %+v: expected that rank 0 waited until rank 1 came", s, x)
		}
	}
	story := trace.Tell()
	var text strings.Builder
	story.Print(&text)
	t.Log(text.String())
	if len(story.Devices) != 2 || story.Devices[0].For != 1 || story.Devices[0].Spans != len(trace.RankOf(0).Spans) || !strings.Contains(text.String(), "devices") {
		t.Errorf("%+v, %s: expected that rank 0 waited for rank 1", story.Devices, text.String())
	}
	file := filepath.Join(t.TempDir(), "trace.perfetto")
	to, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(trace.WritePerfetto(to), to.Close()); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("../../scripts/perfetto.sh", file).CombinedOutput(); strings.Contains(string(out), "perfetto: NOT run") {
		t.Logf("not checked: %s", out)
	} else if err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// spansBehind are those of calls behind the first n.
func spansBehind(r *traces.Rank, n int) (all []traces.Span) {
	for _, s := range r.Spans {
		if s.Number > uint64(n) {
			all = append(all, s)
		}
	}
	return all
}

// newestWait is the latest record of a kernel's wait.
func newestWait(m *observe.Memory) (x observe.Record) {
	for _, v := range m.Views() {
		for _, s := range v.Read(new(observe.Cursor)) {
			for _, r := range s.Records {
				if r.Event.Kind() == observe.Wait && strings.HasPrefix(s.Writer, "kernels of ") {
					x = r
				}
			}
		}
	}
	return x
}
