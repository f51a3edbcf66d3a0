// Package verify says, before anything runs, whether an execution plan is right. It runs the plan with symbols in the
// place of data, for all ranks and some launches back to back, and keeps for each piece of memory who has read and
// written it, and what each thread block is known to follow. docs/plans.md says what that proves, and what it does not.
package verify

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// Verdict is what a plan is found to be.
type Verdict string

// The verdicts.
const (
	Right     Verdict = "right"      // in every launch, also back to back
	RightOnce Verdict = "right once" // where all ranks have ended a launch before anything of the next one begins
	Wrong     Verdict = "wrong"      // it ends in order, and gives other results than its collective
	Race      Verdict = "race"       // results depend on timing
	Hang      Verdict = "hang"       // it never ends
	Refused   Verdict = "refused"    // it is no plan that can be run
)

// Result is what a check finds.
type Result struct {
	File    string   `json:"file"`
	Verdict Verdict  `json:"verdict"`
	Reason  string   `json:"reason"`
	Ranks   int      `json:"ranks"`
	Notes   []string `json:"notes,omitempty"` // under which circumstances
}

// rank orders verdicts from the best to the worst.
func (v Verdict) rank() int {
	for i, x := range []Verdict{Right, RightOnce, Wrong, Race, Hang, Refused} {
		if v == x {
			return i
		}
	}
	return len(v)
}

// launches is how many launches follow each other: halves of scratch memory come round at the third.
const launches = 4

// File checks the plan in a file.
func File(name string) Result {
	p, err := schema.ReadFile(name)
	if err != nil {
		return Result{File: name, Verdict: Refused, Reason: reason(err), Ranks: ranksOf(name)}
	}
	out := Plan(p)
	out.File = name
	return out
}

// reason is the text of an error about a plan without the words that are those of all such errors.
func reason(err error) string {
	if wrong := (*schema.Error)(nil); errors.As(err, &wrong) {
		short := *wrong
		short.File = ""
		err = &short
	}
	text := strings.TrimPrefix(err.Error(), "plan")
	return strings.TrimLeft(text, ",: ")
}

// ranksOf counts the ranks of a file that is no plan, as far as one can.
func ranksOf(name string) int {
	var file struct {
		GPUs []json.RawMessage `json:"gpus"`
	}
	data, err := os.ReadFile(name)
	if err != nil || json.Unmarshal(data, &file) != nil {
		return 0
	}
	return len(file.GPUs)
}

// Plan checks a plan.
func Plan(p *schema.Plan) Result {
	out := Result{Ranks: len(p.GPUs)}
	if err := p.Check(); err != nil {
		out.Verdict, out.Reason = Refused, reason(err)
		return out
	}
	sizes, err := chunks(p)
	if err != nil {
		out.Verdict, out.Reason = Refused, err.Error()
		return out
	}
	in, o := touches(p)
	inPlace := p.InPlace || in != o && collective(p.Collective)
	first := model(p, sizes, inPlace)
	if first.Verdict != Right && first.Verdict != Hang && p.InPlace && in && o && collective(p.Collective) {
		if second := model(p, sizes, false); second.Verdict.rank() < first.Verdict.rank() {
			second.Notes = append(second.Notes, fmt.Sprintf("the verdict is for calls with separate buffers: in place it is %s: %s", first.Verdict, first.Reason))
			first = second
		}
	}
	first.Ranks = len(p.GPUs)
	first.Notes = append(first.Notes, scratchNote(p)...)
	return first
}

// touches reports whether a plan uses input and output buffers.
func touches(p *schema.Plan) (in, out bool) {
	note := func(b schema.Buffer) { in, out = in || b == schema.Input, out || b == schema.Output }
	for r := range p.GPUs {
		g := &p.GPUs[r]
		for _, c := range g.Switches() {
			note(c.Buffer)
		}
		for _, b := range g.RemoteBuffers {
			note(b.Type)
		}
	}
	each(p, func(o *schema.Op) {
		for _, list := range [][]schema.Operand{o.Src, o.Dst} {
			for i := range list {
				note(list[i].Buffer)
			}
		}
		if o.Load != nil {
			note(o.Load.Dst.Buffer)
		}
	})
	return in, out
}

// model runs a plan with all sizes and one arrangement of buffers, and returns the worst that it finds.
func model(p *schema.Plan, sizes []int64, inPlace bool) Result {
	var worst *Result
	for _, chunk := range sizes {
		x := newProgram(p, chunk)
		set, ok := settingOf(p, x, inPlace)
		if !ok {
			continue
		}
		got := try(p, x, set, func(*run) {})
		if worst == nil || got.Verdict.rank() > worst.Verdict.rank() {
			worst = &got
		}
	}
	if worst == nil {
		return Result{Verdict: Refused, Reason: fmt.Sprintf("the plan is too large to check: the limits are %d pieces of memory, %d operations and %d blocks", mostCells, mostSteps, mostClock)}
	}
	return *worst
}

// try runs a plan with one size: one launch alone, and if that is right several back to back. Arrange may change the
// order in which threads get on.
func try(p *schema.Plan, x *program, set setting, arrange func(*run)) Result {
	once := newRun(p, set, x, 1)
	arrange(once)
	ended := once.all()
	switch {
	case !ended:
		return Result{Verdict: Hang, Reason: explainer{once}.stuck()}
	case once.inside != nil:
		if other := newRun(p, set, x, 1); !other.backwards() {
			return Result{Verdict: Hang, Reason: explainer{other}.stuck()}
		}
		return Result{Verdict: Race, Reason: explainer{once}.explain(once.inside)}
	}
	if once.checkResults(1); once.wrong != "" {
		return Result{Verdict: Wrong, Reason: once.wrong}
	}
	many := newRun(p, set, x, launches)
	many.watch = once.unread()
	arrange(many)
	ended = many.all()
	switch {
	case many.inside != nil:
		return Result{Verdict: Race, Reason: explainer{many}.explain(many.inside)}
	case many.across != nil:
		return Result{Verdict: RightOnce, Reason: explainer{many}.explain(many.across)}
	case !ended:
		return Result{Verdict: Hang, Reason: explainer{many}.stuck()}
	case many.wrong != "":
		return Result{Verdict: RightOnce, Reason: many.wrong}
	}
	out := Result{Verdict: Right, Reason: rightReason(p)}
	if many.weak != nil {
		out.Notes = append(out.Notes, explainer{many}.explain(many.weak))
	}
	out.Notes = append(out.Notes, explainer{once}.left()...)
	return out
}

func rightReason(p *schema.Plan) string {
	if collective(p.Collective) {
		return fmt.Sprintf("every rank has the result of %s, in each of %d launches back to back", p.Collective, launches)
	}
	return fmt.Sprintf("all blocks end, and nothing depends on timing, in each of %d launches back to back", launches)
}
