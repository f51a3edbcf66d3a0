package verify

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// A plan that was found right is not run again. One that was changed is, and so is one that is not right; a file that holds something else
// does not count.
func TestKnown(t *testing.T) {
	folder, checks := t.TempDir(), 0
	ask := func(name string, change func(*schema.Plan), want Verdict, again int) {
		t.Helper()
		p, err := schema.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if change != nil {
			change(p)
		}
		before := checks
		got := known(folder, p, func(p *schema.Plan) Result { checks++; return Plan(p) })
		if got.Verdict != want || checks-before != again || got.Ranks != len(p.GPUs) {
			t.Errorf("%s: %+v after %d checks: expected %s after %d", name, got, checks-before, want, again)
		}
	}
	const right, race = "right/pipeline.json", "race/packets_rewritten.json"
	ask(right, nil, Right, 1)
	ask(right, nil, Right, 0)
	ask(right, func(p *schema.Plan) { p.Name = "other" }, Right, 1)
	ask(right, func(p *schema.Plan) { p.GPUs[0].Blocks[0].Ops = nil }, Hang, 1)
	ask(race, nil, Race, 1)
	ask(race, nil, Race, 1)
	files, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil || len(files) != 2 {
		t.Fatalf("%v, %v: expected the verdicts of the two plans that are right", files, err)
	}
	for _, text := range []string{"", "{}", `{"verdict":"race","ranks":2}`, strings.Repeat("x", 2<<20)} {
		for _, file := range files {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		ask(right, nil, Right, 1)
	}
}
