package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
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
