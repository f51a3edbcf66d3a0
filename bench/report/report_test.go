package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func row(inPlace bool, wrong int64) Row {
	return Row{
		Collective: "allreduce", Bytes: 1 << 20, Count: 1 << 18, DType: "f32", Op: "sum", Root: -1, Ranks: 4, Algorithm: "ring",
		Transport: "shm", TransportProcess: true, TransportSource: "plugin /x/mscclpp-transport-shm (pid 42)",
		InPlace: inPlace, Iterations: 50, Calls: 1, TimeUS: 123.456, AlgBW: 8.5, BusBW: 12.75, Errors: &wrong,
	}
}

func printed(t *testing.T, make func(*bytes.Buffer) Writer, rows ...Row) string {
	t.Helper()
	var out bytes.Buffer
	w := make(&out)
	for _, r := range rows {
		if err := w.Row(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func asTable(b *bytes.Buffer) Writer { return Table(b) }
func asJSON(b *bytes.Buffer) Writer  { return JSON(b) }

func TestTableHasTheColumnsOfNCCLTests(t *testing.T) {
	got := printed(t, asTable, row(false, 0), row(true, 3))
	var fields [][]string
	for _, line := range strings.Split(got, "\n") {
		if f := strings.Fields(line); len(f) > 0 && f[0] != "#" {
			fields = append(fields, f)
		}
	}
	want := []string{
		"1048576 262144 f32 sum -1 123.5 8.50 12.75 0 N/A N/A N/A N/A",
		"1048576 262144 f32 sum -1 N/A N/A N/A N/A 123.5 8.50 12.75 3",
	}
	if len(fields) != len(want) {
		t.Fatalf("%d rows in\n%s", len(fields), got)
	}
	for i, w := range want {
		if g := strings.Join(fields[i], " "); g != w {
			t.Errorf("row %d: %q, want %q", i, g, w)
		}
	}
	for _, want := range []string{
		"size        count     type     redop   root", "time   algbw   busbw #wrong", "out-of-place", "in-place",
		"transport shm: plugin /x/mscclpp-transport-shm (pid 42)", "# Out of bounds values : 3 FAILED\n", "# Avg bus bandwidth    : 12.75\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if n := strings.Count(got, "redop"); n != 1 {
		t.Errorf("%d headings", n)
	}
}

func TestTableLinesUp(t *testing.T) {
	long := row(false, 0)
	long.Bytes, long.Count, long.TimeUS, long.AlgBW, long.DType, long.Op = 1<<38, 1<<36, 99999999, 1234.5, "e4m3b15", "premulsum"
	lines := strings.Split(strings.TrimSpace(printed(t, asTable, row(false, 0), long, row(true, 1))), "\n")
	width := 0
	for _, l := range lines {
		if strings.HasPrefix(l, " ") {
			if width == 0 {
				width = len(l)
			}
			if len(l) != width {
				t.Errorf("line of %d characters among lines of %d: %q", len(l), width, l)
			}
		}
	}
}

func TestUncheckedIsNotZero(t *testing.T) {
	r := row(false, 0)
	r.Errors = nil
	if got := printed(t, asTable, r); !strings.Contains(got, "not checked") || strings.Contains(got, "OK") {
		t.Errorf("a run without a check claims one:\n%s", got)
	}
	if got := printed(t, asJSON, r); !strings.Contains(got, `"errors":null`) {
		t.Errorf("errors is not null in %s", got)
	}
	if got := printed(t, asTable); got != "" {
		t.Errorf("no rows print %q", got)
	}
}

func TestJSONIsOneObjectALine(t *testing.T) {
	got := printed(t, asJSON, row(false, 0), row(true, 7))
	lines := strings.Split(strings.TrimSpace(got), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines in %q", len(lines), got)
	}
	var m map[string]any
	if err := json.Unmarshal([]byte(lines[1]), &m); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{
		"collective": "allreduce", "bytes": 1048576.0, "dtype": "f32", "op": "sum", "ranks": 4.0, "algorithm": "ring", "transport": "shm",
		"transport_process": true, "in_place": true, "registered": false, "time_us": 123.456, "algbw_gbps": 8.5, "busbw_gbps": 12.75, "errors": 7.0,
	} {
		if got, ok := m[key]; !ok || got != want {
			t.Errorf("%s = %v, want %v", key, got, want)
		}
	}
	if !strings.Contains(lines[0], `"errors":0`) {
		t.Errorf("errors is not 0 in %s", lines[0])
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestWriteErrorsSurface(t *testing.T) {
	for _, w := range []Writer{Table(broken{}), JSON(broken{})} {
		if err := w.Row(row(false, 0)); err == nil || !strings.Contains(err.Error(), "disk full") {
			t.Errorf("%T: a failed write gives %v", w, err)
		}
	}
}

func TestFourDigits(t *testing.T) {
	for us, want := range map[float64]string{0.44071: "0.441", 9.9999: "10.000", 12.346: "12.35", 123.45: "123.5", 12345.6: "12346"} {
		if got := micros(us); got != want {
			t.Errorf("micros(%v) = %q, want %q", us, got, want)
		}
	}
}

// Kinds of measurement that differ in what the headings say have headings of their own.
func TestTableOfSeveralKinds(t *testing.T) {
	other, graph := row(false, 0), row(false, 0)
	other.Collective = "allgather"
	graph.Graph, graph.Device = 20, "cuda:0"
	shorter := graph
	shorter.Graph = 8
	got := printed(t, asTable, row(false, 0), row(true, 0), other, graph, shorter)
	if n := strings.Count(got, "redop"); n != 3 || strings.Count(got, "# Out of bounds values") != 3 {
		t.Errorf("%d headings, want 3:\n%s", n, got)
	}
	for _, want := range []string{"# allreduce, 4 ranks, ordinary buffers\n", "# allgather, 4", "20 calls a graph"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}
