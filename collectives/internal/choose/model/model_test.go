package model

import (
	"math"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/collective"
)

var collectives = []collective.Kind{
	collective.AllReduce, collective.AllGather, collective.ReduceScatter, collective.Broadcast, collective.Reduce, collective.AllToAll,
}

var costs = []*Cost{OnceByWords, OnceByLines, OnceBare, TwiceByLines, OnceByManyWords, TwiceByManyWords, Stream, Push, Pull, Pipes, Fetch, Stages, Copies, Staged}

// h200 are the links of eight H200s.
func h200() Links { return OverNVLink(18, 4, 7, true, MemoryOf("NVIDIA H200")) }

// each calls f for every call that the model knows over links.
func each(l Links, f func(by *Cost, c Call, us float64)) {
	for _, k := range collectives {
		for _, by := range costs {
			for _, ranks := range []int{2, 3, 4, 8, 16} {
				for bytes := uint64(1); bytes <= 16<<30; bytes *= 4 {
					c := Call{Collective: k, Ranks: ranks, Bytes: bytes, CopyScratch: 1 << 30}
					if us, known := l.Time(by, c); known {
						f(by, c, us)
					}
				}
			}
		}
	}
}

// Nothing takes longer because a link, or memory, is faster or nearer.
func TestBetterLinksAreNotSlower(t *testing.T) {
	for name, better := range map[string]func(*Links){
		"stores":  func(l *Links) { l.Store *= 1.3 },
		"loads":   func(l *Links) { l.Load *= 1.3 },
		"copies":  func(l *Links) { l.Copy, l.Each = l.Copy*1.3, l.Each*1.3 },
		"memory":  func(l *Links) { l.Memory *= 1.3 },
		"latency": func(l *Links) { l.Latency /= 2 },
	} {
		changed := 0
		for _, from := range []Links{h200(), OverPCIe(25, 300), OverHost(31.5), OverNVLink(12, 3, 3, false, 1555)} {
			to := from
			better(&to)
			each(from, func(by *Cost, c Call, us float64) {
				again, known := to.Time(by, c)
				if !known || again > us {
					t.Errorf("better %s: %+v takes %.3f µs, and %.3f before", name, c, again, us)
				}
				if again < us {
					changed++
				}
			})
		}
		if changed == 0 {
			t.Errorf("better %s: no call is faster", name)
		}
	}
}

// More bytes do not take less time, nor does a call take less than a launch.
func TestMoreBytesAreNotFaster(t *testing.T) {
	last, at, of := 0.0, Call{}, (*Cost)(nil)
	calls := 0
	each(h200(), func(by *Cost, c Call, us float64) {
		calls++
		same := c
		same.Bytes = at.Bytes
		if same == at && by == of && us < last {
			t.Errorf("%+v takes %.3f µs, and %d bytes %.3f", c, us, at.Bytes, last)
		}
		if us <= launch || math.IsNaN(us) || math.IsInf(us, 0) {
			t.Errorf("%+v takes %v µs: expected more than a launch", c, us)
		}
		last, at, of = us, c, by
	})
	if calls < 1000 {
		t.Errorf("the model knows %d calls: expected at least 1000", calls)
	}
}

func TestUnknownToTheModel(t *testing.T) {
	torn := h200()
	torn.Lines = false
	for name, x := range map[string]struct {
		l  Links
		by *Cost
		c  Call
	}{
		"one rank":               {h200(), OnceByWords, Call{Collective: collective.AllReduce, Ranks: 1, Bytes: 1024}},
		"no cost":                {h200(), nil, Call{Collective: collective.AllReduce, Ranks: 2, Bytes: 1024}},
		"lines that may be torn": {torn, OnceByLines, Call{Collective: collective.AllGather, Ranks: 2, Bytes: 1024}},
		"sums by push":           {h200(), Push, Call{Collective: collective.AllReduce, Ranks: 2, Bytes: 1024}},
		"a broadcast by copies":  {h200(), Copies, Call{Collective: collective.Broadcast, Ranks: 3, Bytes: 1024}},
		"no links":               {Links{}, OnceByWords, Call{Collective: collective.AllReduce, Ranks: 2, Bytes: 1024}},
	} {
		if us, known := x.l.Time(x.by, x.c); known {
			t.Errorf("%s: %.2f µs: expected to be told that it is not known", name, us)
		}
	}
}

