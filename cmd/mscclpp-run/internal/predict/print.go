package predict

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/mscclpp-go/mscclpp/bench/plot"
	"github.com/mscclpp-go/mscclpp/bench/sizes"
	"github.com/mscclpp-go/mscclpp/simulate"
)

// Row is one line of JSON. It has the names of bench where it says the same,
// and says that nothing was measured.
type Row struct {
	Predicted       bool    `json:"predicted"` // always true
	Collective      string  `json:"collective"`
	Machine         string  `json:"machine"`
	Hosts           int     `json:"hosts"`
	Ranks           int     `json:"ranks"` // of all hosts
	Bytes           int64   `json:"bytes"`
	Algorithm       string  `json:"algorithm"`
	InProgram       bool    `json:"in_program"` // collectives of this project have it, for this size
	Pieces          int     `json:"pieces"`
	TimeUS          float64 `json:"time_us"`
	BoundUS         float64 `json:"bound_us"` // closed form: no order of pieces is faster
	AlgBW           float64 `json:"algbw_gbps"`
	BusBW           float64 `json:"busbw_gbps"`
	BoundBy         string  `json:"bound_by"` // latency, links, network or reduction
	LinkSteps       int     `json:"link_steps"`
	NetworkSteps    int     `json:"network_steps"`
	LinkBytes       float64 `json:"link_bytes"` // sent by the busiest rank
	NetworkBytes    float64 `json:"network_bytes"`
	NetworkMessages float64 `json:"network_messages"`
	LinkBusyUS      float64 `json:"link_busy_us"`
	NetworkBusyUS   float64 `json:"network_busy_us"`
	ReduceBusyUS    float64 `json:"reduce_busy_us"`

	MeasuredUS *float64 `json:"measured_us,omitempty"` // with --published
	Source     string   `json:"source,omitempty"`
}

func rowOf(p *simulate.Prediction) Row {
	rate := float64(p.Bytes) / p.Time / 1e3
	return Row{
		Predicted: true, Collective: p.Collective.String(), Machine: p.Machine.Name, Hosts: p.Cluster.Hosts(), Ranks: p.Cluster.Ranks(),
		Bytes: p.Bytes, Algorithm: p.Algorithm.String(), Pieces: p.Pieces,
		InProgram: simulate.InProgram(p.Collective, p.Cluster, p.Bytes, p.Algorithm),
		TimeUS:    p.Time, BoundUS: p.Formula,
		AlgBW: rate, BusBW: rate * p.Collective.BusFactor(p.Cluster.Ranks()), BoundBy: p.Bound(),
		LinkSteps: p.LinkSteps, NetworkSteps: p.NetworkSteps, LinkBytes: p.LinkBytes, NetworkBytes: p.NetworkBytes,
		NetworkMessages: p.NetworkMessages, LinkBusyUS: p.LinkBusy, NetworkBusyUS: p.NetworkBusy, ReduceBusyUS: p.ReduceBusy,
	}
}

func predictionLines(w io.Writer, all []simulate.Prediction) error {
	to := json.NewEncoder(w)
	for i := range all {
		if err := to.Encode(rowOf(&all[i])); err != nil {
			return err
		}
	}
	return nil
}

const (
	predictionHead = "#%12s %6s %8s  %9s %8s %8s  %-15s %6s  %s"
	predictionLine = " %12d %6d %8d  %9s %8s %8s  %-15s %6d  %s\n"
)

// predictionTable has a part for each collective, in the style of bench. Algorithms that the
// collectives of this project do not have are marked: no job can run them.
func predictionTable(w io.Writer, all []simulate.Prediction) error {
	marked := false
	for i := range all {
		p := &all[i]
		if i == 0 || p.Collective != all[i-1].Collective {
			names := fmt.Sprintf(predictionHead, "size", "hosts", "ranks", "time", "algbw", "busbw", "algorithm", "pieces", "bound by")
			units := fmt.Sprintf(predictionHead, "(B)", "", "", "(us)", "(GB/s)", "(GB/s)", "", "", "")
			_, err := fmt.Fprintf(w, "# %s on %s, predicted by simulation: nothing was measured\n%s#\n%s\n%s\n",
				p.Collective, p.Machine.Name, parameterLines(&p.Machine), names, strings.TrimRight(units, " "))
			if err != nil {
				return err
			}
		}
		row := rowOf(p)
		name := row.Algorithm
		if p.Cluster.Hosts() > 1 && !row.InProgram {
			name, marked = name+"*", true
		}
		_, err := fmt.Fprintf(w, predictionLine, row.Bytes, row.Hosts, row.Ranks, digits(row.TimeUS), digits(row.AlgBW), digits(row.BusBW),
			name, row.Pieces, row.BoundBy)
		if err != nil {
			return err
		}
	}
	if marked {
		_, err := fmt.Fprintf(w, "# * not in this program at that size; --algorithm %s predicts what is\n", programAlgorithm)
		return err
	}
	return nil
}

