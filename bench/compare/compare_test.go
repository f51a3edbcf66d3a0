package compare

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

func line(collective string, bytes int64, us float64) string {
	return fmt.Sprintf(`{"collective":%q,"bytes":%d,"time_us":%v,"errors":0}`+"\n", collective, bytes, us)
}

func times(t *testing.T, runs ...string) Times {
	t.Helper()
	all := Times{}
	for _, r := range runs {
		if err := all.Add([]byte(r)); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func TestRatioIsOfMedians(t *testing.T) {
	ours := times(t, line("allgather", 1024, 1)+line("allreduce", 1024, 1), line("allgather", 1024, 1)+line("allreduce", 1024, 2), line("allgather", 1024, 1)+line("allreduce", 1024, 90))
	theirs := times(t, line("allreduce", 1024, 4)+line("allgather", 1024, 2), line("allreduce", 1024, 4)+line("allgather", 1024, 2), line("allreduce", 1024, 5)+line("allgather", 1024, 2))
	lines, err := Compare(ours, theirs, "allreduce", "allgather")
	if err != nil {
		t.Fatal(err)
	}
	if len(lines) != 2 || lines[0].Collective != "allreduce" {
		t.Fatalf("lines %+v: want all-reduce, then all-gather", lines)
	}
	if l := lines[0]; l.Ours != 2 || l.Theirs != 4 || l.Ratio != 0.5 || l.Paired != 0.5 || l.Low != 0.25 || l.High != 18 {
		t.Errorf("%+v: want 2, 4, 0.5, 0.5 and extremes 0.25, 18", l)
	}
	if m := Mean(lines, ""); math.Abs(m-0.5) > 1e-12 {
		t.Errorf("mean %v, want 0.5", m)
	}
	if m := Mean(lines, "broadcast"); !math.IsNaN(m) {
		t.Errorf("the mean of nothing is %v", m)
	}
	if got := ours[Key{"allreduce", 1024}]; got[0] != 1 || got[2] != 90 {
		t.Errorf("comparing reordered the runs: %v", got)
	}
}

func TestWrongOutputIsNoTime(t *testing.T) {
	for name, out := range map[string]string{
		"nothing":   "\n",
		"not JSON":  "mpirun noticed that\n",
		"wrong":     `{"collective":"allreduce","bytes":4,"time_us":1,"errors":2}`,
		"unchecked": `{"collective":"allreduce","bytes":4,"time_us":1,"errors":null}`,
		"no time":   `{"collective":"allreduce","bytes":4,"time_us":0,"errors":0}`,
	} {
		if err := (Times{}).Add([]byte(out)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestUnequalSidesAreNotCompared(t *testing.T) {
	one := line("allreduce", 1024, 1)
	for name, theirs := range map[string]Times{
		"fewer runs":   times(t, one),
		"other point":  times(t, line("allreduce", 2048, 1), line("allreduce", 2048, 1)),
		"fewer points": {},
	} {
		if _, err := Compare(times(t, one, one), theirs); err == nil {
			t.Errorf("%s: compared", name)
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
		lines, err := Compare(times, times, "allreduce", "allgather")
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
