package dsl_test

import (
	"errors"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/plan/dsl"
)

// line is the line of its caller.
func line() int {
	_, _, n, _ := runtime.Caller(1)
	return n
}

type mistake struct {
	kind dsl.Kind
	text string
	make func(p *dsl.Program) int // the line of the mistake
}

// wrong is a program for two ranks with two chunks of input and of output each, and two of scratch.
type wrong struct {
	p        *dsl.Program
	in, out  [2]dsl.Buffer
	s        [2]dsl.Buffer
	ch       dsl.MemoryChannel // from 0 to 1
	port     dsl.PortChannel
	one, two dsl.On
}

func newWrong(p *dsl.Program) wrong {
	w := wrong{p: p, ch: p.MemoryChannel(1, 0), port: p.PortChannel(1, 0), one: dsl.Block(0), two: dsl.Blocks(p.Group(0, 1))}
	for r := range 2 {
		w.in[r], w.out[r], w.s[r] = p.Input(r), p.Output(r), p.Scratch(r, 2)
	}
	return w
}

func mistakes(w wrong) []mistake {
	p, a, b := w.p, w.in[0].At(0), w.in[1].At(0)
	wide := w.in[0].All()
	both := func(c ...dsl.Chunk) []dsl.Chunk { return c }
	const neither = "Either 'tb' (thread block ID) or 'tb_group' (ThreadBlockGroup) must be provided, but both are None."
	return []mistake{
		{dsl.RuntimeError, "Rank 2 is out of bounds. Number of ranks: 2", func(*dsl.Program) int { p.Rank(2); return line() }},
		{dsl.RuntimeError, "Rank -1 is out of bounds. Number of ranks: 2", func(*dsl.Program) int { p.Input(-1).At(0); return line() }},
		{dsl.RuntimeError, "Rank 2 is out of bounds. Number of ranks: 2", func(*dsl.Program) int { p.Scratch(2, 1); return line() }},
		{dsl.ValueError, "Buffer size must be between 0 and 16777214 chunks (got -1)", func(*dsl.Program) int { p.Scratch(1, -1); return line() }},
		{dsl.ValueError, "Buffer slicing does not support negative indices (got start=-1, stop=1)", func(*dsl.Program) int { w.in[0].Slice(-1, 1); return line() }},
		{dsl.ValueError, "Buffer slice start (2) must be <= stop (1)", func(*dsl.Program) int { w.in[0].Slice(2, 1); return line() }},
		{dsl.RuntimeError, "Index range from 1 - 3 is out of bounds for buffer i. Buffer size: 2", func(*dsl.Program) int { w.in[0].Slice(1, 3); return line() }},
		{dsl.RuntimeError, "Source rank 2 is out of bounds. Number of ranks: 2", func(*dsl.Program) int { p.MemoryChannel(0, 2); return line() }},
		{dsl.RuntimeError, "Destination rank 2 is out of bounds. Number of ranks: 2", func(*dsl.Program) int { p.PortChannel(2, 0); return line() }},
		{dsl.RuntimeError, "Source rank 2 is out of bounds. Number of ranks: 2", func(*dsl.Program) int { p.Semaphore(2, 0); return line() }},
		{dsl.RuntimeError, "One or more ranks in [0, 1, 2] are out of bounds. Number of ranks: 2", func(*dsl.Program) int { p.SwitchChannel([]int{0, 1, 2}, dsl.InputBuffer); return line() }},
		{dsl.RuntimeError, "Rank 2 is not part of this SwitchChannel's rank group.", func(*dsl.Program) int { p.SwitchChannel([]int{0, 1}, dsl.InputBuffer).At(2); return line() }},
		{dsl.ValueError, "Duplicate thread block found at index 2: 0", func(*dsl.Program) int { p.Group(0, 1, 0); return line() }},
		{dsl.ValueError, "Thread block 2 not found in thread block group", func(*dsl.Program) int { p.Rank(0).Copy(a, a, dsl.Slice(p.Group(0, 1), 2)); return line() }},
		{dsl.RuntimeError, "Thread block -1 is out of bounds. Thread blocks are numbered from 0 to 4095", func(*dsl.Program) int { w.ch.Signal(-1); return line() }},

		{dsl.RuntimeError, "Inconsistent ranks: dst 1, src 0, self 0. They must match.", func(*dsl.Program) int { p.Rank(0).Copy(b, a, w.one); return line() }},
		{dsl.RuntimeError, "Inconsistent chunk sizes: dst 1, src 2. They must match.", func(*dsl.Program) int { p.Rank(0).Copy(a, wide, w.two); return line() }},
		{dsl.RuntimeError, "Source chunk must be of type scratch.", func(*dsl.Program) int { p.Rank(0).UnpackPackets(a, a, w.one); return line() }},
		{dsl.RuntimeError, "Destination chunk must be of type scratch.", func(*dsl.Program) int { p.Rank(0).CopyPackets(a, a, w.one); return line() }},
		{dsl.RuntimeError, neither, func(*dsl.Program) int { p.Rank(0).Copy(a, a, dsl.On{}); return line() }},
		{dsl.RuntimeError, "Other chunk empty.", func(*dsl.Program) int { p.Rank(0).Reduce(a, a, nil, w.one); return line() }},
		{dsl.RuntimeError, "Other chunk rank 1 does not match current rank 0.", func(*dsl.Program) int { p.Rank(0).Reduce(a, a, both(b), w.one); return line() }},
		{dsl.RuntimeError, "Inconsistent chunk sizes: other 2, src 1. They must match.", func(*dsl.Program) int { p.Rank(0).Reduce(a, a, both(wide), w.one); return line() }},
		{dsl.RuntimeError, "Other chunk must be of type scratch.", func(*dsl.Program) int { p.Rank(0).ReducePackets(a, a, both(a), w.one); return line() }},
		{dsl.RuntimeError, "Barrier requires at least thread block.", func(*dsl.Program) int { p.Rank(0).Barrier(); return line() }},

		{dsl.RuntimeError, "Source chunk rank 1 does not match current channel source rank 0.", func(*dsl.Program) int { w.ch.Put(b, b, w.one); return line() }},
		{dsl.RuntimeError, "Dst chunk rank 0 does not match current channel dst rank 1.", func(*dsl.Program) int { w.port.Put(a, a, 0); return line() }},
		{dsl.RuntimeError, "Destination chunk size 1 does not match source chunk size 2.", func(*dsl.Program) int { w.port.PutWithSignal(b, wide, 0); return line() }},
		{dsl.RuntimeError, "Destination chunk must be of type scratch.", func(*dsl.Program) int { w.ch.PutPackets(b, a, w.one); return line() }},
		{dsl.RuntimeError, "Source chunk must be of type scratch.", func(*dsl.Program) int { w.ch.ReadPutPackets(b, a, w.one); return line() }},
		{dsl.ValueError, neither, func(*dsl.Program) int { w.ch.ReadPutPackets(w.s[1].At(0), w.s[0].At(0), dsl.On{}); return line() }},
		{dsl.RuntimeError, "Source chunk rank 1 does not match current channel source rank 0.", func(*dsl.Program) int { w.ch.Get(b, b, w.one); return line() }},
		{dsl.RuntimeError, "Dst chunk rank 0 does not match current channel dst rank 1.", func(*dsl.Program) int { w.ch.Get(a, a, w.one); return line() }},
		{dsl.RuntimeError, "Destination chunk size 2 does not match source chunk size 1.", func(*dsl.Program) int { w.ch.Get(wide, b, w.one); return line() }},
		{dsl.RuntimeError, "Destination chunk rank 1 does not match current channel source rank 0.", func(*dsl.Program) int { w.ch.Reduce(b, b, both(b), w.one); return line() }},
		{dsl.RuntimeError, "Destination chunk rank 1 does not match current channel source rank 0.", func(*dsl.Program) int { w.ch.Reduce(b, a, both(b), w.one); return line() }},
		{dsl.RuntimeError, "Source chunk size 1 does not match destination chunk size 2.", func(*dsl.Program) int { w.ch.Reduce(wide, a, both(b), w.one); return line() }},
		{dsl.RuntimeError, "Source chunk rank 0 does not match current channel dst rank 1.", func(*dsl.Program) int { w.ch.Reduce(a, a, both(a), w.one); return line() }},
		{dsl.RuntimeError, "Source chunk size 1 does not match local source chunk size 2.", func(*dsl.Program) int { w.ch.Reduce(wide, wide, both(b), w.one); return line() }},
		{dsl.RuntimeError, "Nested Pipelines are not Supported.", func(*dsl.Program) int { p.BeginLoop(1, 1); p.BeginLoop(1, 1); return line() }},
	}
}