// digits keeps four significant ones, and never drops a digit before the point.
func digits(v float64) string {
	decimals := 3
	for limit := 10.0; v >= limit && decimals > 0; limit *= 10 {
		decimals--
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}

// printPublished sets predictions beside what was measured.
func printPublished(w io.Writer, format string) error {
	to := json.NewEncoder(w)
	if format == "table" {
		if _, err := fmt.Fprintf(w, "# measured times beside predicted ones; off: the prediction over the measurement\n#\n"+
			"#%-21s %7s %6s  %-13s %7s  %-12s %6s %7s  %9s %9s %5s  %s\n",
			"source", "machine", "hosts", "collective", "bytes", "algorithm", "pieces", "copies", "measured", "predicted", "off", "bound by"); err != nil {
			return err
		}
	}
	for _, m := range simulate.Published() {
		p, err := m.Predict()
		if err != nil {
			return err
		}
		if format == "json" {
			row := rowOf(&p)
			row.MeasuredUS, row.Source = &m.Time, m.Source
			if err := to.Encode(row); err != nil {
				return err
			}
			continue
		}
		copies := "engines"
		if m.NoCopies {
			copies = "kernels"
		}
		if m.Machine.Name == "shaped" {
			copies = "-"
		}
		if _, err := fmt.Fprintf(w, " %-21s %7s %3dx%d   %-13s %7s  %-12s %6d %7s  %9s %9s %+4.0f%%  %s\n",
			m.Source, m.Machine.Name, m.Hosts, m.Ranks, m.Collective, sizes.Format(m.Bytes), m.Algorithm, p.Pieces, copies,
			digits(m.Time), digits(p.Time), 100*(p.Time/m.Time-1), p.Bound()); err != nil {
			return err
		}
	}
	return nil
}

// maxCurves is how many curves one chart can tell apart.
const maxCurves = plot.MaxCurves

// drawPredictions draws time and bus bandwidth over the size, a curve for each number of hosts
// and, unless only the best is asked for, each algorithm. Of more than can be distinguished some are drawn, evenly spread.
func drawPredictions(w io.Writer, all []simulate.Prediction, best bool) error {
	var charts []plot.Chart
	for len(all) > 0 {
		n := 0
		for n < len(all) && all[n].Collective == all[0].Collective {
			n++
		}
		time, rate := curves(all[:n], best)
		title := fmt.Sprintf("%s on %s, predicted", all[0].Collective, all[0].Machine.Name)
		size := func(bytes float64) string { return sizes.Format(int64(bytes)) }
		charts = append(charts,
			plot.Chart{Title: title + ": time", XLabel: "size (bytes)", YLabel: "time (µs)", XBase: 2, XTick: size, Series: someOf(time)},
			plot.Chart{Title: title + ": bus bandwidth", XLabel: "size (bytes)", YLabel: "bus bandwidth (GB/s)", XBase: 2, XTick: size, Series: someOf(rate)})
		all = all[n:]
	}
	return plot.Write(w, charts...)
}

func curves(all []simulate.Prediction, best bool) (time, rate []plot.Series) {
	at := map[string]int{}
	for i := range all {
		row := rowOf(&all[i])
		name := fmt.Sprintf("%d hosts", row.Hosts)
		if !best {
			name += ", " + row.Algorithm
		}
		j, ok := at[name]
		if !ok {
			j = len(time)
			at[name] = j
			time, rate = append(time, plot.Series{Name: name}), append(rate, plot.Series{Name: name})
		}
		time[j].Points = append(time[j].Points, plot.Point{X: float64(row.Bytes), Y: row.TimeUS})
		rate[j].Points = append(rate[j].Points, plot.Point{X: float64(row.Bytes), Y: row.BusBW})
	}
	return time, rate
}

// someOf keeps the first, the last and evenly many between.
func someOf(all []plot.Series) []plot.Series {
	if len(all) <= maxCurves {
		return all
	}
	kept := make([]plot.Series, maxCurves)
	for i := range kept {
		kept[i] = all[i*(len(all)-1)/(maxCurves-1)]
	}
	return kept
}
