package collectivetest

import (
	"errors"
	"strings"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// honest is a rank of a job that performs trials as it should, from what trials say of
// themselves. The inputs of the other ranks it knows, as the seed is always the same.
func honest(rank, ranks int, room int) Rig {
	return Rig{Rank: rank, Ranks: ranks, In: make(Bytes, room), Out: make(Bytes, room), Call: func(t Trial, in, out unsafe.Pointer) error {
		inputs := t.Inputs(ranks, seed)
		nin, _ := t.Elements(ranks)
		if got := unsafe.Slice((*byte)(in), nin*t.Type.Size()); string(got) != string(inputs[rank]) {
			return errors.New("the input is not there")
		}
		want := t.Expect(rank, inputs)
		copy(unsafe.Slice((*byte)(out), len(want)), want)
		return nil
	}}
}

const seed = 5

// all lists trials that differ in everything.
func all(ranks int) (trials []Trial) {
	for i, k := range Kinds() {
		for _, inPlace := range []bool{false, true} {
			trials = append(trials, Trial{Kind: k, Count: 1 + 37*i, Type: kernel.DataType(i % kernel.DataTypes), Op: kernel.Op(i % kernel.Ops), Root: i % ranks, InPlace: inPlace, Shift: i % 3})
		}
	}
	return trials
}

func TestHonestRanksPass(t *testing.T) {
	for _, ranks := range []int{1, 2, 5} {
		for _, x := range all(ranks) {
			nin, nout := x.Elements(ranks)
			room := (max(nin, nout)+x.Shift)*x.Type.Size() + Margin
			for rank := range ranks {
				if err := x.Run(honest(rank, ranks, room), seed); err != nil {
					t.Errorf("rank %d of %d: %v", rank, ranks, err)
				}
			}
			if err := x.Run(honest(0, ranks, room-1), seed); err == nil || !strings.Contains(err.Error(), "margin") {
				t.Errorf("%v: in too little memory: %v, expected an error that says so", x, err)
			}
		}
	}
}

// Every way to be wrong is found, and named, by a rank that gets a result and by one
// that gets none.
func TestMistakesAreFound(t *testing.T) {
	const ranks, room = 3, 1 << 12
	whole := Trial{Kind: collectives.AllReduce, Count: 100, Type: kernel.Int32}
	none := Trial{Kind: collectives.Reduce, Count: 100, Type: kernel.Int32, Root: 2}
	placed := Trial{Kind: collectives.AllGather, Count: 30, Type: kernel.Int32, InPlace: true}
	scattered := Trial{Kind: collectives.ReduceScatter, Count: 30, Type: kernel.Int32, InPlace: true}
	broken := errors.New("broken")
	flip := func(p unsafe.Pointer, at int) { *(*byte)(unsafe.Add(p, at)) ^= 0x11 }
	for _, c := range []struct {
		name   string
		trial  Trial
		change func(in, out unsafe.Pointer) error
		want   string
	}{
		{"first element", whole, func(_, out unsafe.Pointer) error { flip(out, 0); return nil }, "1 wrong elements of 100"},
		{"last element", whole, func(_, out unsafe.Pointer) error { flip(out, 399); return nil }, "1 wrong elements of 100"},
		{"the byte before", whole, func(_, out unsafe.Pointer) error { flip(out, -1); return nil }, "beyond the output"},
		{"the byte behind", whole, func(_, out unsafe.Pointer) error { flip(out, 400); return nil }, "beyond the output"},
		{"far behind", whole, func(_, out unsafe.Pointer) error { flip(out, 400+guard-1); return nil }, "beyond the output"},
		{"the input", whole, func(in, _ unsafe.Pointer) error { flip(in, 7); return nil }, "the input changed"},
		{"an output for nobody", none, func(_, out unsafe.Pointer) error { flip(out, 200); return nil }, "gets nothing was written"},
		{"another's block", placed, func(_, out unsafe.Pointer) error { flip(out, 121); return nil }, "1 wrong elements of 90"},
		{"before, in place", placed, func(_, out unsafe.Pointer) error { flip(out, -1); return nil }, "beyond the output"},
		{"behind, in place", placed, func(_, out unsafe.Pointer) error { flip(out, 360); return nil }, "beyond the output"},
		{"behind the input that is also output", scattered, func(in, _ unsafe.Pointer) error { flip(in, 360); return nil }, "beyond the output"},
		{"an error", whole, func(_, _ unsafe.Pointer) error { return broken }, "broken"},
	} {
		for _, shift := range []int{0, 3} {
			x := c.trial
			x.Shift = shift
			r := honest(0, ranks, room)
			call := r.Call
			r.Call = func(t Trial, in, out unsafe.Pointer) error { return errors.Join(call(t, in, out), c.change(in, out)) }
			if err := x.Run(r, seed); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), x.String()) {
				t.Errorf("%s: %v: expected an error that names the trial and says %q", c.name, err, c.want)
			}
		}
	}
	// Rounding is no mistake where partial results are rounded, and nowhere else.
	rounded := Trial{Kind: collectives.AllReduce, Count: 10, Type: kernel.BFloat16}
	for _, x := range []struct {
		partial   bool
		algorithm string
		want      string
	}{{true, "", ""}, {false, "ring", ""}, {false, "", "1 wrong elements of 10"}, {true, "ports", "1 wrong elements of 10"}} {
		r := honest(0, ranks, room)
		call := r.Call
		r.Partial, rounded.Algorithm = x.partial, x.algorithm
		r.Call = func(t Trial, in, out unsafe.Pointer) error {
			err := call(t, in, out)
			b := unsafe.Slice((*byte)(out), 20)
			put(b, t.Type, 3, get(b, t.Type, 3)+0.5) // more than one rounding of its largest partial result, less than three
			return err
		}
		if err := rounded.Run(r, seed); (x.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), x.want) {
			t.Errorf("%+v: %v", x, err)
		}
	}
	// An element that is not computed at all is found as well.
	r := honest(0, ranks, room)
	r.Call = func(Trial, unsafe.Pointer, unsafe.Pointer) error { return nil }
	if err := whole.Run(r, seed); err == nil || !strings.Contains(err.Error(), "wrong elements") {
		t.Errorf("a call that does nothing: %v", err)
	}
}

