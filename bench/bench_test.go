package bench_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/bench"
	"github.com/mscclpp-go/mscclpp/bench/benchtest"
	"github.com/mscclpp-go/mscclpp/bench/report"
	"github.com/mscclpp-go/mscclpp/bench/sizes"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

func options(c bench.Collective) bench.Options {
	return bench.Options{Collective: c, Sizes: sizes.Range{Min: 64, Max: 1024, Factor: 4}, Type: kernel.Int32, Check: true,
		Plan: bench.Plan{Iterations: 3, Calls: 2, Warmup: 1}}
}

// sweep runs o and returns rank 0's rows.
func sweep(t *testing.T, h *benchtest.Hub, o bench.Options) []report.Row {
	t.Helper()
	var mu sync.Mutex
	var rows []report.Row
	h.Together(t, func(m *benchtest.Member) error {
		return bench.Run(context.Background(), m, o, bench.Served{Transport: "fake"}, &bench.Verifier{Reference: benchtest.Exact{}}, nil, func(r report.Row) error {
			mu.Lock()
			defer mu.Unlock()
			rows = append(rows, r)
			return nil
		})
	})
	return rows
}

func TestEveryCollectiveIsRightWhenItIs(t *testing.T) {
	for _, c := range bench.All() {
		for _, ranks := range []int{1, 2, 3, 5} {
			for _, inPlace := range []bool{false, true} {
				o := options(c)
				if o.InPlace = inPlace; inPlace && !c.HasInPlace() {
					continue
				}
				if c.Rooted() {
					o.Root = ranks - 1
				}
				rows := sweep(t, benchtest.New(ranks), o)
				if len(rows) != 3 {
					t.Fatalf("%s: %d rows, want one from rank 0 for each of 3 sizes", c, len(rows))
				}
				for _, r := range rows {
					if r.Errors == nil || *r.Errors != 0 {
						t.Errorf("%s, %d ranks, in place %v, %d bytes: %v errors", c, ranks, inPlace, r.Bytes, *r.Errors)
					}
				}
			}
		}
	}
}

func TestWrongElementsAreCounted(t *testing.T) {
	for name, tamper := range map[string]func(rank int, c *bench.Call){
		"one element": func(rank int, c *bench.Call) {
			if rank == 1 {
				*(*byte)(c.Out) ^= 1
			}
		},
		"behind the output": func(rank int, c *bench.Call) {
			if rank == 1 {
				*(*byte)(unsafe.Add(c.Out, c.Count*c.Type.Size())) = 0
			}
		},
		"the input": func(rank int, c *bench.Call) {
			if rank == 1 {
				*(*byte)(c.In) ^= 0x80
			}
		},
	} {
		h := benchtest.New(2)
		h.Tamper = tamper
		o := options(bench.AllReduce)
		o.Sizes.Max = 256 // the window of the last size has room behind it
		for _, r := range sweep(t, h, o) {
			if r.Bytes == 64 && *r.Errors != 2 { // once before and once after the timing
				t.Errorf("%s: %d errors, want 2", name, *r.Errors)
			}
		}
	}
}

func TestAnOldResultIsNotRight(t *testing.T) {
	h := benchtest.New(2)
	kept := [2][]byte{}
	h.Tamper = func(rank int, c *bench.Call) { // delivers what the call before delivered
		out := unsafe.Slice((*byte)(c.Out), c.Count*4)
		now := append([]byte(nil), out...)
		if kept[rank] != nil {
			copy(out, kept[rank])
		}
		kept[rank] = now
	}
	h.Together(t, func(m *benchtest.Member) error {
		w, err := bench.NewWindow(m, 256, false, false)
		if err != nil {
			return err
		}
		v := &bench.Verifier{Reference: benchtest.Exact{}}
		c := &bench.Call{Collective: bench.AllReduce, Type: kernel.Int32, Count: 16}
		w.Place(c, m.Rank(), 4)
		first, err := v.Verify(m, c, w)
		if err != nil || first.Wrong != 0 {
			t.Errorf("first call: %+v, %v", first, err)
		}
		if r, err := v.Repeat(m, c, w); err != nil || r != first {
			t.Errorf("the same call again: %+v after %+v, %v", r, first, err)
		}
		if r, err := v.Verify(m, c, w); err != nil || r.Wrong != 16 || r.Digest != first.Digest {
			t.Errorf("an old result: %+v, want 16 wrong, %v", r, err)
		}
		return nil
	})
}

