package verify

import (
	"fmt"

	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// mostCells bounds the memory of a run, and mostSteps its time.
const (
	mostCells = 2 << 20
	mostSteps = 1 << 19
	mostClock = 1 << 13 // threads
	mostChunk = 1 << 36 // bytes of a chunk
	mostTimes = 1 << 27 // entries of the clocks that signals carry
)

// chunks returns the sizes of chunks, in bytes, for which a plan is run: the least legal one, one that all groups of
// blocks divide evenly, one that they do not, and some that pipelines cut up.
func chunks(p *schema.Plan) ([]int64, error) {
	least, most, err := legal(p)
	if err != nil {
		return nil, err
	}
	even, units := divisors(p)
	a := int64(p.Alignment)
	evenly := (least + even - 1) / even * even
	granules := []int64{least, evenly}
	switch {
	case even > 1 && len(units) > 0:
		granules = append(granules, evenly+1)
	case even > 1 && least > 2*even:
		// The remainders are those of legal sizes: a smaller chunk has the same pattern in fewer pieces.
		granules = []int64{evenly, -(even + least%even), -(even + 1)}
	case even > 1:
		granules = append(granules, -(even + 1))
	}
	for _, u := range units {
		step := max(1, min(most, u.bytes/a/max(1, u.chunks)))
		granules = append(granules, step/2, 2*step, 2*step+step/2)
	}
	var out []int64
	seen := map[int64]bool{}
	for _, g := range granules {
		if g < 0 {
			g = min(most, -g)
		} else {
			g = max(least, min(most, g))
		}
		if !seen[g] {
			seen[g] = true
			out = append(out, g*a)
		}
	}
	return out, nil
}

// legal returns the least and the largest legal chunk, in granules. The number of chunks of the smallest message
// decides.
func legal(p *schema.Plan) (least, most int64, err error) {
	g := &p.GPUs[0]
	n := g.InputChunks
	if p.Collective == "allgather" && g.OutputChunks > 0 || n == 0 {
		n = g.OutputChunks
	}
	least, most = 1, max(1, mostChunk/int64(p.Alignment))
	if n == 0 {
		return least, most, nil
	}
	whole := uint64(n) * uint64(p.Alignment)
	if p.MinSize > p.MaxSize-p.MaxSize%whole || p.MaxSize < whole {
		return 0, 0, fmt.Errorf("no size of %d to %d bytes is a multiple of %d chunks of %d bytes", p.MinSize, p.MaxSize, n, p.Alignment)
	}
	if p.MinSize/whole >= uint64(most) {
		return 0, 0, fmt.Errorf("chunks of messages of %d bytes are longer than %d bytes, the limit of this check", p.MinSize, mostChunk)
	}
	least = max(1, int64((p.MinSize-min(p.MinSize, 1))/whole)+1)
	return least, min(most, int64(min(p.MaxSize/whole, mostChunk))), nil
}

// unit is what one turn of a pipeline handles.
type unit struct{ bytes, chunks int64 }

// divisors returns the least common multiple of the sizes of groups, and the units of pipelines.
func divisors(p *schema.Plan) (int64, []unit) {
	even := int64(1)
	var units []unit
	seen := map[unit]bool{}
	each(p, func(o *schema.Op) {
		if o.Group != nil {
			if n := int64(o.Group.Size); even*n/gcd(even, n) <= 5040 {
				even = even * n / gcd(even, n)
			}
		}
		if o.Iter != nil {
			if u := (unit{int64(o.Iter.Unit), int64(o.Iter.NumChunks)}); !seen[u] && len(units) < 4 {
				seen[u] = true
				units = append(units, u)
			}
		}
	})
	return even, units
}

// each calls look for every operation of a plan.
func each(p *schema.Plan, look func(*schema.Op)) {
	for r := range p.GPUs {
		for b := range p.GPUs[r].Blocks {
			ops := p.GPUs[r].Blocks[b].Ops
			for i := range ops {
				look(&ops[i])
				for k := range ops[i].Ops {
					look(&ops[i].Ops[k])
				}
			}
		}
	}
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// settingOf finds the largest piece of which all offsets and sizes of a run are multiples. It reports false for a run
// that would be too large.
func settingOf(p *schema.Plan, x *program, inPlace bool) (setting, bool) {
	set := setting{chunk: x.chunk, cell: x.chunk, inPlace: inPlace}
	threads, all := 0, int64(0)
	for r := range p.GPUs {
		g := &p.GPUs[r]
		threads += len(g.Blocks) + len(g.Peers(schema.Port)) + 1
		all += int64(g.InputChunks) + int64(g.OutputChunks) + 4*int64(g.ScratchChunks)
	}
	if inPlace {
		all *= 2
	}
	if threads > mostClock || all > mostCells {
		return set, false
	}
	steps, signals := 0, 0
	for r := range p.GPUs {
		g := &p.GPUs[r]
		for b := range g.Blocks {
			if steps += x.count(&g.Blocks[b]); steps > mostSteps {
				return set, false
			}
			for _, s := range x.steps(r, b) {
				if s.signals() {
					signals++
				}
				for _, list := range [][]piece{s.src, s.dst} {
					for i := range list {
						set.cell = gcd(gcd(set.cell, list[i].off), list[i].n)
					}
				}
			}
		}
	}
	return set, signals*threads <= mostTimes/launches && set.chunk/set.cell <= mostCells && all*(set.chunk/set.cell) <= mostCells
}

// count returns the number of steps of a block.
func (x *program) count(b *schema.Block) int {
	n := len(b.Ops)
	for i := range b.Ops {
		if o := &b.Ops[i]; o.Name == schema.Pipeline {
			n += int(min(turns(o.Iter, x.chunk), mostSteps)) * len(o.Ops)
			n = min(n, 2*mostSteps)
		}
	}
	return n
}
