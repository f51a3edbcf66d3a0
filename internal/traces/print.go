package traces

import (
	"fmt"
	"io"
)

// Print writes the story for people.
func (s *Story) Print(w io.Writer) {
	fmt.Fprintf(w, "job %s: %s, %s\n", s.Job, Counted(s.Ranks, "rank"), Counted(s.Calls, "call"))
	for _, f := range s.Failed {
		fmt.Fprintf(w, "rank %d failed: %s\n", f.Rank, f.Text)
	}
	for _, o := range s.Open {
		fmt.Fprintf(w, "call %d of %s, %s of %s, has not ended on %s", o.Number, o.Comm, o.Kind, Size(o.Bytes), RankList(o.In))
		if len(o.Without) > 0 {
			fmt.Fprintf(w, "; %s not begun it", Have(o.Without))
		}
		fmt.Fprintln(w)
	}
	if c := s.Slowest; c != nil {
		fmt.Fprintf(w, "slowest call: %d of %s, %s of %s by %s, took %s", c.Number, c.Comm, c.Kind, Size(c.Bytes), c.Algorithm, Took(c.Took))
		if c.Late >= 0 {
			fmt.Fprintf(w, "; rank %d began it last, %s behind the first", c.Late, Took(c.LateBy))
		}
		fmt.Fprintln(w)
	}
	for i, l := range s.Late {
		switch {
		case i == 0 && s.standsOut():
			fmt.Fprintln(w, s.Straggler())
		case i < 4:
			fmt.Fprintf(w, "rank %d came last in %s, and cost the others %s\n", l.Rank, Counted(l.Times, "call"), Took(l.Cost))
		}
	}
	if len(s.Split) > 0 {
		fmt.Fprintf(w, "%-6s %12s %12s %12s %12s\n", "rank", "choosing", "waiting", "working", "between")
	}
	for _, x := range s.Split {
		fmt.Fprintf(w, "%-6d %12s %12s %12s %12s\n", x.Rank, Took(x.Choose), Took(x.Wait), Took(x.Work), Took(x.Beside))
	}
	s.PrintKernels(w)
	s.printLinks(w)
	for _, p := range s.Proxies {
		fmt.Fprintf(w, "rank %d, %s: %s, %s in %s\n", p.Rank, p.Proxy, Counted(p.Triggers, "trigger"), Size(p.Bytes), Took(p.Took))
	}
	if s.Error > 0 {
		fmt.Fprintf(w, "clocks of hosts agree to %s\n", Took(s.Error))
	}
	if s.Lost > 0 {
		fmt.Fprintf(w, "%d records were overwritten before they were read\n", s.Lost)
	}
	if s.Dropped > 0 {
		fmt.Fprintf(w, "the oldest %d records were dropped: there were more than a trace keeps\n", s.Dropped)
	}
}

// SlowLinks says of each link that is slower than its kind how much, with the evidence.
func (s *Story) SlowLinks() []string {
	var all []string
	for i := range s.Links {
		if l := &s.Links[i]; l.Slow {
			all = append(all, fmt.Sprintf("the link from rank %d to rank %d over %s is slower than its kind: %s of up to %s took %s in the middle, and %s over %s of %s",
				l.From, l.To, l.Transport, Counted(l.Counts, "put"), Size(l.UpTo), Took(l.Median), Took(l.Others), Counted(l.Links, "other link"), l.Transport))
		}
	}
	return all
}

// mostLinks is how many links are printed.
const mostLinks = 8

func (s *Story) printLinks(w io.Writer) {
	for _, line := range s.SlowLinks() {
		fmt.Fprintln(w, line)
	}
	if len(s.Links) > 0 {
		fmt.Fprintf(w, "%-14s %8s %12s %12s %12s\n", "link", "puts", "bytes", "waited", "median put")
	}
	for i := range s.Links {
		l := &s.Links[i]
		if i == mostLinks {
			fmt.Fprintf(w, "and %s\n", Counted(len(s.Links)-i, "other link"))
			return
		}
		middle := "-"
		if l.Counts > 0 {
			middle = Took(l.Median)
		}
		fmt.Fprintf(w, "%-14s %8d %12s %12s %12s\n", fmt.Sprintf("%d to %d, %s", l.From, l.To, l.Transport), l.Puts, Size(l.Bytes), Took(l.Waited), middle)
	}
}

// PrintKernels writes where the time of kernels, and of calls on devices, went.
func (s *Story) PrintKernels(w io.Writer) {
	longest := func(rank int, took int64) string {
		if rank < 0 {
			return "-"
		}
		return fmt.Sprintf("rank %d, %s", rank, Took(took))
	}
	if len(s.Kernels) > 0 {
		fmt.Fprintf(w, "%-7s %8s %12s %12s %12s %12s %12s  %s\n", "kernels", "launches", "took", "waiting", "copying", "reducing", "packets", "waits longest for")
	}
	for _, x := range s.Kernels {
		fmt.Fprintf(w, "%-7d %8d %12s %12s %12s %12s %12s  %s\n", x.Rank, x.Launches, Took(x.Took), Took(x.Wait), Took(x.Copy), Took(x.Reduce), Took(x.Packets), longest(x.For, x.ForTook))
	}
	if len(s.Devices) > 0 {
		fmt.Fprintf(w, "%-7s %8s %12s %12s %12s %12s %12s  %s\n", "devices", "measured", "launching", "queued", "took", "waiting", "times within", "waits longest for")
	}
	for _, x := range s.Devices {
		fmt.Fprintf(w, "%-7d %8d %12s %12s %12s %12s %12s  %s\n", x.Rank, x.Spans, Took(x.Launch), Took(x.Queued), Took(x.Took), Took(x.Wait), Took(x.Off), longest(x.For, x.ForTook))
	}
}
