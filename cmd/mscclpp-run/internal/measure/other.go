package measure

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mscclpp-go/mscclpp/bench"
	"github.com/mscclpp-go/mscclpp/bench/report"
	"github.com/mscclpp-go/mscclpp/framework"
)

// other is another algorithm of the library, as a peer to compare with.
type other struct {
	group     *group
	algorithm string // or auto: the one that the selector would choose
	call      bench.Call
	why       error // why the last call was not for it
}

// chosen stands for the algorithm of the selector.
const chosen = "auto"

func (o *other) Name() string                  { return o.algorithm }
func (o *other) Prepare(...bench.Memory) error { return nil }
func (o *other) Release() error                { return nil }

func (o *other) with(c *bench.Call) *bench.Call {
	o.call = *c
	if o.call.Algorithm = o.algorithm; o.algorithm == chosen {
		o.call.Algorithm = ""
	}
	return &o.call
}

// known says that there is no such algorithm for a collective among these ranks, or nothing.
func (o *other) known(c bench.Collective) error {
	all := o.group.Algorithms(c)
	if o.algorithm == chosen || slices.Contains(all, o.algorithm) {
		return nil
	}
	return fmt.Errorf("%w: --vs %s: these ranks have no such algorithm for %s: expected %s, or one of %s", framework.ErrInvalid, o.algorithm, c, chosen, strings.Join(all, ", "))
}

// Supports is false for calls that the algorithm does not take.
func (o *other) Supports(c *bench.Call) bool {
	_, o.why = o.group.Chosen(o.with(c))
	return o.why == nil
}

// missing is a line for a row that has no time of the algorithm.
func (o *other) missing(r *report.Row) string {
	if o == nil || o.why == nil || r.PeerTimeUS != nil {
		return ""
	}
	return fmt.Sprintf("%s of %d bytes: --vs %s has no time: %v\n", r.Collective, r.Bytes, o.algorithm, o.why)
}

func (o *other) Do(c *bench.Call, n int) error {
	c = o.with(c)
	for range n {
		if err := o.group.Do(c); err != nil {
			return err
		}
	}
	return nil
}
