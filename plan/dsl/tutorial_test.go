package dsl_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/plan/dsl"
	"github.com/mscclpp-go/mscclpp/plan/schema"
	"github.com/mscclpp-go/mscclpp/plan/verify"
)

// tutorial is the program of docs/plans.md and of examples/plan. Without handshake nobody has said that the ranks have
// begun.
func tutorial(handshake bool) *dsl.Program {
	p := dsl.New(dsl.AllReduce(2, 1, true), dsl.Options{Name: "allreduce"})
	for r := range 2 {
		peer, part := 1-r, p.Input(r).At(r)
		ch := p.MemoryChannel(peer, r)
		if handshake {
			ch.Signal(0, dsl.Relaxed)
			ch.Wait(0, dsl.Relaxed|dsl.After)
		}
		ch.Reduce(part, part, []dsl.Chunk{p.Input(peer).At(r)}, dsl.Block(0))
		ch.Put(p.Input(peer).At(r), part, dsl.Block(0))
		ch.Signal(0, dsl.Before)
		ch.Wait(0, dsl.After)
	}
	return p
}

// TestTutorial expects the verdicts that docs/plans.md shows, the reason included.
func TestTutorial(t *testing.T) {
	doc, err := os.ReadFile("../../docs/plans.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := strings.Join(strings.Fields(string(doc)), " ")
	for handshake, want := range map[bool]verify.Verdict{true: verify.Right, false: verify.RightOnce} {
		plan := compile(t, tutorial(handshake))
		got := verify.Plan(plan)
		if got.Verdict != want {
			t.Errorf("handshake %v: %s: %s; expected %s", handshake, got.Verdict, got.Reason, want)
		}
		if line := string(got.Verdict) + ": " + got.Reason; !strings.Contains(shown, line) {
			t.Errorf("docs/plans.md does not show %q", line)
		}
	}
}

// TestExample runs the program of examples/plan, whose text docs/plans.md shows.
func TestExample(t *testing.T) {
	text, err := os.ReadFile("../../examples/plan/main.go")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../../docs/plans.md")
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(text), "func allReduce()")
	body, _, found := strings.Cut(body, "\n}\n")
	if !found || !strings.Contains(string(doc), "func allReduce()"+body+"\n}\n") {
		t.Error("docs/plans.md shows another program than examples/plan")
	}
	if lines := strings.Count(body, "\n"); lines > 15 {
		t.Errorf("the program has %d lines, expected at most 15", lines)
	}
	program := filepath.Join(t.TempDir(), "plan")
	if out, err := exec.Command("go", "build", "-o", program, "../../examples/plan").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command(program).Output()
	if err != nil {
		t.Fatal(err)
	}
	plan, err := schema.Parse(out)
	if err != nil {
		t.Fatal(err)
	}
	if want := compile(t, tutorial(true)); string(plan.Encode(2)) != string(want.Encode(2)) {
		t.Error("examples/plan prints another plan than the tutorial's program makes")
	}
}
