package drain

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/observe"
)

// observed is the rank whose plugin the test is.
var observed *observe.Rank

func TestMain(m *testing.M) {
	var err error
	if observed, err = observe.Open(observe.Facts{Job: fmt.Sprint("drain-", os.Getpid()), Size: 1, Local: -1}); err != nil {
		panic(err)
	}
	os.Setenv(observe.EnvRegion, observed.Region())
	os.Exit(m.Run())
}

// A loop in a plugin says in the memory of its rank which triggers it performs, while somebody looks.
func TestTriggersAreObserved(t *testing.T) {
	view := viewed(t)
	var cursor observe.Cursor
	view.Read(&cursor)
	g := newRig(t, 4, 4096, idle)
	name := fmt.Sprint("proxy ", number.Load())
	push := func(n int) {
		t.Helper()
		before := word(g.sem).Load()
		for range n {
			if _, err := g.ring.Push(put(kernel.TriggerData|kernel.TriggerSignal, 0, 0, 128)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := g.ring.Push(put(kernel.TriggerSignal, 0, 0, 0)); err != nil {
			t.Fatal(err)
		}
		for ctx := bound(t); word(g.sem).Load() < before+uint64(n)+1; {
			g.check(ctx.Err())
		}
	}
	push(3)
	observed.Switch(true)
	push(5)
	observed.Switch(false)
	g.check(g.loop.Stop(bound(t))) // behind it the last record is there
	begun, ended, bytes, last := 0, 0, uint64(0), int64(0)
	for _, s := range view.Read(&cursor) {
		if s.Writer != name {
			continue
		}
		for _, x := range s.Records {
			if x.Time < last {
				t.Errorf("%+v: time runs back", x)
			}
			last = x.Time
			switch x.Event {
			case observe.Trigger | observe.Begin:
				begun++
				if x.Block < 1 || x.Block > 6 { // none was pushed beside these
					t.Errorf("%+v: expected 1 to 6 triggers in the queue", x)
				}
				bytes += x.Bytes
			case observe.Trigger | observe.End:
				ended++
			default:
				t.Errorf("%+v: expected a trigger", x)
			}
		}
	}
	// The loop looks at the switch before it raises the semaphore, so none of the first ones counts.
	if begun != 6 || ended != begun || bytes != 5*128 {
		t.Errorf("%d begun, %d ended, %d bytes: expected 6 and 640", begun, ended, bytes)
	}
}

// A loop has a ring for records while these are wanted, and gives it back when it has nothing to do: there may be more loops than rings.
func TestManyLoopsAreObserved(t *testing.T) {
	view := viewed(t)
	var cursor observe.Cursor
	for range 30 {
		g := newRig(t, 4, 64, Options{Spin: time.Microsecond, Park: time.Millisecond, CPU: -1})
		name := fmt.Sprint("proxy ", number.Load())
		seen := false
		for ctx := bound(t); !seen; g.check(ctx.Err()) { // loops before this one may not have rested yet
			observed.Switch(true)
			pos, err := g.ring.Push(put(kernel.TriggerSignal|kernel.TriggerFlush, 0, 0, 0))
			g.check(err)
			g.check(g.ring.WaitFlushed(ctx, 0, pos))
			observed.Switch(false)
			for _, s := range view.Read(&cursor) {
				seen = seen || s.Writer == name
			}
		}
	}
}

// viewed is the rank, as a reader sees it.
func viewed(t *testing.T) *observe.View {
	t.Helper()
	memories, err := observe.Find(false)
	if err != nil {
		t.Fatal(err)
	}
	var view *observe.View
	for _, m := range memories {
		t.Cleanup(func() { m.Close() })
		for _, v := range m.Views() {
			if v.Info().Job == fmt.Sprint("drain-", os.Getpid()) {
				view = v
			}
		}
	}
	if view == nil {
		t.Fatal("the rank is not seen")
	}
	return view
}