func TestTimeIsTheSlowestRanks(t *testing.T) {
	h := benchtest.New(3)
	h.Delay[2] = 3 * time.Millisecond
	times := make([]float64, 3)
	h.Together(t, func(m *benchtest.Member) error {
		w, _ := bench.NewWindow(m, 64, false, false)
		c := &bench.Call{Collective: bench.AllReduce, Type: kernel.Int32, Count: 4}
		w.Place(c, m.Rank(), 0)
		var err error
		times[m.Rank()], err = bench.Measure(context.Background(), m, c, bench.Plan{Warmup: 2, Iterations: 5, Calls: 3})
		return err
	})
	if times[0] != times[1] || times[1] != times[2] {
		t.Errorf("the ranks disagree: %v", times)
	}
	if times[0] < 3000 {
		t.Errorf("%v µs, but one rank takes 3000 a call", times[0])
	}
	for r, n := range h.Calls {
		if n != (2+5)*3 {
			t.Errorf("rank %d made %d calls, want 21", r, n)
		}
	}
}

func TestRowNamesTheAlgorithm(t *testing.T) {
	o := options(bench.AllGather)
	o.Registered = true
	rows := sweep(t, benchtest.New(2), o)
	r := rows[len(rows)-1]
	if r.Bytes != 1024 || r.Count != 128 || r.Op != "none" || r.Root != -1 || r.Ranks != 2 || r.Algorithm != "plain" || r.Transport != "fake" ||
		!r.Registered || r.InPlace || r.Iterations != 3 || r.Calls != 2 || r.DType != "i32" {
		t.Errorf("%+v", r)
	}
	if want := 1024 / r.TimeUS / 1e3; r.AlgBW != want || r.BusBW != want/2 {
		t.Errorf("bandwidths %v and %v, want %v and half of it", r.AlgBW, r.BusBW, want)
	}
}

func TestBadOptions(t *testing.T) {
	for name, change := range map[string]func(*bench.Options){
		"none":      func(o *bench.Options) { o.Collective = 0 },
		"in place":  func(o *bench.Options) { o.Collective, o.InPlace = bench.AllToAllV, true },
		"root":      func(o *bench.Options) { o.Collective, o.Root = bench.Broadcast, 1 },
		"root of":   func(o *bench.Options) { o.Root = 1 },
		"negative":  func(o *bench.Options) { o.Plan.Calls = -1 },
		"algorithm": func(o *bench.Options) { o.Algorithm = "plane" },
		"size":      func(o *bench.Options) { o.Sizes.Max = 1 << 41 },
	} {
		o := options(bench.AllReduce)
		change(&o)
		err := bench.Run(context.Background(), benchtest.New(1).Member(0), o, bench.Served{}, nil, nil, nil)
		if !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), o.Collective.String()) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCancelEndsTheLoop(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("enough")
	cancel(why)
	m := benchtest.New(1).Member(0)
	if _, err := bench.Measure(ctx, m, &bench.Call{Type: kernel.Int32}, bench.DefaultPlan(1)); !errors.Is(err, why) {
		t.Errorf("a canceled measurement ends with %v", err)
	}
}

// barred is a member whose barrier fails after some that do not.
type barred struct {
	bench.Group
	after int
}

func (b *barred) Barrier() error {
	if b.after--; b.after < 0 {
		return errors.New("no way")
	}
	return b.Group.Barrier()
}

func TestErrorNamesTheIteration(t *testing.T) {
	for after, want := range map[int]string{0: "barrier before warm-up iteration 1 of 5", 5: "barrier before iteration 1 of 200", 6: "barrier before iteration 2 of 200"} {
		g := &barred{benchtest.New(1).Member(0), after}
		_, err := bench.Measure(t.Context(), g, &bench.Call{Type: kernel.Int32}, bench.DefaultPlan(1))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("after %d barriers: %v: expected %q", after, err, want)
		}
	}
}

func TestDefaultPlan(t *testing.T) {
	for bytes, want := range map[int64]bench.Plan{
		0: {Warmup: 5, Iterations: 200, Calls: 64}, 1024: {Warmup: 5, Iterations: 200, Calls: 64}, 64 << 10: {Warmup: 5, Iterations: 200, Calls: 16}, 256 << 10: {Warmup: 5, Iterations: 100, Calls: 4}, 1 << 20: {Warmup: 5, Iterations: 100, Calls: 1}, 16 << 20: {Warmup: 5, Iterations: 20, Calls: 1},
	} {
		if got := bench.DefaultPlan(bytes); got != want {
			t.Errorf("bench.DefaultPlan(%d) = %v, want %v", bytes, got, want)
		}
	}
}