// A recorded call is not performed by that; each launch is checked, and what was
// recorded is freed whatever happens.
func TestGraphs(t *testing.T) {
	x := Trial{Kind: collectives.AllReduce, Count: 10, Type: kernel.Float32, Graph: true}
	r := honest(1, 2, 1<<12)
	if err := x.Run(r, seed); err == nil || !strings.Contains(err.Error(), "nothing to record") {
		t.Errorf("without graphs: %v", err)
	}
	launched, freed, settled, spoil := 0, 0, 0, 0
	r.Graph = func(call func() error) (launch, free func() error, err error) {
		return func() error {
			if launched++; launched == spoil {
				return nil
			}
			return call()
		}, func() error { freed++; return errors.New("in use") }, nil
	}
	r.Settle = func() error { settled++; return nil }
	if err := x.Run(r, seed); err == nil || !strings.Contains(err.Error(), "in use") || launched != replays || freed != 1 || settled != replays {
		t.Errorf("%v, %d launches, %d settled, %d freed: expected %d, and the error of freeing", err, launched, settled, freed, replays)
	}
	launched, spoil = 0, 2
	if err := x.Run(r, seed); err == nil || !strings.Contains(err.Error(), "wrong elements") || launched != 2 || freed != 2 {
		t.Errorf("the second launch does nothing: %v after %d launches, %d freed", err, launched, freed)
	}
	r.Graph = func(func() error) (launch, free func() error, err error) { return nil, nil, errors.New("no capture") }
	if err := x.Run(r, seed); err == nil || !strings.Contains(err.Error(), "capture: no capture") {
		t.Errorf("%v: expected the error of recording", err)
	}
	r.Settle = func() error { return errors.New("lost") }
	x.Graph = false
	if err := x.Run(r, seed); err == nil || !strings.Contains(err.Error(), "lost") {
		t.Errorf("%v: expected the error of waiting", err)
	}
}

