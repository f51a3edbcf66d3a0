package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// count compares a signal with its completion with ib_atomic_lat on a machine whose clock goes a
// nanosecond further with each instruction, those of the kernel included (rdma-guest.sh --count).
// Nothing else moves it, so one run is enough, whatever else the machine that emulates has to do.
// Of two that wait for each other it would count the waiting; here the peer sleeps. It writes a
// line for each program, and reports whether the target, that of the times, is met.
func (j *job) count(ctx context.Context, w io.Writer) (met bool, err error) {
	p := point{completed, 0, j.facts.Iterations}
	c := comparisons[slices.IndexFunc(comparisons, func(c comparison) bool { return c.key == keyOf(p.what, p.bytes) })]
	took := map[string]float64{}
	for _, s := range sources {
		if s.name != c.ours && s.name != c.theirs {
			continue
		}
		samples, err := s.measure(j, ctx, []point{p})
		if err != nil {
			return false, fmt.Errorf("%s: %w", s.name, err)
		}
		r := recordOf(s.name, 1, p)
		r.Value, r.Unit = samples[0].Value*1000, "instructions"
		if err := json.NewEncoder(w).Encode(r); err != nil {
			return false, err
		}
		took[s.name] = r.Value
	}
	ratio := took[c.ours] / took[c.theirs]
	_, err = fmt.Fprintf(w, "signal and completion in one request: %.3f times the instructions of %s, expected at most %.2f\n", ratio, c.theirs, c.most)
	return c.met(ratio), err
}
