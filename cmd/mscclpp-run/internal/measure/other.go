package measure

import (
	"slices"

	"github.com/mscclpp-go/mscclpp/bench"
)

// other is another algorithm of the library, as a peer to compare with.
type other struct {
	group     *group
	algorithm string // or auto: the one that the selector would choose
	call      bench.Call
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

// Supports is false for calls that the algorithm does not take.
func (o *other) Supports(c *bench.Call) bool {
	if o.algorithm != chosen && !slices.Contains(o.group.Algorithms(c.Collective), o.algorithm) {
		return false
	}
	_, err := o.group.Chosen(o.with(c))
	return err == nil
}

func (o *other) Do(c *bench.Call) error { return o.group.Do(o.with(c)) }
