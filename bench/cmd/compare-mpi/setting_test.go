package main

import (
	"math"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/bench/compare"
)

func point(collective string, bytes int64) compare.Key {
	return compare.Key{Collective: collective, Bytes: bytes}
}

func sound(theirs compare.Times) error { return setting{ranks: 2}.sound(theirs) }

func TestVerdict(t *testing.T) {
	lines := []compare.Line{{Key: point("allreduce", 1024), Ratio: 0.25}, {Key: point("allreduce", 4096), Ratio: 1}}
	for _, c := range []struct {
		s      setting
		missed int
	}{
		{setting{mean: 0.8, worst: 1.2}, 0},
		{setting{mean: 0.5, worst: 1.0}, 0},
		{setting{mean: 0.49}, 1},
		{setting{mean: 0.8, worst: 0.9}, 1},
		{setting{mean: 0.4, worst: 0.9}, 2},
	} {
		if got := c.s.missed(lines); len(got) != c.missed {
			t.Errorf("%+v: %q, want %d", c.s, got, c.missed)
		}
	}
	if got := (setting{mean: 1}).missed(nil); len(got) != 1 {
		t.Errorf("a target for nothing is met: %q", got)
	}
}

func TestSummary(t *testing.T) {
	var b strings.Builder
	missed := section(&b, settings[0], []compare.Line{{Key: point("allreduce", 1024), Ours: 1, Theirs: 2, Ratio: 0.5}, {Key: point("allgather", 4096), Ours: 3, Theirs: 2, Ratio: 1.5}})
	missed += startSection(&b, []start{{text: "launch", ratio: 0.25}, {text: "first", ms: 150}}, []compare.Line{{Ours: 10, Theirs: 50, Ratio: 0.2}, {Ours: 200, Theirs: 50, Ratio: 4}})
	got := b.String()
	if missed != 3 {
		t.Errorf("%d targets are missed, expected 3: the mean, one size and one start", missed)
	}
	for _, want := range []string{
		"| allreduce | 1K | 1.00 | 2.00 | 0.500 |", "**0.866**", "Missed:", "- the geometric mean is 0.866, above 0.80",
		"- the ratio of allgather at 4K is 1.500, above 1.20", "| launch | 10.0 | 50.0 | 0.200 | ratio at most 0.25 | met |", "at most 150 ms | missed |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

// The limit is for the median: one disturbed run refuses nothing, and one lucky run
// excuses nothing.
func TestFallingBackIsJudgedByTheMedian(t *testing.T) {
	for name, c := range map[string]struct {
		times   []float64
		refused bool
	}{
		"at the limit":        {[]float64{fallenBack}, false},
		"just above":          {[]float64{math.Nextafter(fallenBack, 5)}, true},
		"one disturbed of 5":  {[]float64{1.2, 1.3, 90, 1.1, 1.2}, false},
		"one lucky of 5":      {[]float64{14, 13, 1.2, 15, 14}, true},
		"two of four are bad": {[]float64{1, 1, 9, 9}, true}, // the median is 5
		"no run":              {nil, true},
		"not a number":        {[]float64{math.NaN()}, true},
	} {
		err := sound(compare.Times{point("allreduce", 1024): c.times})
		if (err != nil) != c.refused {
			t.Errorf("%s: %v, want refused %v", name, err, c.refused)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "comparison refused: the peer ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Only the point that distinguishes shared memory from TCP decides, whatever else was fast.
func TestOtherPointsExcuseNothing(t *testing.T) {
	for name, theirs := range map[string]compare.Times{
		"another collective": {point("allgather", 1024): {1}},
		"another size":       {point("allreduce", 2048): {1}, point("allreduce", 512): {1}},
		"fast elsewhere":     {point("allreduce", 1024): {50}, point("allgather", 1024): {1}, point("allreduce", 4096): {1}},
	} {
		if err := sound(theirs); err == nil {
			t.Errorf("%s: accepted", name)
		}
		if err := (setting{ranks: 4}).sound(theirs); err != nil {
			t.Errorf("%s: four ranks are no measure of it: %v", name, err)
		}
	}
}

// A target that cannot be judged is missed.
func TestNothingIsMissed(t *testing.T) {
	nan := []compare.Line{{Key: point("allreduce", 1024), Ratio: math.NaN()}}
	if got := (setting{mean: 10, worst: 10}).missed(nan); len(got) != 2 {
		t.Errorf("a ratio that is no number misses %q, want both targets", got)
	}
	ratio, ms := start{ratio: 1}, start{ms: 1}
	if !ratio.missed(compare.Line{Ratio: math.NaN()}) || !ms.missed(compare.Line{Ours: math.NaN()}) || !ratio.missed(compare.Line{Ratio: 1.01}) || !ms.missed(compare.Line{Ours: 1.01}) {
		t.Error("a start that is too slow, or no number, is met")
	}
	if ratio.missed(compare.Line{Ratio: 1, Ours: 9}) || ms.missed(compare.Line{Ours: 1, Ratio: 9}) {
		t.Error("a start at its target is missed")
	}
}

func TestSettingsAreDistinct(t *testing.T) {
	names := map[string]bool{}
	for _, s := range settings {
		if names[s.name] || s.ranks < 2 || !(s.mean > 0) || strings.Contains(s.name, "/") {
			t.Errorf("%+v", s)
		}
		names[s.name] = true
	}
	// The peer is only known to be sound after a setting of two ranks.
	if settings[0].ranks != 2 {
		t.Errorf("the first setting has %d ranks", settings[0].ranks)
	}
}
