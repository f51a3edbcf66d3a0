package report

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
)

// Programs read these keys. Others may come beside them; none goes or changes its
// type.
var promised = map[string]any{
	"collective": "", "bytes": 0.0, "count": 0.0, "dtype": "", "op": "", "root": 0.0, "ranks": 0.0, "algorithm": "",
	"transport": "", "transport_process": false, "transport_source": "", "in_place": false, "registered": false,
	"iterations": 0.0, "calls": 0.0, "time_us": 0.0, "algbw_gbps": 0.0, "busbw_gbps": 0.0, "errors": 0.0,
}

func TestPromisedKeys(t *testing.T) {
	var m map[string]any
	if err := json.Unmarshal([]byte(printed(t, asJSON, row(false, 2))), &m); err != nil {
		t.Fatal(err)
	}
	for key, want := range promised {
		if got, ok := m[key]; !ok || reflect.TypeOf(got) != reflect.TypeOf(want) {
			t.Errorf("%s is %v (%T), want a %T", key, got, got, want)
		}
	}
}

func TestRowsSurviveTheirJSON(t *testing.T) {
	unchecked := row(true, 0)
	unchecked.Errors = nil
	odd := row(false, math.MaxInt64)
	odd.TransportSource = "plugin \"/a b/<x>&y\n\t\" (pid 1)"
	odd.TimeUS, odd.Bytes = 1.0/3, 1<<53+1
	for _, want := range []Row{row(false, 0), unchecked, odd} {
		text := printed(t, asJSON, want)
		if strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "\n") {
			t.Errorf("%q is not one line", text)
		}
		var got Row
		if err := json.Unmarshal([]byte(text), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	}
}

// A number that JSON has no form for is an error, not a line that no program reads.
func TestNoTimeIsAnErrorInJSON(t *testing.T) {
	r := row(false, 0)
	r.TimeUS = math.NaN()
	var b bytes.Buffer
	if err := JSON(&b).Row(r); err == nil || b.Len() != 0 {
		t.Errorf("%v, %q", err, b.String())
	}
}

// Scripts for nccl-tests take fields by their number.
func TestFieldsByNumber(t *testing.T) {
	for _, inPlace := range []bool{false, true} {
		for line := range strings.Lines(printed(t, asTable, row(inPlace, 4))) {
			f := strings.Fields(line)
			if f[0] == "#" || strings.HasPrefix(f[0], "#") {
				continue
			}
			if len(f) != 13 {
				t.Fatalf("%d fields in %q, want 13", len(f), line)
			}
			time, bus, wrong := 5, 7, 8
			if inPlace {
				time, bus, wrong = 9, 11, 12
			}
			if f[0] != "1048576" || f[time] != "123.5" || f[bus] != "12.75" || f[wrong] != "4" {
				t.Errorf("in place %v: %q", inPlace, f)
			}
		}
	}
}

// Everything but the rows is a comment, as in the files that nccl-tests leaves.
func TestTableIsRowsAndComments(t *testing.T) {
	lines := strings.Split(strings.TrimSuffix(printed(t, asTable, row(false, 0), row(false, 0)), "\n"), "\n")
	rows := 0
	for _, l := range lines {
		switch {
		case strings.HasPrefix(l, "#"):
		case strings.HasPrefix(l, " "):
			rows++
		default:
			t.Errorf("neither a row nor a comment: %q", l)
		}
		if strings.TrimRight(l, " ") == "" {
			t.Error("an empty line")
		}
	}
	if rows != 2 {
		t.Errorf("%d rows, want 2", rows)
	}
}

func TestSummaryOfTheTable(t *testing.T) {
	slow, fast := row(false, 2), row(false, 3)
	slow.BusBW, fast.BusBW = 1, 3
	got := printed(t, asTable, slow, fast)
	for _, want := range []string{"# Avg bus bandwidth    : 2.00\n", "# Out of bounds values : 5 FAILED\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if got := printed(t, asTable, row(false, 0)); !strings.Contains(got, "# Out of bounds values : 0 OK\n") {
		t.Errorf("right results are not said to be:\n%s", got)
	}
}

func TestHeadingNamesWhatIsMeasured(t *testing.T) {
	r := row(false, 0)
	r.Registered, r.TransportSource = true, ""
	got := printed(t, asTable, r)
	for _, want := range []string{"# allreduce, 4 ranks, registered buffers", "# transport shm: unknown"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestRates(t *testing.T) {
	for gbps, want := range map[float64]string{0: "0.00", 0.004: "0.00", 1.005: "1.00", 99.99: "99.99", 100: "100.0", 1234.56: "1234.6"} {
		if got := rate(gbps); got != want {
			t.Errorf("rate(%v) = %q, want %q", gbps, got, want)
		}
	}
}
