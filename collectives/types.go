package collectives

import (
	"fmt"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/device"
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

// Signatures says when ranks compare the arguments of their calls.
type Signatures = engine.Signatures

// Values of Options.Signatures.
const (
	SignaturesNever  = engine.SignaturesNever
	SignaturesStall  = engine.SignaturesStall  // after a call on the host, and when a call takes unusually long
	SignaturesAlways = engine.SignaturesAlways // before any data moves
)

// Request describes a call to selectors and algorithms.
type Request = engine.Request

// Row is one line of the table of algorithms; the first row that fits a call is used.
// The zero value of all fields but Algorithm fits every call. A row whose algorithm is not
// offered here, or does not serve the call, is passed over. Messages have no rows.
type Row = engine.Row

// RowError is a mistake in a row of a table. It wraps framework.ErrInvalid.
type RowError = choose.RowError

// Links is what a rank on a GPU knows about the connections from its GPU to others.
// Each rank passes its own; the zero value means that nothing is known. Where the
// tables have no measured rows, a model chooses algorithms from the Links of all ranks.
type Links = choose.Links

// NVLink is a bundle of links to another GPU.
type NVLink = choose.NVLink

// Selector returns the name of the algorithm for a call, or "" to leave the choice to
// the tables. It is called once in every call that names no algorithm, and must return the
// same on all ranks. If calls must not allocate, neither may the selector.
type Selector func(*Request) string

// CallOptions modify one call. A nil *CallOptions, and the zero value of a field, mean
// the default.
type CallOptions struct {
	Stream    device.Stream
	Algorithm string // "" leaves the choice to the selector

	// For PreMulSum: the input of this rank is multiplied by it first. Ranks may pass different ones. The type holds it.
	Scale float64

	// ScaleAt, if not nil, counts instead of Scale: one element of the call's type. It is read before the call returns.
	// With ScaleOnDevice it lies where kernels can read it, and is read in the order of the stream, when the call is
	// carried out; of a captured call each time that the graph is launched. On the host that makes no difference.
	ScaleAt       unsafe.Pointer
	ScaleOnDevice bool

	alike bool // Scale is the same on all ranks, and kernels apply it: the level inside hosts of an average
}

// Call is what the Run function of a program's own algorithm receives: the request, and
// the arguments of the call.
type Call struct {
	Request
	Input  unsafe.Pointer
	Output unsafe.Pointer
	Stream device.Stream
	Scale  float64 // means nothing: inputs of PreMulSum come multiplied, as those of a Sum
}
