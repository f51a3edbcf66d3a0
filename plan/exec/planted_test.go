package exec

import (
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated/interpret"
	"github.com/mscclpp-go/mscclpp/plan/dsl"
	"github.com/mscclpp-go/mscclpp/plan/library"
	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// planted are cases that together come to all operations of the executor that order something.
func planted(t *testing.T, s *interpret.Session) (list []*interpreted) {
	t.Helper()
	add := func(p *schema.Plan, packet Packet, direct, window bool) {
		x := &interpreted{Session: s, t: t, plan: p, packet: packet, direct: direct, window: window}
		x.shape.chunk = chunkFor(p)
		list = append(list, x)
	}
	for _, name := range []string{"allreduce-2pa-packets", "allreduce-2pa-chunks", "allreduce-2pa-switch", "allreduce-pipelined"} {
		inPlace := name == "allreduce-2pa-switch"
		p, err := library.Compile(name, library.Shape{Ranks: 2, Blocks: 2, InPlace: inPlace})
		if err != nil {
			t.Fatal(err)
		}
		add(p, LL8, !inPlace, inPlace)
	}
	for _, name := range []string{"groups_with_barrier", "alltoall_semaphore", "allgather_packet_ring"} {
		p, err := schema.ReadFile("../verify/testdata/right/" + name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		add(p, LL16, false, false)
	}
	add(made(t, kept(false)), LL16, true, false)
	add(made(t, kept(true)), LL16, true, false)
	add(made(t, handed()), LL16, false, false)
	add(made(t, between()), LL16, false, true)
	return list
}

func made(t *testing.T, program *dsl.Program) *schema.Plan {
	t.Helper()
	p, err := program.Compile()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// between is a plan in which ranks reach memory by its own name and through the window of a switch by turns.
func between() *dsl.Program {
	p := dsl.New(dsl.AllReduce(2, 1, false), dsl.Options{Name: "switch_between_copies"})
	scratch := []dsl.Buffer{p.Scratch(0, 2), p.Scratch(1, 2)}
	for r := range 2 {
		ch := p.MemoryChannel(1-r, r)
		window := p.SwitchChannel([]int{0, 1}, dsl.ScratchBuffer).At(r)
		p.Rank(r).Copy(scratch[r].All(), p.Input(r).All(), dsl.Block(0))
		ch.Signal(0)
		ch.Wait(0)
		window.Reduce(r, 1, scratch[r].At(r), 0)
		window.Broadcast(scratch[r].At(r), r, 1, 0)
		ch.Signal(0)
		ch.Wait(0)
		p.Rank(r).Copy(p.Output(r).All(), scratch[r].All(), dsl.Block(0))
		ch.Signal(0)
		ch.Wait(0)
	}
	return p
}

// handed is a plan in chunks in which ranks read what the other one has put into their memory in the same launch.
func handed() *dsl.Program {
	p := dsl.New(dsl.AllReduce(2, 1, false), dsl.Options{Name: "sums_of_what_was_put"})
	scratch := []dsl.Buffer{p.Scratch(0, 2), p.Scratch(1, 2)}
	for r := range 2 {
		ch := p.MemoryChannel(1-r, r)
		ch.Put(scratch[1-r].All(), p.Input(r).All(), dsl.Block(0))
		ch.Signal(0, dsl.Before)
		ch.Wait(0, dsl.After)
		p.Rank(r).Reduce(p.Output(r).All(), p.Input(r).All(), []dsl.Chunk{scratch[r].All()}, dsl.Block(0))
		ch.Signal(0, dsl.Before)
		ch.Wait(0, dsl.After)
	}
	return p
}

// kept is a plan that reads what the launch before it has left in the memory of the other rank: nothing but the notice of a launch says that it is there. With a loop
// it runs in the kernel for all plans.
func kept(loop bool) *dsl.Program {
	p := dsl.New(dsl.Test(2, 1, 1), dsl.Options{Name: "input_of_the_launch_before"})
	for r := range 2 {
		ch := p.MemoryChannel(1-r, r)
		ch.Signal(0, dsl.Relaxed)
		ch.Wait(0, dsl.Relaxed)
		get := func() { ch.Get(p.Output(r).All(), p.Input(1-r).All(), dsl.Block(0)) }
		if loop {
			p.Loop(1<<10, 1, get)
		} else {
			get()
		}
		ch.Signal(0)
		ch.Wait(0)
		p.Rank(r).Reduce(p.Input(r).All(), p.Input(r).All(), []dsl.Chunk{p.Output(r).All()}, dsl.Block(0))
	}
	return p
}

// prepare maps a case, and says what it gives.
func (x *interpreted) prepare() {
	x.t.Helper()
	launches := 3
	x.set(launches)
	if x.use.writes[0] && !x.use.alias && collective(x.plan.Collective) { // the input of the next launch is gone
		launches = 1
		x.set(launches)
	}
	x.expect(launches)
}

// plantation has the weakenings of one image.
type plantation struct {
	*interpret.Session
	t       *testing.T
	cases   []*interpreted
	most    []uint64 // instructions, by case
	mutants []interpret.Mutant
}

const plantedSchedules = 2

// kernelOf is the kernel that the place of a weakening is in.
func kernelOf(where string) string { return where[strings.LastIndexByte(where, ' ')+1:] }

// reported says which of the sets of weakenings are reported by a case.
func (p *plantation) reported(sets [][]int) []bool {
	out := make([]bool, len(sets))
	for c, x := range p.cases {
		x.must("mutate", p.Mutate())
		x.prepare()
		for i, set := range sets {
			if out[i] {
				continue
			}
			x.must("mutate", p.Mutate(set...))
			_, err := p.Run(1, plantedSchedules, true, p.most[c])
			out[i] = err != nil
		}
	}
	return out
}

// Of each instruction of the executor's PTX that orders something a weaker form is planted. The interpreter reports it as a race, a wrong
// result or a hang in one of the plans, alone or with another one that orders the same. The join at the end of each kernel is left, since launches wait for the end of
// the kernel before them, and so are fences that operations on the window have beside those of joins.
func TestPlantedWeakenings(t *testing.T) {
	p := &plantation{Session: interpreter(t), t: t}
	p.cases = planted(t, p.Session)
	for _, x := range p.cases {
		x.prepare()
		stats, err := p.Run(1, plantedSchedules, true, mostInterpreted)
		x.must("run", err)
		p.most = append(p.most, 10*stats.Instructions/plantedSchedules+1e6)
	}
	var err error
	if p.mutants, err = p.Mutants("plan"); err != nil {
		t.Fatal(err)
	}
	var alone, pairs [][]int
	for i := range p.mutants {
		alone = append(alone, []int{i})
	}
	var rest []int
	for i, found := range p.reported(alone) {
		if !found {
			rest = append(rest, i)
		}
	}
	for _, i := range rest {
		for _, k := range rest {
			if p.mutants[i].Where != p.mutants[k].Where {
				pairs = append(pairs, []int{i, k})
			}
		}
	}
	doubled := map[int]bool{}
	for n, found := range p.reported(pairs) {
		if found {
			doubled[pairs[n][0]] = true
		}
	}
	idle := slices.DeleteFunc(rest, func(i int) bool { return doubled[i] })
	joins := map[string]bool{}
	for _, i := range idle {
		switch m := p.mutants[i]; {
		case m.How == "barrier dropped" && !joins[kernelOf(m.Where)]:
			joins[kernelOf(m.Where)] = true
		case m.How != "alias fence dropped":
			t.Errorf("not reported: %s at %s", m.How, m.Where)
		}
	}
	if len(p.mutants) < 40 {
		t.Errorf("%d weakenings, expected 40 or more", len(p.mutants))
	}
	t.Logf("%d weakenings, %d reported with another one", len(p.mutants), len(doubled))
}
