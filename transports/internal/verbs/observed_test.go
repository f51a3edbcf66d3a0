package verbs

import (
	"os"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/observe"
)

// observed is the rank whose plugin the test is.
var observed *observe.Rank

// view reads the records of this process's rank.
func view(t *testing.T) *observe.View {
	t.Helper()
	memories, err := observe.Find(false)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range memories {
		t.Cleanup(func() { m.Close() })
		for _, v := range m.Views() {
			if i := v.Info(); i.Job == "verbs" && i.PID == os.Getpid() {
				return v
			}
		}
	}
	t.Fatal("the rank is not seen")
	return nil
}

// A thread of the rank that does the proxy's work, and finds a flush complete at once, says before it that all was posted.
func TestPostedComesBeforeCompleted(t *testing.T) {
	v := view(t)
	var cursor observe.Cursor
	r := newRig(t, fake(t), Atomic)
	r.start()
	v.Read(&cursor)
	observed.Switch(true)
	defer observed.Switch(false)
	const flushes = 200
	for range flushes {
		at := r.push(kernel.TriggerData|kernel.TriggerSignal|kernel.TriggerFlush, 64)
		r.proxy.(*proxy).Lend(true)
		if err := r.flushed(at); err != nil {
			t.Fatal(err)
		}
	}
	r.stop()
	last, completed := uint64(0), 0
	for _, s := range v.Read(&cursor) {
		for _, x := range s.Records {
			switch x.Event {
			case observe.Posted | observe.Instant:
				last = x.Call + 1
			case observe.Completed | observe.Instant:
				if completed++; x.Call >= last {
					t.Errorf("request %d is complete before it was posted", x.Call)
				}
			}
		}
	}
	if completed != flushes {
		t.Errorf("%d completed, expected %d", completed, flushes)
	}
}

// While records are wanted, a proxy says which triggers it takes, what it has posted to which peer, and what is complete.
func TestTriggersAreObserved(t *testing.T) {
	for name, mode := range map[string]Mode{"atomics": Atomic, "immediates": Immediate} {
		t.Run(name, func(t *testing.T) {
			v := view(t)
			var cursor observe.Cursor
			r := newRig(t, fake(t), mode)
			r.start()
			if err := r.flushed(r.push(kernel.TriggerData|kernel.TriggerSignal|kernel.TriggerFlush, 64)); err != nil { // not recorded
				t.Fatal(err)
			}
			v.Read(&cursor)
			observed.Switch(true)
			r.push(kernel.TriggerData, 4096)
			r.push(kernel.TriggerSignal, 0)
			last := r.push(kernel.TriggerFlush, 0)
			err := r.flushed(last)
			observed.Switch(false)
			r.stop()
			if err != nil {
				t.Fatal(err)
			}
			var all []observe.Record
			for _, s := range v.Read(&cursor) {
				all = append(all, s.Records...)
			}
			want := []observe.Record{}
			for i, bytes := range []uint64{4096, 0, 0} {
				pos := last - 2 + uint64(i)
				for _, e := range []observe.Event{observe.Trigger | observe.Begin, observe.Posted | observe.Instant, observe.Trigger | observe.End} {
					want = append(want, observe.Record{Event: e, Call: pos, Bytes: bytes, Peer: 1})
				}
			}
			want = append(want, observe.Record{Event: observe.Completed | observe.Instant, Call: last, Peer: 1})
			if len(all) != len(want) {
				t.Fatalf("%d records, expected %d: %+v", len(all), len(want), all)
			}
			for i, x := range all {
				if i > 0 && x.Time < all[i-1].Time {
					t.Errorf("record %d: time runs back", i)
				}
				if w := want[i]; x.Event != w.Event || x.Call != w.Call || x.Bytes != w.Bytes || x.Peer != w.Peer {
					t.Errorf("record %d: %+v, expected %+v", i, x, w)
				}
			}
		})
	}
}