func switchMistakes(w wrong) []mistake {
	p := w.p
	v := p.SwitchChannel([]int{0, 1}, dsl.ScratchBuffer).At(0)
	in := p.SwitchChannel([]int{0, 1}, dsl.InputBuffer).At(0)
	third := dsl.Chunk{Rank: 2, Type: dsl.InputBuffer, Size: 1}
	return []mistake{
		{dsl.RuntimeError, "Destination chunk rank 2 is not part of the rank group [0, 1].", func(*dsl.Program) int { v.Reduce(0, 1, third, 0); return line() }},
		{dsl.RuntimeError, "Destination chunk size 1 does not match the required size 2.", func(*dsl.Program) int { v.Broadcast(w.in[0].At(0), 0, 2, 0); return line() }},
		{dsl.RuntimeError, "Buffer size 2 is smaller than required size 3 for rank 0.", func(*dsl.Program) int { v.Reduce(2, 1, w.in[0].At(0), 0); return line() }},
		{dsl.RuntimeError, "Source chunk must be of type scratch for the packet broadcast.", func(*dsl.Program) int { v.BroadcastPackets(w.in[0].At(0), 0, 1, 0); return line() }},
		{dsl.RuntimeError, "Destination buffer must be of type scratch for the packet broadcast.", func(*dsl.Program) int { in.BroadcastPackets(w.s[0].At(0), 0, 1, 0); return line() }},
		{dsl.RuntimeError, "Source chunk size 1 does not match the required size 2.", func(*dsl.Program) int { v.BroadcastPackets(w.s[0].At(0), 0, 2, 0); return line() }},
	}
}

