package sight

import (
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/config"
	"github.com/mscclpp-go/mscclpp/framework/observe"
	"github.com/mscclpp-go/mscclpp/internal/traces"
	"github.com/mscclpp-go/mscclpp/launch"
)

// The flight record has the last records of a job, both those that the report had already read and dropped, and those that it had not read.
func TestFlightRecordBesideAReport(t *testing.T) {
	dir := t.TempDir()
	w, err := Open(config.Observe{Enabled: true, Report: true, Flight: dir}, nil, 1, 0, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	variable, _ := strings.CutPrefix(w.Env()[0], observe.Env+"=")
	r, err := observe.Open(observe.Facts{Job: "job", Size: 1, Getenv: func(name string) string { return map[string]string{observe.Env: variable}[name] }})
	if err != nil {
		t.Fatal(err)
	}
	b := r.Board("world", 0, 1)
	calls := func(n int) {
		for range n {
			b.Begin(b.Clock(), collective.AllReduce, 8, "ring", 0)
			b.End()
		}
	}
	calls(5)
	w.c.Poll()
	w.c.Tell("job") // drops them
	calls(5)
	b.Begin(b.Clock(), collective.AllReduce, 8, "ring", 0)
	died := launch.Result{Rank: 0, Code: 1}
	w.Failed(died)
	b.End() // with an error
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	w.Close(died)
	made, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(made) != 1 {
		t.Fatalf("%q, %v: expected one folder", made, err)
	}
	x, err := traces.ReadAll(made)
	if err != nil {
		t.Fatal(err)
	}
	list := x.Ranks[0].Calls
	if len(list) != 11 {
		t.Fatalf("%d calls: %+v: expected 11", len(list), list)
	}
	for i, c := range list {
		if c.Number != uint64(i+1) || c.Guess || (c.End == 0) != (i == 10) {
			t.Errorf("%+v: expected call %d, recorded, of which only the last has not ended", c, i+1)
		}
	}
}

// On a busy machine each rank is behind now and then, and none of them is named; nor is one of which there are few looks.
func TestRanksThatAreBehind(t *testing.T) {
	for name, x := range map[string]struct {
		times []int // of 4 ranks
		looks int
		want  []int
	}{
		"all alike":    {[]int{33, 28, 33, 26}, 58, nil},
		"one":          {[]int{40, 3}, 41, []int{0}},
		"two":          {[]int{40, 39, 2, 1}, 41, []int{0, 1}},
		"few looks":    {[]int{7}, 7, nil},
		"now and then": {[]int{20}, 41, nil},
	} {
		var all []Behind
		for rank, n := range x.times {
			all = append(all, Behind{rank, n, x.looks})
		}
		var got []int
		for _, b := range all {
			if b.standsOut(all, 4) {
				got = append(got, b.Rank)
			}
		}
		if !slices.Equal(got, x.want) {
			t.Errorf("%s: ranks %v, expected %v", name, got, x.want)
		}
	}
}
