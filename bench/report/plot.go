package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/mscclpp-go/mscclpp/bench/plot"
	"github.com/mscclpp-go/mscclpp/bench/sizes"
)

// Plot draws time and bus bandwidth over the size, a curve for each kind of measurement:
// for all in one pair of charts, or where these are too many to be distinguished, in a pair
// for each collective.
func Plot(w io.Writer, rows []Row) error {
	all := sweeps(rows)
	if len(all) <= plot.MaxCurves {
		return plot.Write(w, drawn(all)...)
	}
	var charts []plot.Chart
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n][0].Collective == all[0][0].Collective {
			n++
		}
		charts = append(charts, drawn(all[:n])...)
		all = all[n:]
	}
	return plot.Write(w, charts...)
}

// sweeps cuts the rows of a run into those that are one curve.
func sweeps(rows []Row) [][]Row {
	var all [][]Row
	for i, r := range rows {
		if i == 0 || curveOf(r) != curveOf(rows[i-1]) || r.Bytes <= rows[i-1].Bytes {
			all = append(all, nil)
		}
		all[len(all)-1] = append(all[len(all)-1], r)
	}
	return all
}

// curveOf returns the key of a row's curve. The calls of a graph become fewer with
// the size.
func curveOf(r Row) Row {
	return Row{
		Collective: r.Collective, DType: r.DType, Op: r.Op, Root: r.Root, Ranks: r.Ranks, Transport: r.Transport,
		InPlace: r.InPlace, Registered: r.Registered, Graph: min(r.Graph, 1),
	}
}

// drawn are the charts of some sweeps. Their titles have what these have in common, and the
// curves are named by the rest.
func drawn(all [][]Row) []plot.Chart {
	if len(all) == 0 {
		return nil
	}
	common := shared(all)
	var times, rates []plot.Series
	for _, rows := range all {
		words := wordsOf(rows[0])
		var name []string
		for i, word := range words {
			if common[i] == "" && word != "" {
				name = append(name, word)
			}
		}
		if len(all) == 1 {
			name = unusual(words[1:])
		}
		time, rate := plot.Series{Name: text(name)}, plot.Series{Name: text(name)}
		for _, r := range rows {
			time.Points = append(time.Points, plot.Point{X: float64(r.Bytes), Y: r.TimeUS})
			rate.Points = append(rate.Points, plot.Point{X: float64(r.Bytes), Y: r.BusBW})
		}
		times, rates = append(times, time), append(rates, rate)
	}
	if len(all) == 1 {
		common = common[:1] // the rest names the curve
	}
	title := ""
	if t := text(unusual(common)); t != "" {
		title = t + ": "
	}
	size := func(bytes float64) string { return sizes.Format(int64(bytes)) }
	return []plot.Chart{
		{Title: title + "time", XLabel: "size (bytes)", YLabel: "time (µs)", XBase: 2, XTick: size, Series: times},
		{Title: title + "bus bandwidth", XLabel: "size (bytes)", YLabel: "bus bandwidth (GB/s)", XBase: 2, XTick: size, Series: rates},
	}
}

// wordsOf describes a curve, the collective first.
func wordsOf(r Row) []string {
	words := []string{r.Collective, r.Transport, fmt.Sprintf("%d ranks", r.Ranks), r.DType, "out of place", "ordinary buffers", "no graph", ""}
	if r.InPlace {
		words[4] = "in place"
	}
	if r.Registered {
		words[5] = "registered"
	}
	if r.Graph > 0 {
		words[6] = fmt.Sprintf("graphs of %d", r.Graph)
	}
	if r.Root > 0 {
		words[7] = fmt.Sprintf("root %d", r.Root)
	}
	return words
}

// unusual leaves out what goes without saying.
func unusual(words []string) []string {
	return slices.DeleteFunc(slices.Clone(words), func(w string) bool {
		return w == "out of place" || w == "ordinary buffers" || w == "no graph"
	})
}

// shared are the words that all curves have, with "" for the others.
func shared(all [][]Row) []string {
	common := wordsOf(all[0][0])
	for _, rows := range all[1:] {
		for i, word := range wordsOf(rows[0]) {
			if word != common[i] {
				common[i] = ""
			}
		}
	}
	return common
}

func text(words []string) string {
	var some []string
	for _, w := range words {
		if w != "" {
			some = append(some, w)
		}
	}
	return strings.Join(some, ", ")
}
