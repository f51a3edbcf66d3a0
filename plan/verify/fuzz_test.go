package verify_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/mscclpp-go/mscclpp/plan/schema"
	"github.com/mscclpp-go/mscclpp/plan/verify"
)

// FuzzPlan checks plans of any content: the check ends with a verdict and a reason, the same ones each time.
func FuzzPlan(f *testing.F) {
	files, err := filepath.Glob("testdata/*/*.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range append(files, "../schema/testdata/every.json") {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	limits := schema.Limits{Bytes: 1 << 18, Ranks: 8, Blocks: 8, Ops: 100, List: 16, Chunks: 64}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := limits.Parse(data)
		if err != nil {
			return
		}
		once, again := verify.Plan(p), verify.Plan(p)
		if once.Verdict == "" || once.Reason == "" || once.Ranks != len(p.GPUs) {
			t.Errorf("got %+v", once)
		}
		if once.Verdict != again.Verdict || once.Reason != again.Reason {
			t.Errorf("got %+v, and then %+v", once, again)
		}
	})
}
