package bench

import (
	"slices"

	"github.com/mscclpp-go/mscclpp/framework/collective"
)

// Collective is an operation that can be measured and checked: all but the barrier.
type Collective = collective.Kind

// The collectives, in the order of the documentation. In SendRecv every rank sends to the next and receives from the
// one before, in one group.
const (
	AllReduce     = collective.AllReduce
	AllGather     = collective.AllGather
	ReduceScatter = collective.ReduceScatter
	Broadcast     = collective.Broadcast
	Reduce        = collective.Reduce
	AllToAll      = collective.AllToAll
	AllToAllV     = collective.AllToAllV
	Gather        = collective.Gather
	Scatter       = collective.Scatter
	SendRecv      = collective.SendRecv
)

// All returns every collective.
func All() []Collective {
	return slices.DeleteFunc(collective.All(), func(c Collective) bool { return c == collective.Barrier })
}

// ParseCollective is the inverse of String. Case, '-' and '_' do not matter.
func ParseCollective(name string) (Collective, error) { return collective.Among(name, All()) }

// Count returns the number of elements to pass to a call so that its larger buffer holds at most bytes.
func Count(c Collective, bytes int64, elementSize, ranks int) int {
	n := bytes / int64(elementSize)
	if c.Wide() {
		n /= int64(ranks)
	}
	return int(n)
}

// Larger returns the number of elements of the larger buffer, over all ranks.
func Larger(c Collective, count, ranks int) int64 {
	if c == AllToAllV {
		return int64(blockUnit(count, ranks) * ranks * (ranks + 1) / 2)
	}
	if c.Wide() {
		return int64(count) * int64(ranks)
	}
	return int64(count)
}
