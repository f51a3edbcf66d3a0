package bench_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/bench"
	"github.com/mscclpp-go/mscclpp/bench/benchtest"
	"github.com/mscclpp-go/mscclpp/bench/report"
	"github.com/mscclpp-go/mscclpp/bench/sizes"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// onDevice is a rank whose calls take the time that the test says on the clock of a
// device, and whose buffers the host reaches by copies only.
type onDevice struct {
	*benchtest.Member
	clock    time.Duration
	log      string // a letter for each launch: g and e for graphs and single calls of ours, p for the peer's
	graph    bool   // being recorded
	held     int    // measurements that did not begin before all was enqueued
	buffers  int
	pushed   int
	captured int // calls of the last recording
}

const (
	ourTime  = 3 * time.Microsecond
	peerTime = 6 * time.Microsecond
)

func (d *onDevice) Do(c *bench.Call) error { return d.perform(c, ourTime, "e") }

func (d *onDevice) perform(c *bench.Call, takes time.Duration, mark string) error {
	if d.graph {
		d.captured++
	} else {
		d.log += mark
	}
	d.clock += takes
	return d.Member.Do(c)
}

func (d *onDevice) Alloc(bytes int64, registered bool) (bench.Memory, error) {
	d.buffers++
	m, err := d.Member.Alloc(bytes, registered)
	m.Push = func(low, high int) error { d.pushed += high - low; return nil }
	m.Pull = func(int, int) error { return nil }
	return m, err
}

func (d *onDevice) Queue() bench.Queue { return d }
func (d *onDevice) Finish() error      { return nil }

func (d *onDevice) Time(held bool, align, f func() error) (time.Duration, error) {
	if held {
		d.held++
	}
	if err := align(); err != nil {
		return 0, err
	}
	start := d.clock
	err := f()
	return d.clock - start, err
}

func (d *onDevice) Capture(f func() error) (bench.Graph, error) {
	d.graph, d.captured = true, 0
	defer func() { d.graph = false }()
	start := d.clock
	err := f()
	return &replay{d, d.clock - start}, err
}

type replay struct {
	d     *onDevice
	takes time.Duration
}

func (r *replay) Launch() error { r.d.clock += r.takes; r.d.log += "g"; return nil }
func (r *replay) Close() error  { return nil }

// rival is another library on the same device.
type rival struct {
	d        *onDevice
	cannot   bench.Collective
	prepare  error
	prepared int
	released int
}

func (r *rival) Name() string                      { return "rival 1.2" }
func (r *rival) Prepare(all ...bench.Memory) error { r.prepared += len(all); return r.prepare }
func (r *rival) Release() error                    { r.released++; return nil }
func (r *rival) Supports(c *bench.Call) bool       { return c.Collective != r.cannot }
func (r *rival) Do(c *bench.Call, n int) error {
	for range n {
		if err := r.d.perform(c, peerTime, "p"); err != nil {
			return err
		}
	}
	return nil
}

// runAll measures on two ranks and returns rank 0, its peer, and the rows or the error.
func runAll(t *testing.T, change func(*rival), all ...bench.Options) (*onDevice, *rival, []report.Row, error) {
	t.Helper()
	var mu sync.Mutex
	var rows []report.Row
	var first *onDevice
	var other *rival
	var failure error
	benchtest.New(2).Together(t, func(m *benchtest.Member) error {
		d := &onDevice{Member: m}
		p := &rival{d: d}
		mine := append([]bench.Options(nil), all...)
		if change != nil {
			change(p)
			mine[0].Peer = p
		}
		err := bench.RunAll(context.Background(), d, mine, bench.Served{Device: "cuda:0"}, &bench.Verifier{Reference: benchtest.Exact{}}, nil,
			func(r report.Row) error { rows = append(rows, r); return nil })
		mu.Lock()
		defer mu.Unlock()
		if m.Rank() == 0 {
			first, other, failure = d, p, err
		}
		return nil
	})
	return first, other, rows, failure
}

func graphOf(c bench.Collective, calls int) bench.Options {
	return bench.Options{Collective: c, Sizes: sizes.Range{Min: 1024, Max: 4096, Factor: 4}, Type: kernel.Int32,
		Plan: bench.Plan{Iterations: 6, Warmup: 1, Calls: calls, Graph: true}}
}

func TestKindsShareTheirBuffers(t *testing.T) {
	place := graphOf(bench.AllGather, 4)
	place.InPlace, place.Check = true, true
	first := graphOf(bench.AllReduce, 4)
	first.Check = true
	d, _, rows, err := runAll(t, nil, first, place, graphOf(bench.AllReduce, 1))
	if err != nil || d.buffers != 2 {
		t.Errorf("%v, %d buffers, want 2", err, d.buffers)
	}
	var got []string
	for _, r := range rows {
		got = append(got, fmt.Sprint(r.Collective, " ", r.Bytes, " ", r.InPlace, " ", r.Graph, " ", r.TimeUS))
		if r.Errors != nil && *r.Errors != 0 {
			t.Errorf("%+v: %d errors", r, *r.Errors)
		}
	}
	want := "allreduce 1024 false 4 3, allreduce 4096 false 4 3, allgather 1024 true 4 3, allgather 4096 true 4 3, allreduce 1024 false 1 3, allreduce 4096 false 1 3"
	if strings.Join(got, ", ") != want {
		t.Errorf("%s\nwant\n%s", strings.Join(got, ", "), want)
	}
}