func build() wrong { return newWrong(dsl.New(dsl.Test(2, 2, 2), dsl.Options{Protocol: dsl.LL})) }

// TestMistakes makes every mistake and expects its kind, its text and its line.
func TestMistakes(t *testing.T) {
	for i := range mistakes(build()) {
		expectMistake(t, func() (wrong, mistake) { w := build(); return w, mistakes(w)[i] })
	}
	for i := range switchMistakes(build()) {
		expectMistake(t, func() (wrong, mistake) { w := build(); return w, switchMistakes(w)[i] })
	}
}

func expectMistake(t *testing.T, make func() (wrong, mistake)) {
	w, m := make()
	t.Run(m.text, func(t *testing.T) {
		if err := w.p.Err(); err != nil {
			t.Fatalf("before the mistake: %v", err)
		}
		at := m.make(w.p)
		_, err := w.p.Compile()
		var e *dsl.Error
		if !errors.As(err, &e) || !errors.Is(err, framework.ErrInvalid) {
			t.Fatalf("got %v, expected a mistake of class ErrInvalid", err)
		}
		if e.Kind != m.kind || e.Text != m.text {
			t.Errorf("got %s: %s\nexpected %s: %s", e.Kind, e.Text, m.kind, m.text)
		}
		if filepath.Base(e.File) != "errors_test.go" || e.Line != at {
			t.Errorf("got %s:%d, expected errors_test.go:%d", e.File, e.Line, at)
		}
	})
}

