package setup

import (
	"fmt"
	"os"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
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

// All ranks have one name for their job, in whatever processes they are, and no two jobs have one.
func TestNamesOfJobs(t *testing.T) {
	var id bootstrap.UniqueID
	copy(id[8:], "\x5f\x02\xc7\xa1 and more")
	none := bootstrap.UniqueID{}
	for want, x := range map[string]struct {
		env  map[string]string
		id   bootstrap.UniqueID
		made bool
	}{
		"17 ":                               {map[string]string{bootstrap.EnvJob: "17", bootstrap.EnvAddr: "a"}, none, false},
		"a-29500 ":                          {map[string]string{bootstrap.EnvAddr: "a", bootstrap.EnvPort: "29500"}, none, false},
		"5f02c7a1 ":                         {nil, id, false},
		"5f02c7a1 5f02c7a1":                 {nil, id, true},
		"17-5f02c7a1 5f02c7a1":              {map[string]string{bootstrap.EnvJob: "17"}, id, true},
		fmt.Sprintf("pid-%d ", os.Getpid()): {nil, none, false},
	} {
		name, own := jobName(func(key string) string { return x.env[key] }, x.id, x.made)
		if name+" "+own != want {
			t.Errorf("%+v: %q and %q, expected %q", x, name, own, want)
		}
	}
}

// All ranks together give rank 0 no more records than a trace keeps.
func TestSharesOfATrace(t *testing.T) {
	for size, want := range map[int]int{1: gatherRecords, 4: gatherRecords, 10: 40_000, 1000: 400} {
		if got := share(size); got != want {
			t.Errorf("%d ranks: %d records each, expected %d", size, got, want)
		}
	}
}
