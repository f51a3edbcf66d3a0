package report

import (
	"fmt"
	"io"

	"github.com/mscclpp-go/mscclpp/bench/plot"
	"github.com/mscclpp-go/mscclpp/bench/sizes"
)

// Plot draws time and bus bandwidth over the size.
func Plot(w io.Writer, rows []Row) error {
	if len(rows) == 0 {
		return plot.Write(w)
	}
	r := rows[0]
	name := fmt.Sprintf("%s, %d ranks, %s", r.Transport, r.Ranks, r.DType)
	time, rate := plot.Series{Name: name}, plot.Series{Name: name}
	for _, r := range rows {
		time.Points = append(time.Points, plot.Point{X: float64(r.Bytes), Y: r.TimeUS})
		rate.Points = append(rate.Points, plot.Point{X: float64(r.Bytes), Y: r.BusBW})
	}
	size := func(bytes float64) string { return sizes.Format(int64(bytes)) }
	return plot.Write(w,
		plot.Chart{Title: r.Collective + ": time", XLabel: "size (bytes)", YLabel: "time (µs)", XBase: 2, XTick: size, Series: []plot.Series{time}},
		plot.Chart{Title: r.Collective + ": bus bandwidth", XLabel: "size (bytes)", YLabel: "bus bandwidth (GB/s)", XBase: 2, XTick: size, Series: []plot.Series{rate}})
}
