package compare

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

func line(collective string, bytes int64, us float64) string {
	return fmt.Sprintf(`{"collective":%q,"bytes":%d,"transport":"tcp","time_us":%v,"errors":0}`+"\n", collective, bytes, us)
}

// theirs makes a line of ours one of the other side.
func theirs(line string) string { return strings.Replace(line, `"tcp"`, `"c"`, 1) }

func TestRatioIsOfMedians(t *testing.T) {
	ours := []float64{1, 2, 90}
	l, err := Pair(Key{"allreduce", 1024}, ours, []float64{4, 4, 5})
	if err != nil || l.Ours != 2 || l.Theirs != 4 || l.Ratio != 0.5 || l.Paired != 0.5 || l.Low != 0.25 || l.High != 18 {
		t.Errorf("%+v, %v: want 2, 4, 0.5, 0.5 and extremes 0.25, 18", l, err)
	}
	if ours[0] != 1 || ours[2] != 90 {
		t.Errorf("comparing reordered the runs: %v", ours)
	}
	other := Line{Key: Key{"allgather", 1024}, Ratio: 2}
	if m := Mean([]Line{l, other}, ""); math.Abs(m-1) > 1e-12 {
		t.Errorf("mean %v, want 1", m)
	}
	if m := Mean([]Line{l, other}, "broadcast"); !math.IsNaN(m) {
		t.Errorf("the mean of nothing is %v", m)
	}
	if _, err := Pair(Key{}, ours, ours[:2]); err == nil {
		t.Error("sides that ran a different number of times are compared")
	}
}

// table has two turns, of three points.
var table = Table{Name: "x", Turns: [][]Key{{{"allreduce", 1024}, {"allreduce", 4096}}, {{"allgather", 1024}}}}

// whole is the raw output of two repetitions. Ours takes half as long.
func whole() (all []string) {
	for range 2 {
		for _, turn := range table.Turns {
			for _, k := range turn {
				all = append(all, line(k.Collective, k.Bytes, 1))
			}
			for _, k := range turn {
				all = append(all, theirs(line(k.Collective, k.Bytes, 2)))
			}
		}
	}
	return all
}

func TestLinesAreInTheOrderOfTheTable(t *testing.T) {
	r := folder(t, strings.Join(whole(), "\n")) // empty lines are none of output's
	lines, err := r.Read(table, 2)
	if err != nil || len(lines) != 3 || lines[0].Key != table.Turns[0][0] || lines[2].Key != table.Turns[1][0] {
		t.Fatalf("%+v, %v", lines, err)
	}
	for _, l := range lines {
		if l.Ours != 1 || l.Theirs != 2 || l.Ratio != 0.5 {
			t.Errorf("%+v: want 1, 2 and 0.5", l)
		}
	}
}

// Raw output that is not whole, or not that of the table, gives no ratio: the error names
// the line, and what was expected there.
func TestRawOutputThatIsNotWhole(t *testing.T) {
	put := func(at int, text string) []string {
		all := whole()
		all[at] = text
		return all
	}
	for want, raw := range map[string][]string{
		"x.jsonl:12: \"{\\\"collective":                                                                                        {strings.Join(whole(), "")[:len(strings.Join(whole(), ""))-9]}, // in the last line
		"expected a JSON object, allgather of 1024 bytes, theirs: unexpected EOF":                                              {strings.Join(whole(), "")[:len(strings.Join(whole(), ""))-9]},
		"x.jsonl:12: the end, after 11 of 12 results: expected allgather of 1024 bytes, theirs":                                whole()[:11],
		"x.jsonl:1: the end, after 0 of 12 results: expected allreduce of 1024 bytes, ours":                                    nil,
		"x.jsonl:2: allreduce of 1024 bytes, theirs: expected allreduce of 4096 bytes, ours":                                   append(whole()[:1], whole()[2:]...),
		"x.jsonl:13: \"WARNING: the interface is down\": expected the end after 12 results":                                    append(whole(), "WARNING: the interface is down\n"),
		"x.jsonl:5: \"mpirun noticed that\": expected a JSON object, allgather of 1024 bytes, ours":                            put(4, "mpirun noticed that\n"),
		`x.jsonl:3: "{\"what\":\"put\"}": expected a JSON object, allreduce of 1024 bytes, theirs: json: unknown field "what"`: put(2, `{"what":"put"}`+"\n"),
		"x.jsonl:2: allreduce of 4096 bytes, ours: the result was wrong":                                                       put(1, strings.Replace(whole()[1], `"errors":0`, `"errors":2`, 1)),
		"x.jsonl:1: allreduce of 1024 bytes, ours: the result was wrong":                                                       put(0, strings.Replace(whole()[0], `"errors":0`, `"errors":null`, 1)),
		"x.jsonl:1: allreduce of 1024 bytes, ours: a time of 0 µs":                                                             put(0, line("allreduce", 1024, 0)),
		"a time of -1 µs":   put(0, line("allreduce", 1024, -1)),
		"cannot unmarshal":  put(0, strings.Replace(whole()[0], "1024", `"1024"`, 1)),
		"after the object":  put(0, strings.TrimSpace(whole()[0])+"{}\n"),
		"unknown field \"x": put(3, `{"`+strings.Repeat("x", 1<<20)+`":1}`+"\n"),
	} {
		if _, err := folder(t, strings.Join(raw, "")).Read(table, 2); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.300v\nwant %s", err, want)
		}
	}
	if _, err := (&Runner{Out: t.TempDir()}).Read(table, 2); err == nil || !strings.Contains(err.Error(), "x.jsonl: no such file or directory: expected the raw output") {
		t.Errorf("no raw output: %v", err)
	}
}
