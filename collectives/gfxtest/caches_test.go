package gfxtest

import (
	"context"
	"regexp"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/collectives/collectivetest"
	"github.com/mscclpp-go/mscclpp/internal/gfx/memory"
)

// shapes have as many XCDs as kernels have blocks, so that each block has caches of its own. A GPU of gfx90a has one.
var shapes = map[string]*memory.Shape{
	"gfx942": {Arch: "gfx942", XCDs: multiprocessors, CUs: 2},
	"gfx90a": {Arch: "gfx90a", XCDs: 1, CUs: multiprocessors},
}

// under runs the trials that are picked with caches and late memory operations. With every second seed nothing is
// evicted from caches.
func under(t testing.TB, n int, s setting, o collectives.Options, seed uint64, pick func(x *collectivetest.Trial) bool) error {
	t.Helper()
	shape := *shapes[s.arch]
	shape.Keep = seed%2 == 0
	s.shape, s.options.Weak, s.options.Seed = &shape, true, seed
	_, err := job(t, n, s, o, func(ctx context.Context, r *rank) error {
		b, err := r.buffers(ctx)
		if err != nil {
			return err
		}
		defer b.memory.Close()
		for i, x := range trials(r) {
			if !pick(&x) {
				continue
			}
			if err := x.Run(b.rig, seed+uint64(i)); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}

// packets are algorithms whose data has to fit into scratch.
var packets = regexp.MustCompile(`ll(8|16|128)$`)

// small is so little scratch that calls take several steps, which use it again.
func small(ranks int) collectives.Options {
	return collectives.Options{Scratch: uint64(ranks) * 256 << 10, CopyScratch: 1 << 20}
}

// Unchanged kernels are right under the model of the caches, whichever kind of memory callers have.
func TestCaches(t *testing.T) {
	for _, arch := range []string{"gfx942", "gfx90a"} {
		for _, c := range []struct {
			name    string
			user    memory.Kind
			options func(ranks int) collectives.Options
			packets bool
		}{
			{"coarse", memory.Coarse, small, false},
			{"uncached", memory.Uncached, small, false},
			{"packets", memory.Coarse, options, true},
		} {
			t.Run(arch+" "+c.name, func(t *testing.T) {
				s := setting{arch: arch, scratch: memory.Uncached, user: c.user}
				for i := range 2 * len(sizes(t)) {
					n, seed := sizes(t)[i/2], uint64(i%2)
					err := under(t, n, s, c.options(n), seed, func(x *collectivetest.Trial) bool { return packets.MatchString(x.Algorithm) == c.packets })
					if err != nil {
						t.Fatal(err)
					}
				}
			})
		}
	}
}
