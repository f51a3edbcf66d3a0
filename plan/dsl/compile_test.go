package dsl_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/mscclpp-go/mscclpp/plan/dsl"
	"github.com/mscclpp-go/mscclpp/plan/schema"
)

func compile(t *testing.T, p *dsl.Program) *schema.Plan {
	t.Helper()
	plan, err := p.Compile()
	if err != nil {
		t.Fatal(err)
	}
	if err := plan.Check(); err != nil {
		t.Fatal(err)
	}
	return plan
}

// names are the operations of a block.
func names(plan *schema.Plan, rank, block int) []schema.OpName {
	var out []schema.OpName
	for _, o := range plan.GPUs[rank].Blocks[block].Ops {
		out = append(out, o.Name)
	}
	return out
}

// TestCompileAgain compiles a program twice, and once more after it went on.
func TestCompileAgain(t *testing.T) {
	p := dsl.New(dsl.AllReduce(2, 1, true), dsl.Options{Name: "again", Instances: 2, Protocol: dsl.LL})
	reducePackets(p)
	first := compile(t, p).Encode(2)
	if again := compile(t, p).Encode(2); !bytes.Equal(first, again) {
		t.Fatal("compiling again gives another plan")
	}
	p.Rank(0).Barrier(0)
	if longer := compile(t, p); len(longer.Encode(2)) <= len(first) {
		t.Fatal("an operation after the first compilation is not in the plan")
	}
}

// TestInstancesKeepPacketsApart expects the packets of a fused reduction at another place in every instance, except
// where the mistake of MSCCL++ is asked for.
func TestInstancesKeepPacketsApart(t *testing.T) {
	for _, upstream := range []bool{false, true} {
		p := dsl.New(dsl.Test(1, 1, 0), dsl.Options{Name: "packets", Protocol: dsl.LL, Instances: 2, Upstream: upstream})
		in, s := p.Input(0).At(0), p.Scratch(0, 2)
		p.Rank(0).ReducePackets(in, in, []dsl.Chunk{s.At(0)}, dsl.Block(0))
		p.Rank(0).CopyPackets(s.At(1), in, dsl.Block(0))
		plan := compile(t, p)
		var at []int
		for b := range 2 {
			o := plan.GPUs[0].Blocks[b].Ops[0]
			if o.Name != schema.ReduceCopyPkt {
				t.Fatalf("got %s, expected a fused reduction", o.Name)
			}
			at = append(at, o.Dst[1].Index)
		}
		if want := map[bool][]int{false: {2, 3}, true: {1, 1}}[upstream]; !slices.Equal(at, want) {
			t.Errorf("upstream %v: packets at %d, expected %d", upstream, at, want)
		}
	}
}

// TestBroadcastElsewhere reduces one place over a switch and broadcasts the result to another.
func TestBroadcastElsewhere(t *testing.T) {
	for upstream, want := range map[bool]int{false: 1, true: 0} {
		p := dsl.New(dsl.Test(2, 2, 0), dsl.Options{Name: "switch", Upstream: upstream})
		v := p.SwitchChannel([]int{0, 1}, dsl.InputBuffer).At(0)
		v.Reduce(0, 1, p.Input(0).At(0), 0, dsl.Max)
		v.Broadcast(p.Input(0).At(0), 1, 1, 0)
		o := compile(t, p).GPUs[0].Blocks[0].Ops[0]
		if o.Name != schema.GroupReduceStore || o.Src[0].Index != 0 || o.Dst[0].Index != want || o.Reduce != dsl.Max {
			t.Errorf("upstream %v: got %+v, expected glres of max from 0 to %d", upstream, o, want)
		}
	}
}

// TestBroadcastOfAnotherRank expects a broadcast that would read another rank's chunk to be a mistake, unless it merges
// with the reduction before it and reads none.
func TestBroadcastOfAnotherRank(t *testing.T) {
	for _, merges := range []bool{true, false} {
		p := dsl.New(dsl.Test(2, 1, 0), dsl.Options{Name: "switch", NoFusion: !merges})
		v := p.SwitchChannel([]int{0, 1}, dsl.InputBuffer).At(0)
		v.Reduce(0, 1, p.Input(1).At(0), 0)
		v.Broadcast(p.Input(1).At(0), 0, 1, 0)
		if _, err := p.Compile(); (err == nil) != merges {
			t.Errorf("merged %v: got %v", merges, err)
		}
	}
}

