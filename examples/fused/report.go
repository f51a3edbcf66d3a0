package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/mscclpp-go/mscclpp/framework/comm"
)

// report is the median of all measurements on the slowest rank, way by way.
type report struct {
	shape shape
	ranks int
	count int // measurements; 0: there were none

	fused, multiply, gather, apart time.Duration // apart: multiply, then gather
}

// summarize is collective.
func summarize(ctx context.Context, c *comm.Communicator, s shape, laps []lap) (report, error) {
	own := []func(lap) time.Duration{
		func(l lap) time.Duration { return l.fused },
		func(l lap) time.Duration { return l.multiply },
		func(l lap) time.Duration { return l.gather },
		func(l lap) time.Duration { return l.multiply + l.gather },
	}
	var medians []byte
	for _, of := range own {
		medians = binary.LittleEndian.AppendUint64(medians, uint64(median(laps, of)))
	}
	r := report{shape: s, ranks: c.Size(), count: len(laps)}
	all, err := c.AllGather(ctx, medians)
	if err != nil {
		return r, err
	}
	for _, data := range all {
		for i, to := range []*time.Duration{&r.fused, &r.multiply, &r.gather, &r.apart} {
			*to = max(*to, time.Duration(binary.LittleEndian.Uint64(data[8*i:])))
		}
	}
	return r, nil
}

// median is the upper one of an even number.
func median(laps []lap, of func(lap) time.Duration) time.Duration {
	all := make([]time.Duration, len(laps))
	for i, l := range laps {
		all[i] = of(l)
	}
	slices.Sort(all)
	return all[len(all)/2]
}

func (r report) print(w io.Writer) {
	fmt.Fprintf(w, "%d x %d x %d, f16, %d ranks of %d rows: both ways give the same C, and %d elements are as computed\n",
		r.shape.m, r.shape.n, r.shape.k, r.ranks, r.shape.rows(), samples)
	if r.count == 0 {
		return
	}
	fmt.Fprintf(w, "median of %d, slowest rank; TFLOP/s of each rank\n", r.count)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\tµs\tTFLOP/s\tspeed\t")
	for _, row := range []struct {
		name  string
		took  time.Duration
		whole bool // a multiplication: it has a rate, and can be compared
	}{
		{"multiplication alone", r.multiply, true},
		{"all-gather alone", r.gather, false},
		{"one after the other", r.apart, true},
		{"fused", r.fused, true},
	} {
		rate, speed := "-", "-"
		if row.whole {
			rate = fmt.Sprintf("%.1f", r.shape.flops()/row.took.Seconds()/1e12)
			speed = fmt.Sprintf("%.2f", float64(r.apart)/float64(row.took))
		}
		fmt.Fprintf(t, "%s\t%.1f\t%s\t%s\t\n", row.name, float64(row.took)/1e3, rate, speed)
	}
	_ = t.Flush() // as with print, a closed terminal is not reported
}
