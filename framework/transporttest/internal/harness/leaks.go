package harness

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"
)

const (
	leakRounds = 12
	// settling is how long the other end of a link gets to close what its peer has closed. On a
	// busy machine the descriptors of the last rounds are open for a moment after them.
	settling = 2 * time.Second
)

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
	more := t.more(ranks, before)
	for deadline := time.Now().Add(settling); len(more) > 0 && time.Now().Before(deadline); more = t.more(ranks, before) {
		time.Sleep(5 * time.Millisecond)
	}
	for name, n := range more {
		t.Errorf("%s leaves %d more %s after %d rounds", what, n, name, leakRounds)
	}
}

// more lists the tables that have grown. A handful can belong to the runtime; a leak in
// each round cannot hide among them.
func (t *T) more(ranks []*Rank, before map[string]int) map[string]int {
	grown := map[string]int{}
	for name, now := range t.tables(ranks) {
		if n := now - before[name]; n >= leakRounds/2 {
			grown[name] = n
		}
	}
	return grown
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
