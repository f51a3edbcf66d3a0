package observe

import (
	"sync/atomic"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// world is a host whose clock goes on by each look at it, and a GPU whose clock is another one.
type world struct {
	device.Device // of which spans use nothing
	device.Engine

	now     atomic.Int64
	offset  int64
	drift   float64
	latency int64 // from the call until a stream has taken the time
	without bool  // graphs take no times
	capture device.Stream
	open    int // stamps and streams
	asked   atomic.Int64
}

func (w *world) clock() int64 { return w.now.Add(150) }

// on is a time of the host by the clock of the GPU, which knows it to half a microsecond.
func (w *world) on(t int64) int64 {
	return (t + w.offset + int64(float64(t)*w.drift)) / 500 * 500
}

func (w *world) NewStream() (device.Stream, error)               { w.open++; return 99, nil }
func (w *world) CloseStream(device.Stream) error                 { w.open--; return nil }
func (w *world) Capturing(s device.Stream) (bool, error)         { return s == w.capture, nil }
func (w *world) NewStamp() (device.Stamp, error)                 { w.open++; return &worldStamp{of: w}, nil }
func (w *world) Close() error                                    { return nil }
func (w *world) Query(device.Stream) (device.StreamState, error) { return device.StreamIdle, nil }

type worldStamp struct {
	of   *world
	at   int64 // of the host
	each bool
}

func (x *worldStamp) Record(device.Stream) error { x.at = x.of.clock() + x.of.latency; return nil }
func (x *worldStamp) RecordEach(device.Stream) error {
	if x.of.without {
		return framework.ErrUnsupported
	}
	x.each = true
	return nil
}
func (x *worldStamp) Query() (bool, error) {
	x.of.asked.Add(1)
	return x.of.clock() >= x.at, nil
}
func (x *worldStamp) After(base device.Stamp) (int64, error) {
	from := base.(*worldStamp)
	if x.at == 0 || from.at == 0 {
		return 0, framework.ErrInvalid // not launched
	}
	return max(0, x.of.on(x.at)-x.of.on(from.at)), nil
}
func (x *worldStamp) Close() error { x.of.open--; return nil }

// gpu is a rank with a GPU, whose kernels are looked at by hand.
func gpu(t *testing.T, w *world) (*Kernels, *Board, *View) {
	r, err := Open(Facts{Job: "j", Size: 1, Local: -1, On: true, Graphs: 1, Clock: w.clock, Getenv: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	k := r.Kernels("world", &kernel.WaitControl{}, nil, w)
	k.w, k.tried = r.writer("kernels of world"), true
	k.on.Store(true)
	k.spans.renew()
	return k, r.Board("world", 0, 2), r.Own().Views()[0]
}

func spanned(v *View, c *Cursor) (list []Record) {
	all, _ := ofKernels(v, c)
	for _, x := range all {
		if x.Event == Span|Total {
			list = append(list, x)
		}
	}
	return list
}

func TestSpansAreInTheTimeOfTheHost(t *testing.T) {
	for since, w := range map[int64]*world{
		1e9:    {latency: 1500},
		7e9:    {latency: 4000, offset: 5e9, drift: 100e-6},
		3600e9: {latency: 2500, offset: -5e9, drift: -100e-6},
	} {
		w.now.Store(since)
		k, b, v := gpu(t, w)
		var c Cursor
		type truth struct{ begin, end int64 }
		var want []truth
		for range 3000 {
			b.Begin(b.Clock(), collective.AllReduce, 8, "ring", 5)
			begin := k.spans.current.begin.(*worldStamp).at
			w.now.Add(40_000) // the kernel
			end := k.spans.current.end.(*worldStamp)
			b.End()
			want = append(want, truth{begin, end.at})
			w.now.Add(960_000)
			k.spans.read(k.w)
		}
		got := spanned(v, &c)
		if len(got) != len(want) {
			t.Fatalf("%d spans of %d calls", len(got), len(want))
		}
		for i, x := range got {
			stream, graph, off := x.Spanned()
			_, n := CallOf(x.Call)
			if stream != 0 || graph || n != uint64(i+1) {
				t.Fatalf("span %d is of call %d on stream %d, of a graph: %v", i, n, stream, graph)
			}
			if half := w.latency/2 + 150; i > 1000 && off > 2000+half+2*stampError {
				t.Fatalf("span %d may be off by %d ns: expected at most 2 us and half the round trip, and what stamps are off", i, off)
			}
			for _, away := range []int64{x.Time - want[i].begin, x.Time + int64(x.Bytes) - want[i].end} {
				if max(away, -away) > off {
					t.Fatalf("span %d is off by %d ns, and says %d at most: clock %+v", i, away, off, k.spans.device)
				}
			}
		}
		b.Close()
		k.Close()
		if w.open != 0 {
			t.Errorf("%d stamps and streams are left", w.open)
		}
	}
}

// Calls that follow each other closely are not all measured, since that would slow them down.
func TestSpansOfQuickCallsAreFew(t *testing.T) {
	w := &world{latency: 100}
	k, b, v := gpu(t, w)
	var c Cursor
	from := w.now.Load()
	for range 1000 {
		b.Begin(b.Clock(), collective.AllReduce, 8, "ring", 5)
		b.End()
		w.now.Add(4000)
	}
	k.spans.read(k.w)
	if n, most := len(spanned(v, &c)), int((w.now.Load()-from)/spanEvery)+1; n > most || n < most/5 {
		t.Errorf("%d spans in %d us: expected about %d", n, (w.now.Load()-from)/1000, most)
	}
}

func TestSpansOfGraphsAreThoseOfEachLaunch(t *testing.T) {
	w := &world{latency: 1000, capture: 7}
	k, b, v := gpu(t, w)
	var c Cursor
	b.Begin(b.Clock(), collective.AllReduce, 8, "ring", 7)
	begin, end := k.spans.current.begin.(*worldStamp), k.spans.current.end.(*worldStamp)
	b.End()
	if !begin.each || !end.each {
		t.Fatal("the graph does not take the times")
	}
	k.spans.read(k.w)
	if got := spanned(v, &c); len(got) != 0 {
		t.Fatalf("before the first launch there are spans: %+v", got)
	}
	w.capture = 0
	for n := range 2000 {
		begin.at = w.clock()
		end.at = begin.at + 20_000
		k.spans.read(k.w) // it runs
		w.now.Add(1_000_000)
		k.spans.read(k.w)
		k.spans.read(k.w) // it is the one that was seen
		got := spanned(v, &c)
		if len(got) != 1 {
			t.Fatalf("launch %d has %d spans", n, len(got))
		}
		stream, graph, off := got[0].Spanned()
		if away := got[0].Time - begin.at; stream != 0 || !graph || max(away, -away) > off {
			t.Fatalf("launch %d: a span on stream %d, of a graph: %v, off by %d ns, and says %d at most", n, stream, graph, away, off)
		}
	}

	// A device whose graphs take no times has none of them, and calls go on.
	w.without, w.capture = true, 7
	b.Begin(b.Clock(), collective.AllReduce, 8, "ring", 7)
	b.End()
	if n := len(k.spans.fresh); n != 0 {
		t.Errorf("%d spans of a graph that takes no times", n)
	}
	b.Close()
	k.Close()
	if w.open != 0 {
		t.Errorf("%d stamps and streams are left", w.open)
	}
}

// Records that were off for long leave an old base, from which the driver counts inexactly.
func TestSpansGoOnAfterAPause(t *testing.T) {
	w := &world{latency: 1000, drift: 50e-6}
	k, b, v := gpu(t, w)
	var c Cursor
	for n := range 3 {
		b.Begin(b.Clock(), collective.AllReduce, 8, "ring", 5)
		begin := k.spans.current.begin.(*worldStamp).at
		b.End()
		w.now.Add(1e6)
		k.spans.read(k.w)
		got := spanned(v, &c)
		if len(got) != 1 {
			t.Fatalf("call %d has %d spans", n, len(got))
		}
		if _, _, off := got[0].Spanned(); max(got[0].Time-begin, begin-got[0].Time) > off || off > 10_000 {
			t.Fatalf("call %d is off by %d ns, and says %d at most", n, got[0].Time-begin, off)
		}
		w.now.Add(1000e9)
		k.spans.renew()
	}
}

// A device that is behind is asked about few of its calls at a time, and none is lost.
func TestSpansOfADeviceThatIsBehind(t *testing.T) {
	w := &world{latency: 1000}
	k, b, v := gpu(t, w)
	var c Cursor
	const calls = 100
	var ends []*worldStamp
	for range calls {
		w.now.Add(2 * spanEvery)
		b.Begin(b.Clock(), collective.AllReduce, 8, "ring", 5)
		end := k.spans.current.end.(*worldStamp)
		b.End()
		end.at = 1 << 50
		ends = append(ends, end)
	}
	w.asked.Store(0)
	k.spans.look(k.w)
	if n := w.asked.Load(); n > mostLooks {
		t.Errorf("%d questions about %d calls that have not ended", n, calls)
	}
	for i, end := range ends {
		end.at = w.clock() + int64(i)
	}
	w.now.Add(1000)
	for range calls / mostLooks {
		k.spans.look(k.w)
	}
	if got := spanned(v, &c); len(got) != calls {
		t.Errorf("%d spans of %d calls", len(got), calls)
	}
}

// Of a graph one call in so many is measured, and none of a short graph: each takes some us of every launch.
func TestSpansOfGraphsAreFew(t *testing.T) {
	for every, want := range map[int]int{0: 0, 1: 200, 64: 2} {
		w := &world{capture: 7}
		k, b, _ := gpu(t, w)
		k.spans.capture.every = every
		for range 2 { // graphs, with a call between them
			w.now.Add(2 * spanEvery)
			for range 100 {
				b.Begin(b.Clock(), collective.AllReduce, 8, "ring", 7)
				b.End()
			}
			w.now.Add(2 * spanEvery)
			b.Begin(b.Clock(), collective.AllReduce, 8, "ring", 5)
			b.End()
		}
		if n := k.spans.capture.measured; n != want {
			t.Errorf("one in %d: %d of 200 calls in two graphs are measured: expected %d", every, n, want)
		}
	}
}
