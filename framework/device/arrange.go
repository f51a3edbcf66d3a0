package device

import "github.com/mscclpp-go/mscclpp/framework"

// Arranger is an optional interface of a Device that maps the memory of several ranks side by side, at one distance: a
// kernel then finds the memory of each rank by its number alone.
//
// Implemented by the devices of device/native, which not all have it, and of device/cuda. Called by framework/comm.
type Arranger interface {
	// Allocation returns the whole allocation that a range lies in, for its Export, where the range begins in it, and
	// the unit to which addresses of mappings are aligned. ErrUnsupported: it cannot be mapped at an address that is
	// asked for.
	Allocation(addr uintptr, bytes uint64) (whole Memory, offset, unit uint64, err error)

	// Arrange reserves addresses for so many parts, each of stride bytes.
	Arrange(parts int, stride uint64) (Arrangement, error)
}

// Arrangement is a range of addresses of which each part takes the memory of one rank.
type Arrangement interface {
	// Base is the address of part 0.
	Base() uintptr

	// Put maps the whole allocation behind one of m's shares at an offset in a part. Closing the result unmaps it.
	Put(part int, at uint64, m framework.Mapping) (Memory, error)

	// Close gives the addresses back. All that was put there must have been closed.
	Close() error
}