// The figures are those of kernels much like these, written as a prototype and measured on eight
// H200s on 2026-11-20. This library was never measured on eight.
func TestEightLikePrototypes(t *testing.T) {
	for _, x := range []struct {
		collective string
		by         *Cost
		bytes      uint64
		us         float64
	}{
		{"allreduce", Pull, 1 << 20, 11.6}, {"allreduce", Pull, 16 << 20, 95.7}, {"allreduce", Pull, 256 << 20, 1472}, {"allreduce", Pull, 1 << 30, 5878},
		{"reducescatter", Pull, 1 << 20, 9.5}, {"reducescatter", Pull, 16 << 20, 51.6}, {"reducescatter", Pull, 256 << 20, 720}, {"reducescatter", Pull, 1 << 30, 2841},
		{"allgather", Push, 1 << 20, 6.9}, {"allgather", Push, 16 << 20, 47.2}, {"allgather", Push, 256 << 20, 688}, {"allgather", Push, 1 << 30, 2727},
		{"alltoall", Push, 1 << 20, 7.0}, {"alltoall", Push, 16 << 20, 47.6}, {"alltoall", Push, 256 << 20, 706}, {"alltoall", Push, 1 << 30, 2746},
	} {
		us, known := h200().Time(x.by, Call{Collective: kind(t, x.collective), Ranks: 8, Bytes: x.bytes})
		if off := us / x.us; !known || off < 0.8 || off > 1.25 {
			t.Errorf("%s of %d KiB: %.1f µs, a prototype took %.1f: expected no more than a quarter between them", x.collective, x.bytes>>10, us, x.us)
		}
	}
}

// Copy engines win what is nearly a draw, and equals go to the first.
func TestBest(t *testing.T) {
	l := h200()
	c := Call{Collective: collective.AllGather, Ranks: 4, Bytes: 96 << 20}
	push, _ := l.Time(Push, c)
	copies, _ := l.Time(Copies, c)
	if copies < push || copies > copyWorth*push {
		t.Fatalf("push %.1f µs, copies %.1f: the test expects them to be near each other", push, copies)
	}
	if at, us, known := l.Best(c, []*Cost{Push, Copies, Stream, nil}); at != 1 || us != copies || !known {
		t.Errorf("%d, %.1f µs, %v: want copies, %.1f", at, us, known, copies)
	}
	c.Bytes = 1 << 20
	if at, _, _ := l.Best(c, []*Cost{Copies, Push}); at != 1 {
		t.Errorf("1 MiB by %d: copies begin late", at)
	}
	if at, _, known := l.Best(c, []*Cost{nil, Fetch}); known || at != 0 {
		t.Errorf("%d: nothing is known", at)
	}
	if at, _, _ := l.Best(c, []*Cost{nil, OnceByManyWords, OnceByManyWords}); at != 1 {
		t.Errorf("%d: the first of equals", at)
	}
}

func TestLinksOfMachines(t *testing.T) {
	l := h200()
	if math.Abs(l.Store-365) > 1 || math.Abs(l.Load-334) > 1 || math.Abs(l.Copy-390) > 1 || l.Each != l.Copy || l.Memory != 4800 || !l.Lines {
		t.Errorf("H200: %v", l)
	}
	// MSCCL++ publishes 244 to 255 GB/s for A100s.
	if a := OverNVLink(12, 3, 7, true, 1555); a.Store < 235 || a.Store > 260 {
		t.Errorf("A100: %v", a)
	}
	if b := OverNVLink(18, 5, 7, true, 8000); b.Store != 2*l.Store {
		t.Errorf("B200: %v, twice the links of H200 carry", b)
	}
	if d := OverNVLink(12, 3, 3, false, 1555); math.Abs(3*d.Each-d.Copy) > 1e-9 || d.Store != OverNVLink(12, 3, 3, true, 1555).Store {
		t.Errorf("links to each peer: %v", d)
	}
	if p := OverPCIe(63, 600); p.Copy < 54 || p.Copy > 56 || p.Lines || p.Latency <= l.Latency {
		t.Errorf("PCIe 5: %v", p)
	}
	if h := OverHost(31.5); h.Memory >= 100 || h.Latency <= busLatency {
		t.Errorf("memory of the host: %v", h)
	}
	if old := OverNVLink(1, 1, 1, true, 1); old.Store >= OverNVLink(1, 2, 1, true, 1).Store {
		t.Errorf("version 1: %v", old)
	}
}

func TestSlowerOfTwo(t *testing.T) {
	a, b := h200(), OverPCIe(31.5, 9000)
	s := a.Slower(b)
	if s.Store != b.Store || s.Latency != b.Latency || s.Memory != a.Memory || s.Lines || s != b.Slower(a) {
		t.Errorf("%v", s)
	}
}

func TestMemoryByName(t *testing.T) {
	for name, want := range map[string]float64{
		"NVIDIA H200": 4800, "NVIDIA H20": 4000, "NVIDIA GH200 480GB": 4000, "NVIDIA H100 80GB HBM3": 3350, "NVIDIA A100-SXM4-40GB": 1555,
		"NVIDIA A10G": 600, "NVIDIA L40S": 864, "NVIDIA L4": 300, "NVIDIA B200": 8000, "something": 600,
	} {
		if got := MemoryOf(name); got != want {
			t.Errorf("%s: %.0f GB/s, want %.0f", name, got, want)
		}
	}
}

func kind(t *testing.T, name string) collective.Kind {
	t.Helper()
	k, err := collective.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	return k
}
