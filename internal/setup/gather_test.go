package setup

import (
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/config"
)

// Jobs of one process write files of their own.
func TestFilesOfTraces(t *testing.T) {
	for want, r := range map[string]recorder{
		"a.perfetto":          {number: 1, config: config.Observe{Trace: "a.perfetto"}},
		"a-5f.perfetto":       {place: placeInJob{id: "5f"}, config: config.Observe{Trace: "a.perfetto"}},
		"a-0.perfetto.2":      {number: 2, config: config.Observe{Trace: "a-%n.perfetto"}},
		"a.perfetto.3.rank-5": {number: 3, config: config.Observe{Trace: "a.perfetto"}},
	} {
		suffix := ""
		if r.number == 3 {
			suffix = ".rank-5"
		}
		if got := r.file(suffix); got != want {
			t.Errorf("%q: expected %q", got, want)
		}
	}
}

// All ranks together give rank 0 no more records than a trace keeps.
func TestSharesOfATrace(t *testing.T) {
	for size, want := range map[int]int{1: gatherRecords, 4: gatherRecords, 10: 100_000, 1000: 1000} {
		if got := share(size); got != want {
			t.Errorf("%d ranks: %d records each, expected %d", size, got, want)
		}
	}
}