// Filling the memory of a device costs more than a measurement: once is enough.
func TestDevicesAreFilledOnce(t *testing.T) {
	o := graphOf(bench.AllReduce, 4)
	d, _, _, err := runAll(t, nil, o, o, o)
	// Two buffers, touched once; then ones for the first size, and for the larger.
	if want := 2 * (4096 + 1024 + 4096); err != nil || d.pushed != want {
		t.Errorf("%d bytes were written, want %d, %v", d.pushed, want, err)
	}
}

// NCCL has symmetric kernels for some collectives; windows are for those.
func TestWindowsAreForSymmetricCollectives(t *testing.T) {
	o := graphOf(bench.Broadcast, 4)
	o.Sizes.Max, o.Registered = 1024, true
	_, p, rows, err := runAll(t, func(*rival) {}, o)
	if err != nil || len(rows) != 1 || rows[0].PeerTimeUS == nil || !rows[0].Registered {
		t.Fatal(err, rows)
	}
	if p.prepared != 0 {
		t.Errorf("%d windows for a broadcast, expected none", p.prepared)
	}
}

func TestPeerTakesTurns(t *testing.T) {
	o := graphOf(bench.AllReduce, 4)
	o.Sizes.Max = 1024
	o.Registered = true
	d, p, rows, err := runAll(t, func(*rival) {}, o)
	if err != nil || len(rows) != 1 {
		t.Fatal(err, rows)
	}
	r := rows[0]
	if r.Peer != "rival 1.2" || r.PeerTimeUS == nil || *r.PeerTimeUS != 6 || *r.Speedup != 2 || r.TimeUS != 3 || p.prepared != 2 || p.released != 1 {
		t.Errorf("%+v, %d buffers prepared, released %d times", r, p.prepared, p.released)
	}
	// A call of each before the recordings; then three rounds, in each of which both
	// have one untimed and two timed launches.
	if want := "ep" + strings.Repeat("g", 3*2*3); d.log != want || d.held != 3*2*3 {
		t.Errorf("%s, %d held, want %s", d.log, d.held, want)
	}
	o.Plan = bench.Plan{Iterations: 3, Warmup: -1, Calls: 2}
	d, _, rows, err = runAll(t, func(*rival) {}, o)
	if want := "ep" + strings.Repeat("eepp", 3); err != nil || d.log != want || d.held != 0 || rows[0].Graph != 0 {
		t.Errorf("without graphs: %s, %d held, want %s; %+v, %v", d.log, d.held, want, rows, err)
	}
}

func TestPeerWithoutTheCall(t *testing.T) {
	_, _, rows, err := runAll(t, func(p *rival) { p.cannot = bench.AllToAll }, graphOf(bench.AllReduce, 4), graphOf(bench.AllToAll, 4))
	if err != nil || len(rows) != 4 || rows[0].PeerTimeUS == nil || rows[3].PeerTimeUS != nil || rows[3].Peer == "" || rows[3].Speedup != nil {
		t.Errorf("%+v, %v", rows, err)
	}
}

func TestPeerThatCannotRegister(t *testing.T) {
	o := graphOf(bench.AllReduce, 4)
	o.Registered = true
	_, _, rows, err := runAll(t, func(p *rival) { p.prepare = fmt.Errorf("%w: old driver", framework.ErrUnsupported) }, o)
	if err != nil || len(rows) != 2 || rows[0].PeerTimeUS == nil || !strings.Contains(rows[0].Peer, "rival 1.2 without registered buffers (") || !strings.Contains(rows[0].Peer, "old driver") {
		t.Errorf("%+v, %v", rows, err)
	}
	broken := errors.New("broken")
	if _, _, rows, err = runAll(t, func(p *rival) { p.prepare = broken }, o); !errors.Is(err, broken) || len(rows) != 0 {
		t.Errorf("%+v, %v", rows, err)
	}
}

func TestGraphsOfLargeCallsAreShort(t *testing.T) {
	for bytes, want := range map[int64]int{1 << 10: 20, 16 << 20: 20, 64 << 20: 8, 256 << 20: 2, 1 << 30: 2, 1 << 34: 2} {
		if got := bench.GraphPlan(bytes, 20); got.Calls != want || !got.Graph {
			t.Errorf("%d bytes: %+v, want %d calls", bytes, got, want)
		}
		if got := bench.GraphPlan(bytes, 1); got.Calls != 1 {
			t.Errorf("%d bytes, one call asked for: %+v", bytes, got)
		}
	}
}