// TestWrongPrograms has the mistakes that New finds.
func TestWrongPrograms(t *testing.T) {
	for _, c := range []struct {
		of   dsl.Collective
		opt  dsl.Options
		kind dsl.Kind
		text string
	}{
		{dsl.Test(1, 1, 1), dsl.Options{Protocol: "LL128"}, dsl.AssertionError, "Given protocol: LL128. Must be either Simple, LL"},
		{dsl.Test(1, 1, 1), dsl.Options{Ranks: 2}, dsl.IndexError, "The program has 2 ranks, its collective input buffers for 1 and output buffers for 1"},
		{dsl.Test(1, 1, 1), dsl.Options{Instances: -1}, dsl.ValueError, "Number of instances must be between 1 and 4096 (got -1)"},
		{dsl.Test(0, 1, 1), dsl.Options{}, dsl.ValueError, "Number of ranks must be between 1 and 8192 (got 0)"},
		{dsl.Test(1, -1, 1), dsl.Options{}, dsl.ValueError, "Buffer size must be between 0 and 16777216 chunks (got -1 of input and 1 of output for rank 0)"},
	} {
		p := dsl.New(c.of, c.opt)
		at := line() - 1
		p.Input(0).At(0) // has no effect any more
		var e *dsl.Error
		if !errors.As(p.Err(), &e) || e.Kind != c.kind || e.Text != c.text || e.Line != at {
			t.Errorf("got %v, expected %s at line %d: %s", p.Err(), c.kind, at, c.text)
		}
	}
}

// TestUnmatchedSignal expects the line of the last signal if there are too few waits for it, and the other way round.
func TestUnmatchedSignal(t *testing.T) {
	w := build()
	back := w.p.MemoryChannel(0, 1)
	w.ch.Signal(0)
	w.ch.Signal(0)
	signal := line() - 1
	back.Wait(0)
	expectUnmatched(t, w.p, signal, "rank 0 issues 2 signal(s) to rank 1, but rank 1 performs 1 wait(s) for rank 0.")
	back.Wait(0)
	if _, err := w.p.Compile(); err != nil {
		t.Fatalf("with the second wait: %v", err)
	}
	back.Wait(0)
	wait := line() - 1
	expectUnmatched(t, w.p, wait, "rank 0 issues 2 signal(s) to rank 1, but rank 1 performs 3 wait(s) for rank 0.")
	w.ch.Signal(0)
	w.port.PutWithSignal(w.in[1].At(0), w.in[0].At(0), 0)
	put := line() - 1
	expectUnmatched(t, w.p, put, "on port: rank 0 issues 1 signal(s) to rank 1, but rank 1 performs 0 wait(s)")
}

func expectUnmatched(t *testing.T, p *dsl.Program, line int, text string) {
	t.Helper()
	_, err := p.Compile()
	var e *dsl.Error
	if !errors.As(err, &e) || e.Kind != dsl.RuntimeError || e.Line != line || !strings.Contains(e.Text, text) {
		t.Fatalf("got %v, expected line %d: %s", err, line, text)
	}
}

// TestFirstMistakeStays expects later calls to have no effect until the mistake is forgotten.
func TestFirstMistakeStays(t *testing.T) {
	w := build()
	w.in[0].Slice(1, 3)
	first := w.p.Err()
	w.p.Scratch(0, 5)
	w.in[0].Slice(2, 1)
	w.p.Loop(1, 1, func() { w.ch.Signal(0) })
	if w.p.Err() == nil || w.p.Err().Error() != first.Error() || w.p.ScratchChunks(0) != 2 {
		t.Fatalf("got %v and %d chunks, expected %v and 2", w.p.Err(), w.p.ScratchChunks(0), first)
	}
	w.p.Recover()
	if w.p.Scratch(0, 5); w.p.Err() != nil || w.p.ScratchChunks(0) != 7 {
		t.Fatalf("after Recover: %v and %d chunks, expected 7", w.p.Err(), w.p.ScratchChunks(0))
	}
	if _, err := w.p.Compile(); err != nil {
		t.Fatal(err)
	}
}

// TestOpenLoop expects the line of Compile.
func TestOpenLoop(t *testing.T) {
	w := build()
	w.p.BeginLoop(1<<20, 1)
	_, err := w.p.Compile()
	at := line() - 1
	var e *dsl.Error
	if !errors.As(err, &e) || e.Line != at || e.Kind != dsl.RuntimeError {
		t.Fatalf("got %v, expected a mistake at line %d", err, at)
	}
}
