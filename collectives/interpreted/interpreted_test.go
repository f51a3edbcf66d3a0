package interpreted_test

import (
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated/interpret"
)

func start(t testing.TB) *interpret.Session {
	t.Helper()
	s, err := interpret.Start(t.Context(), emulated.BuildInterpreter(t))
	must(t, "start", err)
	t.Cleanup(func() { s.Close() })
	return s
}

// small is a case that is executed in a moment: an odd size, so that no part of it ends where words do.
var small = shape{ranks: 2, grid: 2, block: 64, launches: 2, bytes: 3000}

const mostInstructions = 200e6 // of threads, in one schedule

func TestEveryEntryOfSM90IsExecuted(t *testing.T) {
	s := start(t)
	list, texts := entries(t, "sm_90")
	var all interpret.Stats
	loaded := map[string]bool{}
	for _, e := range list {
		if !loaded[e.image] {
			_, _, err := s.Image(e.image, texts[e.image])
			must(t, e.image, err)
			loaded[e.image] = true
		}
		j, out := set(t, s, e, small)
		j.expect(t, out)
		stats, err := s.Run(1, 1, false, mostInstructions)
		if err != nil {
			t.Errorf("%v: %v", e, err)
			continue
		}
		all.Add(stats)
		t.Logf("%-48v %9d instructions", e, stats.Instructions)
	}
	t.Logf("%d entries, %d instructions of threads in %v", len(list), all.Instructions, all.Time)
	if len(list) != 252 {
		t.Errorf("%d entries, expected 252: a kernel was added or taken away: docs/interpreter.md lists them", len(list))
	}
}
