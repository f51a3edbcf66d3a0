package engine

import (
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Buffer is where in exchanged memory a buffer of a call is; no Memory: in none.
type Buffer struct {
	Memory *comm.Symmetric
	Offset uint64
}

// ID numbers the memory; 0: none.
func (b *Buffer) ID() uint64 {
	if b.Memory == nil {
		return 0
	}
	return b.Memory.ID
}

// Signatures says when ranks compare the arguments of their calls.
type Signatures string

// When they do.
const (
	SignaturesNever  Signatures = "never"
	SignaturesStall  Signatures = "stall"  // after a call on the host, and when a call takes unusually long
	SignaturesAlways Signatures = "always" // before any data moves
)

// Request describes a call to selectors and algorithms.
type Request struct {
	Collective collective.Kind
	Bytes      uint64 // of the larger buffer
	Count      uint64 // as the caller gave it
	Type       kernel.DataType
	Op         kernel.Op
	Root       int
	Ranks      int
	Registered bool // the buffers that peers would reach are in exchanged memory
	InPlace    bool
	Device     string // "host", "cuda", "hip"
}

// Empty reports whether the call moves nothing. Its pointers mean nothing then, and may differ in kind from rank to rank: some
// nil, some into exchanged memory.
func (r *Request) Empty() bool { return r.Count == 0 && r.Collective != collective.Barrier }

// Reach says which buffers of peers an algorithm reaches where they are.
type Reach uint8

// The buffers.
const (
	ReachInputs Reach = 1 << iota
	ReachOutputs
)

// Query is what an algorithm is chosen for.
type Query struct {
	Request
	Reached  Reach // which buffers of the peers are in exchanged memory
	NoCopies bool  // copy engines cannot serve it now
	NoWindow bool  // it cannot open the window of a switch
	NoPlace  bool  // its buffers cannot become a part of that
}

// Same reports whether two queries of one Comm about one collective are the same: Ranks and Device are. Fields are
// compared one by one for the sake of speed: see collectives/job.go.
func (q *Query) Same(o *Query) bool {
	return q.Bytes == o.Bytes && q.Count == o.Count && q.Type == o.Type && q.Op == o.Op && q.Root == o.Root &&
		q.Registered == o.Registered && q.InPlace == o.InPlace && q.Reached == o.Reached && q.NoCopies == o.NoCopies && q.NoWindow == o.NoWindow && q.NoPlace == o.NoPlace
}

// Row is one line of the table of algorithms; the first row that fits a call is used.
// The zero value of all fields but Algorithm fits every call. A row whose algorithm is not
// offered here, or does not serve the call, is passed over. Messages have no rows.
type Row struct {
	Collective collective.Kind
	MaxBytes   uint64 // of the larger buffer
	MinRanks   int
	MaxRanks   int
	Registered *bool
	Type       *kernel.DataType // nil: any
	Op         *kernel.Op       // the same
	Algorithm  string

	// How the kernel is launched on a GPU; 0: what the algorithm suggests.
	Blocks  int
	Threads int
}

// Fits reports whether the row is for a call.
func (w *Row) Fits(r *Request) bool {
	return (w.Collective == 0 || w.Collective == r.Collective) && (w.MaxBytes == 0 || r.Bytes <= w.MaxBytes) &&
		r.Ranks >= w.MinRanks && (w.MaxRanks == 0 || r.Ranks <= w.MaxRanks) &&
		(w.Registered == nil || *w.Registered == r.Registered) &&
		(w.Type == nil || *w.Type == r.Type) && (w.Op == nil || *w.Op == r.Op)
}
