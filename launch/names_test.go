package launch

import (
	"strings"
	"testing"
)

// All variables by which a process recognizes its engine can be hidden, but for the customary
// variables, which a program that places its ranks sets, and the marks beside them.
func TestVariablesOfEngines(t *testing.T) {
	customary := "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE TORCHELASTIC_RUN_ID " + Mark
	for _, r := range rules {
		for _, name := range r.need {
			if OfEngine(name) == strings.Contains(" "+customary+" ", " "+name+" ") {
				t.Errorf("%s: %s: of an engine: %v", r.name, name, OfEngine(name))
			}
		}
	}
}
