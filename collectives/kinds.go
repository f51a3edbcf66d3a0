package collectives

import (
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/collective"
)

// Collective names an operation. Its number appears in signatures and in reports about
// waits.
type Collective = collective.Kind

// Collectives. Those from AllToAllV on are made of messages between pairs, and
// share one kernel.
const (
	AllReduce     = collective.AllReduce
	AllGather     = collective.AllGather
	ReduceScatter = collective.ReduceScatter
	Broadcast     = collective.Broadcast
	Reduce        = collective.Reduce
	AllToAll      = collective.AllToAll
	Barrier       = collective.Barrier
	AllToAllV     = collective.AllToAllV
	Gather        = collective.Gather
	Scatter       = collective.Scatter
	SendRecv      = collective.SendRecv
	collectives   = collective.Kinds
)

// ParseCollective is the inverse of Collective.String.
func ParseCollective(s string) (Collective, error) {
	k, err := collective.Parse(s)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", framework.ErrInvalid, err)
	}
	return k, nil
}
