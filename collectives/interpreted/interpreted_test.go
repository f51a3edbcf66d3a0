package interpreted_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated/interpret"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

func start(t testing.TB) *interpret.Session {
	t.Helper()
	s, err := interpret.Start(t.Context(), emulated.BuildInterpreter(t))
	must(t, "start", err)
	t.Cleanup(func() { s.Close() })
	_, _, err = s.Image(callerImage, []byte(callerText))
	must(t, callerImage, err)
	return s
}

// small is a case that is executed in a moment: an odd size, so that no part of it ends where words do.
var small = shape{ranks: 2, grid: 2, block: 64, launches: 2, bytes: 3000, caller: callerAtEnd}

const mostInstructions = 500e6 // of threads, in one schedule

// errNotForSoMany: the algorithm is for another number of ranks.
var errNotForSoMany = errors.New("not for so many ranks")

// execute runs the launches of an entry on schedules from a first one on.
func execute(t testing.TB, s *interpret.Session, e *entry, x shape, first, schedules uint64, races bool) (interpret.Stats, error) {
	t.Helper()
	if e.algorithm() == "fetch" && x.ranks != 2 {
		return interpret.Stats{}, errNotForSoMany
	}
	if e.algorithm() == "switch_minmax" && x.op == kernel.Sum {
		x.op = kernel.Min
		if _, err := execute(t, s, e, x, first, schedules, races); err != nil {
			return interpret.Stats{}, err
		}
		x.op = kernel.Max
	}
	j, out := set(t, s, e, x)
	j.expect(t, out)
	return s.Run(first, schedules, races, mostInstructions)
}

// Every kernel of collectives for sm_90 gives the result of the reference, bit for bit, and nothing that it does is
// without an order.
func TestEveryEntryOfSM90IsExecuted(t *testing.T) {
	s := start(t)
	list, texts := entries(t, "sm_90")
	var plain, checked interpret.Stats
	loaded := ""
	for _, e := range list {
		if e.image != loaded {
			_, _, err := s.Image(e.image, texts[e.image])
			must(t, e.image, err)
			loaded = e.image
		}
		stats, err := execute(t, s, e, small, 1, 1, false)
		if err == nil {
			plain.Add(stats)
			stats, err = s.Run(2, 2, true, mostInstructions)
			checked.Add(stats)
		}
		if err != nil {
			t.Errorf("%v: %v", e, err)
			continue
		}
		t.Logf("%-48v %9d instructions", e, stats.Instructions/2)
	}
	t.Logf("%d entries: %d instructions of threads in %v; with the race detector %d in %v", len(list), plain.Instructions, plain.Time, checked.Instructions, checked.Time)
	if len(list) != 326 {
		t.Errorf("%d entries, expected 326: a kernel was added or taken away: docs/interpreter.md says how many there are", len(list))
	}
}

// frequent are the entries that stand for all in longer tests: those that move data, and those of one type that sum.
func frequent(e *entry) bool { return !e.typed || e.dtype == kernel.Float32 }

// Signatures are compared, by packets of their own, before data moves.
func TestEntriesThatCompareSignatures(t *testing.T) {
	s := start(t)
	list, texts := entries(t, "sm_90")
	list = slices.DeleteFunc(list, func(e *entry) bool { return !frequent(e) })
	x := small
	x.check = 2 // kCheckCompare
	loaded := ""
	for _, e := range list {
		if _, ok := e.collective(); !ok {
			continue
		}
		if e.image != loaded {
			_, _, err := s.Image(e.image, texts[e.image])
			must(t, e.image, err)
			loaded = e.image
		}
		if _, err := execute(t, s, e, x, 1, 2, true); err != nil {
			t.Errorf("%v: %v", e, err)
		}
	}
}

// More ranks: 4 on one schedule each.
func TestMoreRanks(t *testing.T) {
	s := start(t)
	list, texts := entries(t, "sm_90")
	loaded := ""
	for _, e := range list {
		if !stands(e) {
			continue
		}
		if e.image != loaded {
			_, _, err := s.Image(e.image, texts[e.image])
			must(t, e.image, err)
			loaded = e.image
		}
		x := small
		x.ranks = 4
		if _, err := execute(t, s, e, x, 1, 1, true); err != nil && !errors.Is(err, errNotForSoMany) {
			t.Errorf("%v, %d ranks: %v", e, x.ranks, err)
		}
	}
}

// stands says whether an entry is in tests of more ranks: those of all types over windows are, whose sums differ by type.
func stands(e *entry) bool { return frequent(e) || strings.HasPrefix(e.image, "switch-") }

// A kernel that may begin while the program's own one before it still runs waits for that before it reads or writes what the program does.
func TestEntriesThatOverlapTheCaller(t *testing.T) {
	s := start(t)
	list, texts := entries(t, "sm_90")
	list = slices.DeleteFunc(list, func(e *entry) bool { return !frequent(e) })
	loaded := ""
	for _, e := range list {
		if e.image != loaded {
			_, _, err := s.Image(e.image, texts[e.image])
			must(t, e.image, err)
			loaded = e.image
		}
		x := turns
		x.chunk = 0
		if _, err := execute(t, s, e, x, 1, 2, true); err != nil {
			t.Errorf("%v: %v", e, err)
		}
	}
}
