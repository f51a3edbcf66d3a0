package compare

import (
	"math"
	"strings"
	"testing"
)

// The limit is for the median: one disturbed run refuses nothing, and one lucky run
// excuses nothing.
func TestFallingBackIsJudgedByTheMedian(t *testing.T) {
	for name, c := range map[string]struct {
		times   []float64
		refused bool
	}{
		"at the limit":        {[]float64{FallenBack}, false},
		"just above":          {[]float64{math.Nextafter(FallenBack, 5)}, true},
		"one disturbed of 5":  {[]float64{1.2, 1.3, 90, 1.1, 1.2}, false},
		"one lucky of 5":      {[]float64{14, 13, 1.2, 15, 14}, true},
		"two of four are bad": {[]float64{1, 1, 9, 9}, true}, // the median is 5
		"no run":              {nil, true},
		"not a number":        {[]float64{math.NaN()}, true},
	} {
		err := Sound(Times{Key{"allreduce", 1024}: c.times})
		if (err != nil) != c.refused {
			t.Errorf("%s: %v, want refused %v", name, err, c.refused)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "comparison refused: the peer ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Only the point that tells shared memory from TCP decides, whatever else was fast.
func TestOtherPointsExcuseNothing(t *testing.T) {
	for name, theirs := range map[string]Times{
		"another collective": {Key{"allgather", 1024}: {1}},
		"another size":       {Key{"allreduce", 2048}: {1}, Key{"allreduce", 512}: {1}},
		"fast elsewhere":     {Key{"allreduce", 1024}: {50}, Key{"allgather", 1024}: {1}, Key{"allreduce", 4096}: {1}},
	} {
		if err := Sound(theirs); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// A run that broke off in the middle leaves no times at all that could be compared
// with those of a whole one.
func TestOutputThatBreaksOff(t *testing.T) {
	whole := line("allreduce", 1024, 1) + line("allreduce", 4096, 2)
	for name, out := range map[string]string{
		"in a line":      whole[:len(whole)-5],
		"a warning":      whole + "WARNING: the interface is down\n",
		"a wrong result": line("allreduce", 1024, 1) + `{"collective":"allreduce","bytes":4096,"time_us":2,"errors":1}`,
		"a huge line":    whole + `{"collective":"` + strings.Repeat("x", 1<<20) + `"}`,
		"a negative":     `{"collective":"allreduce","bytes":4,"time_us":-1,"errors":0}`,
		"another type":   `{"collective":"allreduce","bytes":"4","time_us":1,"errors":0}`,
	} {
		if err := (Times{}).Add([]byte(out)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if err := (Times{}).Add([]byte("\n\n" + whole + "\n")); err != nil {
		t.Errorf("empty lines: %v", err)
	}
}

func TestLinesAreInTheOrderOfTheTable(t *testing.T) {
	times := Times{}
	for _, k := range []Key{{"allgather", 1 << 20}, {"allreduce", 4096}, {"allgather", 1024}, {"allreduce", 1 << 40}, {"allreduce", 1024}} {
		times[k] = []float64{1}
	}
	for range 20 { // the order of a map is another each time
		lines, err := Compare(times, times)
		if err != nil {
			t.Fatal(err)
		}
		var got []Key
		for _, l := range lines {
			if got = append(got, l.Key); l.Ratio != 1 || l.Low != 1 || l.High != 1 {
				t.Fatalf("%+v: equal times give another ratio than 1", l)
			}
		}
		want := []Key{{"allreduce", 1024}, {"allreduce", 4096}, {"allreduce", 1 << 40}, {"allgather", 1024}, {"allgather", 1 << 20}}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("%v, want %v", got, want)
			}
		}
	}
}

// A promise that cannot be judged is not kept.
func TestNothingIsNotKept(t *testing.T) {
	nan := []Line{{Key: Key{"allreduce", 1024}, Ratio: math.NaN()}}
	if got := (Setting{Mean: 10, Worst: 10}).Verdict(nan); len(got) != 2 {
		t.Errorf("a ratio that is no number breaks %q, want both promises", got)
	}
	for _, s := range []Start{{Ratio: math.NaN(), Limit: 1}, {Ours: math.NaN(), LimitMS: 1}, {Ratio: 1.01, Limit: 1}, {Ours: 1.01, LimitMS: 1}} {
		if !s.Broken() {
			t.Errorf("%+v is kept", s)
		}
	}
	for _, s := range []Start{{Ratio: 1, Limit: 1}, {Ours: 1, LimitMS: 1}, {Ratio: 100, Ours: 100}} {
		if s.Broken() {
			t.Errorf("%+v is broken", s)
		}
	}
}

func TestPromisesAreDistinct(t *testing.T) {
	names := map[string]bool{}
	for _, s := range Settings {
		if names[s.Name] || s.Ranks < 2 || !(s.Mean > 0) || strings.Contains(s.Name, "/") {
			t.Errorf("%+v", s)
		}
		names[s.Name] = true
	}
	// The peer is only known to be sound after a setting of two ranks.
	if Settings[0].Ranks != 2 {
		t.Errorf("the first setting has %d ranks", Settings[0].Ranks)
	}
}
