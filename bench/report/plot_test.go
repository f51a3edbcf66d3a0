package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/bench/plot/plottest"
)

func TestPlotNamesWhatItShows(t *testing.T) {
	small, large := row(false, 0), row(false, 0)
	small.Bytes, small.TimeUS = 1024, 1.5
	var b bytes.Buffer
	if err := Plot(&b, []Row{small, large}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"allreduce: time", "allreduce: bus bandwidth", "time (µs)", "bus bandwidth (GB/s)", "size (bytes)", ">1K<", ">1M<", "shm, 4 ranks, f32"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q", want)
		}
	}
	if n := strings.Count(b.String(), "<circle"); n != 4 {
		t.Errorf("%d points, want two in each of two charts", n)
	}
	d := xml.NewDecoder(&b)
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestPlotOfNothing(t *testing.T) {
	var b bytes.Buffer
	if err := Plot(&b, nil); err != nil || !strings.Contains(b.String(), "<svg") {
		t.Errorf("%q, %v", b.String(), err)
	}
}

func sweep(collective string, change func(*Row)) []Row {
	var rows []Row
	for bytes := int64(1024); bytes <= 4096; bytes *= 2 {
		r := row(false, 0)
		r.Collective, r.Bytes, r.TimeUS = collective, bytes, float64(bytes)
		if change != nil {
			change(&r)
		}
		rows = append(rows, r)
	}
	return rows
}

// Each kind of measurement is a curve with a name of its own; titles have what all have in
// common.
func TestPlotOfSeveralKinds(t *testing.T) {
	inPlace := func(r *Row) { r.InPlace = true }
	graphs := func(r *Row) { r.Graph = int(8192 / r.Bytes) }
	for name, c := range map[string]struct {
		rows   [][]Row
		titles []string
		curves [][]string // of each pair of charts
	}{
		"one": {[][]Row{sweep("allreduce", nil)}, []string{"allreduce: time", "allreduce: bus bandwidth"}, [][]string{{"shm, 4 ranks, f32"}}},
		"two collectives": {[][]Row{sweep("allreduce", nil), sweep("allgather", nil)},
			[]string{"shm, 4 ranks, f32: time", "shm, 4 ranks, f32: bus bandwidth"}, [][]string{{"allreduce", "allgather"}}},
		"both places": {[][]Row{sweep("allreduce", nil), sweep("allreduce", inPlace)},
			[]string{"allreduce, shm, 4 ranks, f32: time", "allreduce, shm, 4 ranks, f32: bus bandwidth"}, [][]string{{"out of place", "in place"}}},
		"graphs": {[][]Row{sweep("allreduce", graphs), sweep("allreduce", nil)},
			[]string{"allreduce, shm, 4 ranks, f32: time", "allreduce, shm, 4 ranks, f32: bus bandwidth"}, [][]string{{"graphs of 8", "no graph"}}},
		"too many for a chart": {[][]Row{sweep("a", nil), sweep("a", inPlace), sweep("b", nil), sweep("b", inPlace), sweep("c", nil), sweep("c", inPlace), sweep("d", nil)},
			[]string{"a, shm, 4 ranks, f32: time", "a, shm, 4 ranks, f32: bus bandwidth", "b, shm, 4 ranks, f32: time", "b, shm, 4 ranks, f32: bus bandwidth",
				"c, shm, 4 ranks, f32: time", "c, shm, 4 ranks, f32: bus bandwidth", "d: time", "d: bus bandwidth"},
			[][]string{{"out of place", "in place"}, {"out of place", "in place"}, {"out of place", "in place"}, {"shm, 4 ranks, f32"}}},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := Plot(&b, slices.Concat(c.rows...)); err != nil {
				t.Fatal(err)
			}
			var titles []string
			for i, chart := range plottest.Read(t, b.String()) {
				titles = append(titles, chart.Title)
				if !slices.Equal(chart.Names(), c.curves[i/2]) {
					t.Errorf("%s: curves %q, expected %q", chart.Title, chart.Names(), c.curves[i/2])
				}
				for _, s := range chart.Series {
					if len(s.X) != 3 {
						t.Errorf("%s: %d points of %q, expected 3", chart.Title, len(s.X), s.Name)
					}
				}
			}
			if !slices.Equal(titles, c.titles) {
				t.Errorf("titles %q, expected %q", titles, c.titles)
			}
		})
	}
}
