package inference

import (
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// SymbolOfNorms is the kernel of all calls.
const SymbolOfNorms = symbolOfNorms

// HasFrequent reports whether the kernel of frequent calls is loaded, for elements of a type.
func (w *Workspace) HasFrequent(t kernel.DataType) bool { return w.rms[t] != nil }

// Interpreted is a rank of a job in which the committed kernels are interpreted.
type Interpreted struct {
	Rank, Ranks                    int
	State, Peers, Control, Notices uint64 // addresses, and bytes of notices
	Half                           uint64
	Vectors                        int // of a thread, where calls may have more than one: 2 or 4
}

// StateBytes is the size of a rank's state.
const StateBytes = unsafe.Sizeof(normState{})

// Arguments are those of the one launch of a call, in teams of so many blocks and threads; how many rows it has, of all owners; and the kernel
// that the host would launch.
func (i Interpreted) Arguments(c *NormCall, cluster uint8, block uint32) (args []byte, works uint32, entry string, err error) {
	if err = c.check(); err == nil {
		err = c.checkBuffers(i.Rank, i.Ranks)
	}
	var a normArgs
	row := uint64(c.Hidden) * uint64(c.Type.Size())
	two := c.inTwoShots(i.Ranks, uint64(c.Tokens)*row)
	a.normMemory = normMemory{Control: uintptr(i.Control), State: uintptr(i.State), Peers: uintptr(i.Peers)}
	a.Notices, a.Half = i.Notices, i.Half
	a.Count = uint32(a.prepare(c, i.Rank, i.Ranks, two))
	a.Flags |= map[int]uint32{2: pairs, 4: quads}[i.Vectors]
	a.Signature = a.signature(c.Type)
	works = a.Count
	if two {
		works *= a.Ranks
	}
	entry = symbolOfNorms
	if a.frequent(c, device.Launch{Cluster: cluster, Block: block}) {
		entry = symbolOfRMS
	}
	a.Flags |= early // calls of one job begin as early as they can
	return append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(&a)), unsafe.Sizeof(a))...), works, entry, err
}
