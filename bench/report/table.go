package report

import (
	"fmt"
	"io"
	"strconv"
)

// Table writes rows under the headings of nccl-tests, in its column order, for readers
// and scripts that know those. One run measures one of the two placements; the columns
// of the other say N/A.
func Table(w io.Writer) Writer { return &table{w: w} }

type table struct {
	w       io.Writer
	rows    int
	busbw   float64
	wrong   int64
	checked bool
	first   Row // under the headings
}

const (
	headings = "#%12s %12s %8s %9s %6s  %8s %7s %7s %6s  %8s %7s %7s %6s\n"
	lead     = " %12d %12d %8s %9s %6d"
	group    = "  %8s %7s %7s %6s"
	versus   = "  %8s %7s  %s"
)

func (t *table) Row(r Row) error {
	if t.rows > 0 && r.kind() != t.first.kind() {
		if err := t.Close(); err != nil {
			return err
		}
		*t = table{w: t.w}
	}
	if t.rows == 0 {
		t.first = r
		if err := t.head(r); err != nil {
			return err
		}
	}
	t.rows++
	t.busbw += r.BusBW
	wrong := "N/A"
	if r.Errors != nil {
		t.checked = true
		t.wrong += *r.Errors
		wrong = strconv.FormatInt(*r.Errors, 10)
	}
	measured := fmt.Sprintf(group, micros(r.TimeUS), rate(r.AlgBW), rate(r.BusBW), wrong)
	other := fmt.Sprintf(group, "N/A", "N/A", "N/A", "N/A")
	if r.InPlace {
		measured, other = other, measured
	}
	_, err := fmt.Fprintf(t.w, lead+"%s%s%s\n", r.Bytes, r.Count, r.DType, r.Op, r.Root, measured, other, compared(r))
	return err
}

// kind is the key of measurements that share a heading.
func (r *Row) kind() Row {
	return Row{Collective: r.Collective, Registered: r.Registered, Graph: min(r.Graph, 2), Peer: r.Peer}
}

// compared formats the columns behind those of nccl-tests when there is a peer.
func compared(r Row) string {
	switch {
	case r.Peer == "":
		return ""
	case r.PeerTimeUS == nil:
		return fmt.Sprintf(versus, "N/A", "N/A", r.Algorithm)
	}
	return fmt.Sprintf(versus, micros(*r.PeerTimeUS), strconv.FormatFloat(*r.Speedup, 'f', 2, 64), r.Algorithm)
}

func (t *table) head(r Row) error {
	served := r.TransportSource
	if served == "" {
		served = "unknown"
	}
	buffers := "ordinary"
	if r.Registered {
		buffers = "registered"
	}
	if r.Device != "" && r.Device != "host" {
		buffers += " on " + r.Device
	}
	if r.Graph > 0 {
		buffers += fmt.Sprintf(", %d calls a graph at the first size", r.Graph)
	}
	if r.Peer != "" {
		buffers += "; the last columns: time of " + r.Peer + " (us), its time over ours, our algorithm"
	}
	_, err := fmt.Fprintf(t.w, "# %s, %d ranks, %s buffers\n# transport %s: %s\n#\n"+
		"#%12s %12s %8s %9s %6s  %31s  %31s\n"+headings+headings,
		r.Collective, r.Ranks, buffers, r.Transport, served,
		"", "", "", "", "", "out-of-place          ", "in-place            ",
		"size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw", "#wrong",
		"(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "")
	return err
}

func (t *table) Close() error {
	if t.rows == 0 {
		return nil
	}
	verdict := "not checked, see --check"
	if t.checked {
		verdict = fmt.Sprintf("%d OK", t.wrong)
		if t.wrong != 0 {
			verdict = fmt.Sprintf("%d FAILED", t.wrong)
		}
	}
	_, err := fmt.Fprintf(t.w, "# Out of bounds values : %s\n# Avg bus bandwidth    : %s\n#\n", verdict, rate(t.busbw/float64(t.rows)))
	return err
}

// micros keeps four significant digits, which a column of eight always holds.
func micros(us float64) string {
	switch {
	case us < 10:
		return strconv.FormatFloat(us, 'f', 3, 64)
	case us < 100:
		return strconv.FormatFloat(us, 'f', 2, 64)
	case us < 1000:
		return strconv.FormatFloat(us, 'f', 1, 64)
	}
	return strconv.FormatFloat(us, 'f', 0, 64)
}

func rate(gbps float64) string {
	if gbps < 100 {
		return strconv.FormatFloat(gbps, 'f', 2, 64)
	}
	return strconv.FormatFloat(gbps, 'f', 1, 64)
}
