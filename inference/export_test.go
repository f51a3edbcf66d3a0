package inference

import "unsafe"

// Interpreted is a rank of a job in which the committed kernels are interpreted.
type Interpreted struct {
	Rank, Ranks                    int
	State, Peers, Control, Notices uint64 // addresses, and bytes of notices
	Half                           uint64
	Vectors                        int // of a thread, where calls may have more than one: 2 or 4
}

// StateBytes is the size of a rank's state.
const StateBytes = unsafe.Sizeof(normState{})

// Arguments are those of the one launch of a call, and how many rows it has, of all owners.
func (i Interpreted) Arguments(c *NormCall) (args []byte, works uint32, err error) {
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
	return append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(&a)), unsafe.Sizeof(a))...), works, err
}
