package interpreted_test

import (
	"cmp"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated/interpret"
)

// schedulesOfMutant is within how many schedules a planted weakening has to be found.
const schedulesOfMutant = 50

// leastFound is the share of them, in percent, that is found at least. The others are logged by name: barriers and
// signals that a second one behind them makes unnecessary for these cases, and waits whose data has always come.
const leastFound = 60

// tally counts planted weakenings of one kind.
type tally struct {
	planted, found int
	missed         []string
}

// long is a case with more steps than buffers, in which a block does several lanes.
var long = shape{ranks: 2, grid: 1, block: 64, launches: 3, bytes: 20011, lanes: 2}

// plant plants every one of so many weakenings, one at a time, in what an entry executes, and counts those that a run then
// reports, of one case or the other.
func plant(t testing.TB, s *interpret.Session, e *entry, text []byte, every int, n *int, all map[string]*tally) {
	t.Helper()
	_, _, err := s.Image(e.image, text) // anew: it knows what was executed
	must(t, e.image, err)
	cases := []shape{small, long}
	var most [2]uint64
	for i, x := range cases {
		stats, err := execute(t, s, e, x, 1, 1, true)
		must(t, e.String(), err)
		most[i] = 10*stats.Instructions + 1e6
	}
	mutants, err := s.Mutants(e.image)
	must(t, e.String(), err)
	found := make([]bool, len(mutants))
	var chosen []int
	for i := range mutants {
		if *n++; *n%every == 0 {
			chosen = append(chosen, i)
		}
	}
	for c, x := range cases {
		must(t, "mutate", s.Mutate(-1))
		j, out := set(t, s, e, x)
		j.expect(t, out)
		for _, i := range chosen {
			if found[i] {
				continue
			}
			must(t, mutants[i].Where, s.Mutate(i))
			_, err := s.Run(1, schedulesOfMutant, true, most[c])
			found[i] = err != nil
		}
	}
	must(t, "mutate", s.Mutate(-1))
	for _, i := range chosen {
		x := all[mutants[i].How]
		if x == nil {
			x = &tally{}
			all[mutants[i].How] = x
		}
		x.planted++
		if found[i] {
			x.found++
		} else {
			x.missed = append(x.missed, mutants[i].Where+" by "+strings.TrimPrefix(e.name, "mscclpp_"))
		}
	}
}

// Weakened orders are found: those that CI has time for, or all.
func TestPlantedWeakeningsAreFound(t *testing.T) {
	every := 23
	if os.Getenv("INTERPRET") == "full" {
		every = 1
	}
	s := start(t)
	list, texts := entries(t, "sm_90")
	all := map[string]*tally{}
	n := 0
	for _, e := range list {
		if frequent(e) {
			plant(t, s, e, texts[e.image], every, &n, all)
		}
	}
	planted, found := 0, 0
	for _, how := range slices.SortedFunc(maps.Keys(all), cmp.Compare[string]) {
		x := all[how]
		planted += x.planted
		found += x.found
		t.Logf("%-40s %5d planted, %5d found", how, x.planted, x.found)
		for _, m := range x.missed {
			t.Logf("    missed: %s", m)
		}
	}
	t.Logf("%d of %d found", found, planted)
	if planted == 0 || found*100 < planted*leastFound {
		t.Errorf("%d of %d planted weakenings were found, expected at least %d %%", found, planted, leastFound)
	}
}
