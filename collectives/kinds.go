package collectives

import (
	"fmt"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	named "github.com/mscclpp-go/mscclpp/framework/collective"
)

// Collective names an operation. Its number appears in signatures and in reports about
// waits.
type Collective uint32

// Collectives. Those from AllToAllV on are made of messages between pairs, and
// share one kernel.
const (
	AllReduce Collective = iota + 1
	AllGather
	ReduceScatter
	Broadcast
	Reduce
	AllToAll
	Barrier
	AllToAllV
	Gather
	Scatter
	SendRecv
	collectives = iota + 1
)

var collectiveNames = [collectives]string{
	AllReduce: named.AllReduce, AllGather: named.AllGather, ReduceScatter: named.ReduceScatter, Broadcast: named.Broadcast, Reduce: named.Reduce,
	AllToAll: named.AllToAll, Barrier: named.Barrier, AllToAllV: named.AllToAllV, Gather: named.Gather, Scatter: named.Scatter, SendRecv: named.SendRecv,
}

// String returns the name used in configuration and on the command line.
func (c Collective) String() string {
	if c > 0 && c < collectives {
		return collectiveNames[c]
	}
	return fmt.Sprintf("collective(%d)", uint32(c))
}

// ParseCollective is the inverse of Collective.String.
func ParseCollective(s string) (Collective, error) {
	for i, n := range collectiveNames {
		if i > 0 && n == s {
			return Collective(i), nil
		}
	}
	return 0, fmt.Errorf("%w: collective %q: expected one of %s", framework.ErrInvalid, s, strings.Join(collectiveNames[1:], " "))
}

// reduces reports whether the collective takes a reduction.
func (c Collective) reduces() bool { return c == AllReduce || c == ReduceScatter || c == Reduce }

// rooted reports whether one rank has, or gets, everything.
func (c Collective) rooted() bool { return c == Broadcast || c == Reduce }

// messages reports whether the collective is made of messages between pairs.
func (c Collective) messages() bool { return c >= AllToAllV }

// wide reports whether the larger buffer holds count elements for every rank.
func (c Collective) wide() bool {
	switch c {
	case AllGather, ReduceScatter, AllToAll, AllToAllV, Gather, Scatter:
		return true
	}
	return false
}
