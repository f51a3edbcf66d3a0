package verify

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// changes are ways to break a plan, or not.
var changes = []func(random *rand.Rand, ops []schema.Op, i int) []schema.Op{
	func(_ *rand.Rand, ops []schema.Op, i int) []schema.Op { return slices.Delete(ops, i, i+1) },
	func(_ *rand.Rand, ops []schema.Op, i int) []schema.Op { return slices.Insert(ops, i, ops[i]) },
	func(random *rand.Rand, ops []schema.Op, i int) []schema.Op {
		k := random.IntN(len(ops))
		ops[i], ops[k] = ops[k], ops[i]
		return ops
	},
	func(random *rand.Rand, ops []schema.Op, i int) []schema.Op {
		for k := range ops[i].ChannelIDs {
			ops[i].ChannelIDs[k] = random.IntN(3)
		}
		return ops
	},
	func(random *rand.Rand, ops []schema.Op, i int) []schema.Op {
		for _, list := range [][]schema.Operand{ops[i].Src, ops[i].Dst} {
			if len(list) > 0 && random.IntN(2) == 0 {
				x := &list[random.IntN(len(list))]
				x.Index, x.Buffer = random.IntN(3), []schema.Buffer{schema.Input, schema.Output, schema.Scratch}[random.IntN(3)]
				if x.Kind != schema.Local {
					x.Buffer = ""
				}
			}
		}
		return ops
	},
	func(random *rand.Rand, ops []schema.Op, i int) []schema.Op {
		ops[i].Group = &schema.GroupSlice{ID: random.IntN(2), Size: 2}
		return ops
	},
	func(random *rand.Rand, ops []schema.Op, i int) []schema.Op {
		end := min(len(ops), i+3)
		body := slices.Clone(ops[i:end])
		loop := schema.Op{Name: schema.Pipeline, Iter: &schema.Iteration{Unit: 16, NumChunks: random.IntN(3)}, Ops: body}
		return slices.Replace(ops, i, end, loop)
	},
}

// change changes one to three things of a plan.
func change(random *rand.Rand, p *schema.Plan) {
	for range 1 + random.IntN(3) {
		g := &p.GPUs[random.IntN(len(p.GPUs))]
		b := &g.Blocks[random.IntN(len(g.Blocks))]
		if n := len(b.Ops); n > 0 {
			b.Ops = changes[random.IntN(len(changes))](random, b.Ops, random.IntN(n))
		}
	}
}

// TestChanged changes the plans of testdata in many ways. A check ends with a verdict, and a plan that is right in one order
// of blocks is right in all.
func TestChanged(t *testing.T) {
	files, err := filepath.Glob("testdata/*/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d plans, %v", len(files), err)
	}
	random := rand.New(rand.NewPCG(3, 4))
	found := map[Verdict]int{}
	for range 1500 {
		file := files[random.IntN(len(files))]
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		p, err := schema.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		change(random, p)
		if p.Check() != nil {
			continue
		}
		written := p.Encode(schema.Compact)
		if again, err := schema.Parse(written); err != nil || string(again.Encode(schema.Compact)) != string(written) {
			t.Errorf("%s: a plan is another one in a file: %v\n%s", file, err, written)
		}
		got := Plan(p)
		if found[got.Verdict]++; got.Reason == "" {
			t.Errorf("%s: %+v", file, got)
		}
		inAnyOrder(t, random, p, written)
	}
	for _, v := range []Verdict{Right, RightOnce, Wrong, Race, Hang} {
		if found[v] < 10 {
			t.Errorf("%d plans are %s, expected some: %v", found[v], v, found)
		}
	}
}

func inAnyOrder(t *testing.T, random *rand.Rand, p *schema.Plan, text []byte) {
	sizes, err := chunks(p)
	if err != nil {
		return
	}
	x := newProgram(p, sizes[0])
	set, ok := settingOf(p, x, p.InPlace)
	if !ok {
		return
	}
	good := func(r Result) Verdict {
		if r.Verdict == Right || r.Verdict == RightOnce {
			return r.Verdict
		}
		return ""
	}
	want := try(p, x, set, func(*run) {})
	for range 3 {
		if got := try(p, x, set, shuffler(random)); good(got) != good(want) {
			t.Errorf("%s: %s, and in another order %s: %s\n%s", want.Verdict, want.Reason, got.Verdict, got.Reason, text)
		}
	}
}
