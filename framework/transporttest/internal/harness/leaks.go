package harness

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"
)

const leakRounds = 12

// Grows runs round many times and compares the tables of descriptors and
// mappings, of this process and of the plugins', before and after.
func (t *T) Grows(what string, ranks []*Rank, round func()) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	round() // the first may open what stays: sockets, caches
	round()
	before := t.tables(ranks)
	for range leakRounds {
		if round(); t.Failed() {
			return
		}
	}
	for name, now := range t.tables(ranks) {
		// A handful can be in flight or belong to the runtime; a leak in each
		// round cannot hide among them.
		if more := now - before[name]; more >= leakRounds/2 {
			t.Errorf("%s leaves %d more %s after %d rounds", what, more, name, leakRounds)
		}
	}
}

// tables counts descriptors and mapped files of every process concerned.
func (t *T) tables(ranks []*Rank) map[string]int {
	counts := map[string]int{}
	count := func(owner, pid string) {
		if list, err := os.ReadDir("/proc/" + pid + "/fd"); err == nil {
			counts["descriptors of "+owner] = len(list)
		}
		if text, err := os.ReadFile("/proc/" + pid + "/maps"); err == nil {
			counts["mappings of "+owner] = strings.Count(string(text), "/memfd:")
		}
	}
	count("this process", "self")
	for _, r := range ranks {
		if p := r.Side.Process; p != nil {
			count(fmt.Sprintf("the plugin of rank %d", r.N), fmt.Sprint(p.PID))
		}
	}
	return counts
}
