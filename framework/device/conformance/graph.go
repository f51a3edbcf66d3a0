package conformance

import (
	"errors"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/native"
)

// capture records what f enqueues on a stream.
func (r *rig) capture(s device.Stream, f func()) *native.Graph {
	if err := r.streams.BeginCapture(s, native.CaptureThreadLocal); err != nil {
		r.t.needs(false, "graphs: "+err.Error())
	}
	done := false
	defer func() {
		if !done {
			_, _ = r.streams.EndCapture(s)
		}
	}()
	f()
	done = true
	g, err := r.streams.EndCapture(s)
	r.t.must(err, "end capture")
	r.t.cleanup(g.Close, "close a graph")
	return g
}

func graphTests() []test {
	return []test{
		{"graph/recorded", "what is captured is recorded, and not done", func(t *T) {
			d := t.streaming()
			s, m := d.stream(), d.alloc(16)
			g := d.capture(s, func() {
				t.must(d.streams.Write(s, m.Addr(), 9), "write")
				t.must(d.streams.Copy(s, m.Addr()+8, m.Addr(), 8), "copy")
				if state, err := d.streams.Query(s); err != nil || state != device.StreamCapturing {
					t.errorf("the stream is in state %d, %v: expected capturing", state, err)
				}
				if on, err := d.streams.Capturing(s); err != nil || !on {
					t.errorf("the stream does not say that it records, %v", err)
				}
				t.refused(d.streams.Sync(s), "sync of a stream that records", framework.ErrInvalid)
			})
			if d.word(m.Addr()) != 0 {
				t.errorf("the work was done while it was recorded")
			}
			if g.Nodes() < 2 {
				t.errorf("%d operations are recorded: expected 2 or more", g.Nodes())
			}
			t.must(g.Launch(s), "launch")
			d.settle(s)
			if a, b := d.word(m.Addr()), d.word(m.Addr()+8); a != 9 || b != 9 {
				t.errorf("words are %d, %d: expected 9, 9", a, b)
			}
		}},
		{"graph/again", "a graph is launched many times, on any stream", func(t *T) {
			d := t.streaming()
			add, _ := d.kernels()
			s, other, m := d.stream(), d.stream(), d.alloc(8)
			g := d.capture(s, func() {
				for range 10 {
					d.launch(add, s, arguments{uint64(m.Addr()), 0, 1, 1})
				}
			})
			for range 20 {
				t.must(g.Launch(other), "launch")
			}
			d.settle(other)
			if got := d.word(m.Addr()); got != 200 {
				t.errorf("the word is %d: expected 200", got)
			}
		}},
		{"graph/branches", "a stream that waits for a captured one takes part, and branches run beside each other", func(t *T) {
			d := t.marking()
			add, release := d.kernels()
			s, other, m := d.stream(), d.stream(), d.alloc(32)
			fork, back := d.event(false), d.event(false)
			g := d.capture(s, func() {
				t.must(d.streams.Memset(s, m.Addr(), 0, 32), "set")
				t.must(fork.Record(s), "record")
				t.must(fork.Wait(other), "wait")
				// The first branch waits for what the second one does.
				d.launch(add, s, arguments{uint64(m.Addr()), uint64(m.Addr()) + 8, 1, 4})
				d.launch(release, other, arguments{latch: uint64(m.Addr()) + 8, value: 1})
				t.must(back.Record(other), "record")
				t.must(back.Wait(s), "wait")
				d.launch(add, s, arguments{uint64(m.Addr()) + 16, 0, 1, 7})
			})
			if state, err := d.streams.Query(other); err != nil || state != device.StreamIdle {
				t.errorf("after the capture the other stream is in state %d, %v: expected idle", state, err)
			}
			for range 5 {
				t.must(g.Launch(s), "launch")
				d.settle(s)
				if a, b, c := d.word(m.Addr()), d.word(m.Addr()+8), d.word(m.Addr()+16); a != 4 || b != 1 || c != 7 {
					t.fatalf("words are %d, %d, %d: expected 4, 1, 7", a, b, c)
				}
			}
		}},
		{"graph/beside", "allocating, loading and waiting elsewhere do nothing to a capture", func(t *T) {
			d := t.streaming()
			s, other, m := d.stream(), d.stream(), d.alloc(8)
			g := d.capture(s, func() {
				t.must(d.streams.Write(s, m.Addr(), 1), "write")
				more := d.alloc(1 << 20)
				d.write(more.Addr(), pattern(1, 100))
				t.must(d.streams.Memset(other, more.Addr(), 1, 1<<20), "set")
				t.must(d.streams.Sync(other), "sync of another stream")
				if len(t.o.Image) > 0 {
					d.kernels()
				}
			})
			t.must(g.Launch(s), "launch")
			d.settle(s)
			if got := d.word(m.Addr()); got != 1 {
				t.errorf("the word is %d", got)
			}
		}},
		{"graph/times", "each launch of a graph takes its times anew", func(t *T) {
			d := t.marking()
			s, m := d.stream(), d.alloc(1<<20)
			stamps := [3]device.Stamp{}
			for i := range stamps {
				x, err := d.events.NewStamp()
				t.needs(!errors.Is(err, framework.ErrUnsupported), "events with times")
				t.must(err, "stamp")
				t.cleanup(x.Close, "close a stamp")
				stamps[i] = x
			}
			base, begin, end := stamps[0], stamps[1], stamps[2]
			t.must(base.Record(s), "record")
			d.settle(s)
			g := d.capture(s, func() {
				err := begin.RecordEach(s)
				t.needs(!errors.Is(err, framework.ErrUnsupported), "graphs with times")
				t.must(err, "record in a graph")
				t.must(d.streams.Memset(s, m.Addr(), 7, 1<<20), "set")
				t.must(end.RecordEach(s), "record in a graph")
			})
			if ns, err := end.After(base); err == nil {
				t.errorf("before the first launch the end is %d ns behind the base: expected no time", ns)
			}
			before := int64(0)
			for range 3 {
				t.must(g.Launch(s), "launch")
				d.settle(s)
				from, err := begin.After(base)
				t.must(err, "time of the begin")
				to, err := end.After(base)
				t.must(err, "time of the end")
				if from <= before || to < from {
					t.errorf("a launch took from %d to %d ns, and the one before ended at %d", from, to, before)
				}
				before = to
			}
		}},
		{"graph/closed", "a launch that is under way is finished when the graph is closed", func(t *T) {
			d := t.streaming()
			s, latch, m := d.stream(), d.latch(), d.alloc(8)
			if err := d.streams.BeginCapture(s, native.CaptureRelaxed); err != nil {
				t.needs(false, "graphs: "+err.Error())
			}
			t.must(d.streams.Write(s, m.Addr(), 3), "write")
			g, err := d.streams.EndCapture(s)
			t.must(err, "end capture")
			d.holdUp(s, latch)
			t.must(g.Launch(s), "launch")
			t.must(g.Close(), "close the graph")
			latch.open()
			d.settle(s)
			if got := d.word(m.Addr()); got != 3 {
				t.errorf("the word is %d: expected 3", got)
			}
		}},
	}
}
