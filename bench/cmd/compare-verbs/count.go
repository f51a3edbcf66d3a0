package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
)

// mostOfAtomic is the target for a signal with its completion: so many times ib_atomic_lat.
const mostOfAtomic = 1.10

// count compares a signal with its completion with ib_atomic_lat on a machine whose clock goes a
// nanosecond further with each instruction, those of the kernel included (rdma-guest.sh --count).
// Nothing else moves it, so one run is enough, and the result does not depend on the machine
// that emulates. Of two that wait for each other it would count the waiting; here the peer
// sleeps. It writes a line for each program, and reports whether the target is met.
func (j *job) count(ctx context.Context, w io.Writer) (met bool, err error) {
	p := point{completed, 0, j.facts.Iterations}
	took := map[string]float64{}
	for _, s := range sources {
		if s.name != perftestAtom && s.name != hostIn {
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
	ratio := took[hostIn] / took[perftestAtom]
	met = ratio <= mostOfAtomic
	_, err = fmt.Fprintf(w, "signal and completion in one request: %.3f times the instructions of %s, expected at most %.2f\n", ratio, perftestAtom, mostOfAtomic)
	return met, err
}
