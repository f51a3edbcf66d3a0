package devicetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/observe"
	"github.com/mscclpp-go/mscclpp/internal/traces"
)

// A trace has when each call was on the GPU, also of each launch of a graph, and which rank it waited for there.
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
	spans := func(rank int) []traces.Span { return traces.Newest("spans", memories...).RankOf(rank).Spans }
	var turn [calls + launches]chan struct{} // rank 0 has made its call
	for i := range turn {
		turn[i] = make(chan struct{})
	}
	run(t, []string{"", ""}, setting{per: func(rank int, o *setting) { o.observer = observers[rank] }}, collectives.Options{}, func(ctx context.Context, r *rank) error {
		m, err := r.memory(ctx, 1<<16)
		if err != nil {
			return err
		}
		sum := func() error {
			x := trial{Kind: collectives.AllReduce, Algorithm: "oneshot_ll8", Count: 64, Type: kernel.Float32, Op: kernel.Sum}
			return x.Call(r.Comm, pointer(m.Addr()), pointer(m.Addr()), r.stream)
		}
		// Rank 1 comes late, to each.
		after := func(i int, f func() error) error {
			if r.Rank() == 1 {
				select {
				case <-turn[i]:
				case <-ctx.Done():
					return ctx.Err()
				}
				<-time.After(late)
			}
			err := f()
			if r.Rank() == 0 {
				close(turn[i])
			}
			return errors.Join(err, r.settle(ctx))
		}
		seen := func(n int) error {
			return until(ctx, 30*time.Second, fmt.Sprintf("span %d of rank %d", n, r.Rank()), func() bool { return len(spans(r.Rank())) >= n })
		}
		for i := range calls {
			if err := errors.Join(after(i, sum), seen(i+1)); err != nil {
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
		for i := range launches {
			if err := errors.Join(after(calls+i, func() error { return g.Launch(r.stream) }), seen(calls+i+1)); err != nil {
				return err
			}
		}
		return nil
	})
	if t.Failed() {
		return
	}

	trace := traces.Newest("spans", memories...)
	for _, r := range trace.Ranks {
		if len(r.Spans) != calls+launches || len(r.Calls) != calls+1 {
			t.Fatalf("rank %d: %d spans, %d calls: expected %d and %d", r.Rank, len(r.Spans), len(r.Calls), calls+launches, calls+1)
		}
		for i, s := range r.Spans {
			c := &r.Calls[min(i, calls)]
			if s.Comm != c.Comm || s.Number != c.Number || s.Graph != (i >= calls) || s.Off < 1 || s.Begin < c.Begin-s.Off {
				t.Errorf("rank %d: %+v: expected the span of %+v", r.Rank, s, *c)
			}
			if r.Rank == 0 && (s.Late != 1 || s.Waited() < int64(late)-2*s.Off || s.End < s.Met) {
				t.Errorf("rank 0: %+v: expected that it waited for rank 1 for %v", s, late)
			}
			if r.Rank == 1 && s.Late != -1 {
				t.Errorf("rank 1: %+v: expected that it waited for no rank", s)
			}
		}
	}
	story := trace.Tell()
	var text strings.Builder
	story.Print(&text)
	t.Log(text.String())
	if len(story.Devices) != 2 || story.Devices[0].For != 1 || story.Devices[0].Spans != calls+launches || !strings.Contains(text.String(), "devices") {
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