// TestNoInterleaving expects all instances at the same chunks.
func TestNoInterleaving(t *testing.T) {
	p := dsl.New(dsl.Test(1, 2, 2), dsl.Options{Name: "same", Instances: 2, NoInterleaving: true})
	p.Rank(0).Copy(p.Output(0).At(1), p.Input(0).At(1), dsl.Block(0))
	plan := compile(t, p)
	for b := range 2 {
		if o := plan.GPUs[0].Blocks[b].Ops[0]; o.Src[0].Index != 1 || o.Dst[0].Index != 1 {
			t.Errorf("instance %d works at %d and %d, expected 1", b, o.Src[0].Index, o.Dst[0].Index)
		}
	}
	if g := plan.GPUs[0]; g.InputChunks != 4 || len(g.Blocks) != 2 {
		t.Errorf("got %d chunks and %d blocks, expected 4 and 2", g.InputChunks, len(g.Blocks))
	}
}

// TestDependenciesJoin expects a join between accesses of which one writes what the other touches, and none otherwise.
func TestDependenciesJoin(t *testing.T) {
	for _, c := range []struct {
		name string
		of   func(r dsl.Rank, in, out, s dsl.Buffer)
		want []schema.OpName
	}{
		{"read after write", func(r dsl.Rank, in, out, s dsl.Buffer) {
			r.Copy(s.At(0), in.At(0), dsl.Block(0))
			r.Copy(out.At(0), s.At(0), dsl.Block(0))
		}, []schema.OpName{schema.Copy, schema.Nop, schema.Copy}},
		{"write after read of a part", func(r dsl.Rank, in, out, s dsl.Buffer) {
			r.Copy(s.Slice(0, 2), in.Slice(0, 2), dsl.Block(0))
			r.Copy(in.At(1), out.At(0), dsl.Block(0))
		}, []schema.OpName{schema.Copy, schema.Nop, schema.Copy}},
		{"apart", func(r dsl.Rank, in, out, s dsl.Buffer) {
			r.Copy(s.At(0), in.At(0), dsl.Block(0))
			r.Copy(s.At(1), in.At(0), dsl.Block(0))
		}, []schema.OpName{schema.Copy, schema.Copy}},
		{"joined already", func(r dsl.Rank, in, out, s dsl.Buffer) {
			r.Copy(s.At(0), in.At(0), dsl.Block(0))
			r.Barrier(0)
			r.Copy(out.At(0), s.At(0), dsl.Block(0))
		}, []schema.OpName{schema.Copy, schema.Nop, schema.Copy}},
		{"other blocks", func(r dsl.Rank, in, out, s dsl.Buffer) {
			r.Copy(s.At(0), in.At(0), dsl.Block(0))
			r.Copy(out.At(0), s.At(0), dsl.Block(1))
		}, []schema.OpName{schema.Copy}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, off := range []bool{false, true} {
				p := dsl.New(dsl.Test(1, 2, 2), dsl.Options{Name: "deps", NoAutoSync: off})
				c.of(p.Rank(0), p.Input(0), p.Output(0), p.Scratch(0, 2))
				want := c.want
				if off && c.name != "joined already" {
					want = slices.DeleteFunc(slices.Clone(want), func(n schema.OpName) bool { return n == schema.Nop })
				}
				if got := names(compile(t, p), 0, 0); !slices.Equal(got, want) {
					t.Errorf("off %v: got %s, expected %s", off, got, want)
				}
			}
		})
	}
}

