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
	lines, err := Compare(ours, theirs)
	if err != nil {
		t.Fatal(err)
	}
	if len(lines) != 2 || lines[0].Collective != "allreduce" {
		t.Fatalf("lines %+v: want all-reduce, then all-gather", lines)
	}
	if l := lines[0]; l.Ours != 2 || l.Theirs != 4 || l.Ratio != 0.5 || l.Low != 0.25 || l.High != 18 {
		t.Errorf("%+v: want 2, 4, 0.5 and extremes 0.25, 18", l)
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

func TestVerdict(t *testing.T) {
	lines := []Line{{Key: Key{"allreduce", 1024}, Ratio: 0.25}, {Key: Key{"allreduce", 4096}, Ratio: 1}}
	for _, c := range []struct {
		s      Setting
		broken int
	}{
		{Setting{Mean: 0.8, Worst: 1.2}, 0},
		{Setting{Mean: 0.5, Worst: 1.0}, 0},
		{Setting{Mean: 0.49}, 1},
		{Setting{Mean: 0.8, Worst: 0.9}, 1},
		{Setting{Mean: 0.4, Worst: 0.9}, 2},
	} {
		if got := c.s.Verdict(lines); len(got) != c.broken {
			t.Errorf("%+v: %q, want %d", c.s, got, c.broken)
		}
	}
	if got := (Setting{Mean: 1}).Verdict(nil); len(got) != 1 {
		t.Errorf("a promise about nothing is kept: %q", got)
	}
}

func TestPeerOnTCPIsRefused(t *testing.T) {
	if err := Sound(times(t, line("allreduce", 1024, 3.9), line("allreduce", 1024, 1.5))); err != nil {
		t.Errorf("a sound peer is refused: %v", err)
	}
	for name, theirs := range map[string]Times{
		"slow":    times(t, line("allreduce", 1024, 12), line("allreduce", 1024, 4.1)),
		"unknown": times(t, line("allreduce", 4096, 1)),
	} {
		if err := Sound(theirs); err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("%s: %v", name, err)
		}
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

func TestSummary(t *testing.T) {
	var b strings.Builder
	Heading(&b, Machine{MPI: "Open MPI 4.1.4", CPUs: 2, Repetitions: 5})
	Section(&b, Settings[0], []Line{{Key: Key{"allreduce", 1024}, Ours: 1, Theirs: 2, Ratio: 0.5}, {Key: Key{"allgather", 4096}, Ours: 3, Theirs: 2, Ratio: 1.5}})
	Starts(&b, []Start{{Name: "launch", Ours: 10, Theirs: 50, Ratio: 0.2, Limit: 0.25}, {Name: "first", Ours: 200, Theirs: 50, Ratio: 4, LimitMS: 150}})
	got := b.String()
	for _, want := range []string{
		"# Against Open MPI 4.1.4", "5 runs", "| allreduce | 1K | 1.00 | 2.00 | 0.500 |", "**0.866**", "Not kept:", "- the mean is 0.866, promised is 0.80",
		"- allgather of 4096 bytes is 1.500, promised is 1.20", "| launch | 10.0 | 50.0 | 0.200 | at most 0.25 of theirs | kept |", "at most 150 ms | not kept |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}
