package intra

import (
	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
)

// Options are the settings of an engine, the same on all ranks.
type Options struct {
	Scratch     uint64 // bytes of scratch memory
	CopyScratch uint64 // bytes of scratch memory for copies in pieces
	MaxBlocks   int    // the most blocks of one kernel; 0: what the device suggests
	Sharing     int    // ranks whose kernels run on one GPU
	NoCopies    bool
	NoLines     bool // links do not keep stores of 128 bytes whole
	Signatures  engine.Signatures
	Route       choose.Route // between the GPUs
}