// TestChannelsInTheOrderOfSets expects the channels of merged signals ascending, and in the order of CPython's sets where
// plans have to equal those of MSCCL++.
func TestChannelsInTheOrderOfSets(t *testing.T) {
	for _, c := range []struct{ signals, upstream []int }{
		{[]int{0, 1, 2}, []int{0, 1, 2}},
		{[]int{2, 0, 1}, []int{0, 1, 2}},
		{[]int{7, 8}, []int{8, 7}},
		{[]int{14, 15, 16}, []int{16, 14, 15}},
		{[]int{3, 9, 17, 33, 2}, []int{33, 2, 3, 9, 17}},
		{[]int{8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96}, []int{32, 64, 96, 8, 40, 72, 16, 48, 80, 56, 24, 88}},
	} {
		for _, upstream := range []bool{false, true} {
			p := dsl.New(dsl.Test(2, 0, 0), dsl.Options{Name: "order", Upstream: upstream})
			var ch []dsl.MemoryChannel
			for range 100 {
				ch = append(ch, p.MemoryChannel(1, 0))
				ch[len(ch)-1].Wait(0, dsl.None)
				p.MemoryChannel(0, 1).Signal(0, dsl.None)
			}
			for _, i := range c.signals {
				ch[i].Signal(0, dsl.None)
				p.MemoryChannel(0, 1).Wait(0, dsl.None)
			}
			ops := compile(t, p).GPUs[0].Blocks[0].Ops
			want := c.upstream
			if !upstream {
				want = slices.Sorted(slices.Values(c.signals))
			}
			if got := ops[len(ops)-1].ChannelIDs; !slices.Equal(got, want) {
				t.Errorf("upstream %v: got %d, expected %d", upstream, got, want)
			}
		}
	}
}

// TestMerges expects neighbors that one operation can do to become one, and others to stay.
func TestMerges(t *testing.T) {
	both := func(c dsl.Chunk) []dsl.Chunk { return []dsl.Chunk{c} }
	for _, c := range []struct {
		name string
		of   func(r dsl.Rank, in, out, s dsl.Buffer)
		want []schema.OpName
	}{
		{"sums", func(r dsl.Rank, in, out, s dsl.Buffer) {
			r.Reduce(out.At(0), in.At(0), both(in.At(1)), dsl.Block(0))
			r.Reduce(out.At(0), in.At(0), both(s.At(0)), dsl.Block(0))
		}, []schema.OpName{schema.Re}},
		{"a sum and a maximum", func(r dsl.Rank, in, out, s dsl.Buffer) {
			r.Reduce(out.At(0), in.At(0), both(in.At(1)), dsl.Block(0))
			r.Reduce(out.At(0), in.At(0), both(s.At(0)), dsl.Block(0), dsl.Max)
		}, []schema.OpName{schema.Re, schema.Nop, schema.Re}},
		{"sums in two places", func(r dsl.Rank, in, out, s dsl.Buffer) {
			r.Reduce(out.At(0), in.At(0), both(in.At(1)), dsl.Block(0))
			r.Reduce(out.At(1), in.At(0), both(s.At(0)), dsl.Block(0))
		}, []schema.OpName{schema.Re, schema.Re}},
		{"packets that are kept", func(r dsl.Rank, in, out, s dsl.Buffer) {
			r.ReducePackets(out.At(0), in.At(0), both(s.At(0)), dsl.Block(0))
			r.CopyPackets(s.At(1), out.At(0), dsl.Block(0))
		}, []schema.OpName{schema.ReduceCopyPkt}},
		{"copies", func(r dsl.Rank, in, out, s dsl.Buffer) {
			r.Copy(out.At(0), in.At(0), dsl.Block(0))
			r.Copy(out.At(1), in.At(1), dsl.Block(0))
		}, []schema.OpName{schema.Copy, schema.Copy}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := dsl.New(dsl.Test(1, 2, 2), dsl.Options{Name: "merges", Protocol: dsl.LL})
			c.of(p.Rank(0), p.Input(0), p.Output(0), p.Scratch(0, 2))
			if got := names(compile(t, p), 0, 0); !slices.Equal(got, c.want) {
				t.Errorf("got %s, expected %s", got, c.want)
			}
		})
	}
}
