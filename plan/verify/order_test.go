package verify

import (
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// shuffler brings ranks and blocks into any order.
func shuffler(random *rand.Rand) func(*run) {
	return func(r *run) {
		random.Shuffle(len(r.order), func(i, k int) { r.order[i], r.order[k] = r.order[k], r.order[i] })
		for _, b := range r.blocks {
			random.Shuffle(len(b), func(i, k int) { b[i], b[k] = b[k], b[i] })
		}
	}
}

// TestOrder checks plans in many orders of ranks and blocks: the verdict is that of all orders, not of the one that was run.
func TestOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	shuffle := shuffler(random)
	var files []string
	for _, pattern := range []string{"testdata/*/*.json", "../../../shared/plans/*/*.json", "../../../shared/plans/*/*/*.json"} {
		more, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, more...)
	}
	for _, file := range files {
		p, err := schema.ReadFile(file)
		if err != nil {
			continue
		}
		sizes, err := chunks(p)
		if err != nil {
			continue
		}
		for _, chunk := range sizes {
			x := newProgram(p, chunk)
			set, ok := settingOf(p, x, p.InPlace)
			if !ok {
				continue
			}
			want := try(p, x, set, func(*run) {})
			for range 4 {
				if got := try(p, x, set, shuffle); got.Verdict != want.Verdict {
					t.Errorf("%s: %s: %s; and in another order %s: %s", file, want.Verdict, want.Reason, got.Verdict, got.Reason)
				}
			}
		}
	}
}
