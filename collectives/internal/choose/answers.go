package choose

import (
	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// Answers keeps the last choices: by tables, and for calls that name their algorithm. Programs repeat themselves: one of each for a collective is enough.
type Answers [collective.Kinds][2]struct {
	generation uint64 // of all that choices depend on
	query      engine.Query
	name       string // that the caller gave
	chosen     *engine.Algorithm
	launch     device.Launch
}

func side(name string) int {
	if name != "" {
		return 1
	}
	return 0
}

// Repeats reports whether a call is like the one before it, and gives it the same algorithm.
func (a *Answers) Repeats(call *engine.Call, name string, generation uint64) bool {
	last := &a[call.Collective][side(name)]
	if last.generation != generation || last.name != name || !last.query.Same(&call.Query) {
		return false
	}
	call.Algorithm, call.Launch, call.Named, call.Repeats = last.chosen, last.launch, name != "", name == ""
	return true
}

// Keep notes what was chosen for a call.
func (a *Answers) Keep(call *engine.Call, name string, generation uint64) {
	last := &a[call.Collective][side(name)]
	last.generation, last.query, last.name, last.chosen, last.launch = generation, call.Query, name, call.Algorithm, call.Launch
}
