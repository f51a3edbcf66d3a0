package collectives

import (
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// CallOptions modify one call. A nil *CallOptions, and the zero value of a field, mean
// the default.
type CallOptions struct {
	Stream    device.Stream
	Algorithm string  // "" leaves the choice to the selector
	Scale     float64 // for PreMulSum: every input is multiplied by it first
}

// Request describes a call to selectors and algorithms.
type Request struct {
	Collective Collective
	Bytes      uint64 // of the larger buffer
	Count      uint64 // as the caller gave it
	Type       kernel.DataType
	Op         kernel.Op
	Root       int
	Ranks      int
	Registered bool // the buffers that peers would reach are in exchanged memory
	InPlace    bool
	Device     string // "host", "cuda", "hip"

	reached  reach // which buffers of the peers are in exchanged memory
	noCopies bool  // copy engines cannot serve it now

	// Bytes that a peer has room for, in packets and in lines.
	slot, lineSlot uint64
}

// Call is what the Run function of a program's own algorithm receives: the request, and
// the arguments of the call.
type Call struct {
	Request
	Input  unsafe.Pointer
	Output unsafe.Pointer
	Stream device.Stream
	Scale  float64
}