// Trials expect the results that define the collectives.
func TestExpect(t *testing.T) {
	inputs := [][]byte{{1, 2, 3}, {10, 20, 30}, {100, 110, 120}}
	for _, c := range []struct {
		kind  collectives.Collective
		count int
		want  [3][]byte
	}{
		{collectives.AllReduce, 3, [3][]byte{{111, 132, 153}, {111, 132, 153}, {111, 132, 153}}},
		{collectives.Reduce, 3, [3][]byte{1: {111, 132, 153}}},
		{collectives.ReduceScatter, 1, [3][]byte{{111}, {132}, {153}}},
		{collectives.Broadcast, 3, [3][]byte{{10, 20, 30}, {10, 20, 30}, {10, 20, 30}}},
		{collectives.AllGather, 3, [3][]byte{{1, 2, 3, 10, 20, 30, 100, 110, 120}, {1, 2, 3, 10, 20, 30, 100, 110, 120}, {1, 2, 3, 10, 20, 30, 100, 110, 120}}},
		{collectives.Gather, 3, [3][]byte{1: {1, 2, 3, 10, 20, 30, 100, 110, 120}}},
		{collectives.Scatter, 1, [3][]byte{{10}, {20}, {30}}},
		{collectives.AllToAll, 1, [3][]byte{{1, 10, 100}, {2, 20, 110}, {3, 30, 120}}},
	} {
		x := Trial{Kind: c.kind, Count: c.count, Type: kernel.Uint8, Root: 1}
		for rank, want := range c.want {
			got := x.Expect(rank, inputs)
			if string(got) != string(want) || (got == nil) != (want == nil) {
				t.Errorf("%v: rank %d gets %v, expected %v", c.kind, rank, got, want)
			}
		}
		if r := x.Request(3); r.Collective != c.kind || int(r.Bytes) != max(len(inputs[0]), len(c.want[1])) || r.Root != 1 {
			t.Errorf("%v: request %+v", c.kind, r)
		}
	}
}

// Ranks of a process share the data of one trial, and never that of another.
func TestSharedData(t *testing.T) {
	const ranks = 3
	x := Trial{Kind: collectives.ReduceScatter, Count: 100, Type: kernel.Int32, Op: kernel.PreMulSum}
	d := x.data(ranks, seed)
	if x.data(ranks, seed) != d {
		t.Error("two ranks compute the same data")
	}
	for name, other := range map[string]*data{
		"seed": x.data(ranks, seed+1), "ranks": x.data(ranks+1, seed),
		"count": Trial{Kind: x.Kind, Count: 101, Type: x.Type, Op: x.Op}.data(ranks, seed),
		"type":  Trial{Kind: x.Kind, Count: 100, Type: kernel.Uint32, Op: x.Op}.data(ranks, seed),
		"op":    Trial{Kind: x.Kind, Count: 100, Type: x.Type, Op: kernel.Sum}.data(ranks, seed),
	} {
		if other == d {
			t.Errorf("trials of another %s have the same data", name)
		}
	}
	for rank := range ranks { // each has its own part of what is reduced at once
		parts := make([][]byte, ranks)
		for r, in := range x.Inputs(ranks, seed) {
			parts[r] = in[400*rank:][:400]
		}
		part := Trial{Kind: collectives.AllReduce, Count: 100, Type: x.Type, Op: x.Op}
		want := part.reduce(parts)
		if got := x.expect(rank, d.inputs(), d.reduced); string(got) != string(want) {
			t.Errorf("rank %d: not the reduction of its part", rank)
		}
	}
}
