package crosshost

import (
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/placement"
)

// mostSmall is up to where every rank takes part in the exchange between hosts with all
// that its host has: one step over the network, and no step inside behind it. The same
// goes for packets, as far as there are any.
const mostSmall = 32 << 10

// leastShare and piecesOfCall set the size of a piece: small enough that there are some
// to overlap, large enough that a rank's share of it is worth a message.
const (
	leastShare   = 256 << 10
	piecesOfCall = 8
)

// TwoSteps is the share from which on an exchange between more than two hosts goes in two
// steps (slices.go): more messages, and fewer bytes.
const TwoSteps = 16 << 10

// MostBundled is up to how many bytes of a host for one rank elsewhere go in one
// message.
const MostBundled = 32 << 10

// RegionBytes is the size of memory of the host that data of a GPU passes through at a time, and Slack what is added
// to pieces so that they can be divided evenly.
const (
	RegionBytes = 4 << 20
	Slack       = 4096
)

// WordBytes is what kernels move at a time.
const WordBytes = 16

// Sizes says in what pieces data goes between hosts.
type Sizes struct {
	*placement.Placement
	Slot uint64 // bytes of a piece over lanes, at most
}

// PieceOf is how many elements of a vector are worked on at a time: so that the share of a
// rank fits a slot, and divided evenly by all hosts where that is possible.
func (z *Sizes) PieceOf(count, element uint64) uint64 {
	fewest := uint64(z.Fewest)
	bytes := min(z.Slot, max(leastShare, count*element/fewest/piecesOfCall))
	n := max(1, bytes/element) * fewest
	if n > z.Multiple {
		n = n / z.Multiple * z.Multiple
	}
	return n
}

// Stages says whether an exchange goes in two steps, and how many stages there are
// between the beginning of a piece and its end.
func (z *Sizes) Stages(size, element uint64) (split bool, behind int) {
	if len(z.Hosts) > 2 && size/uint64(z.Most)*element >= TwoSteps {
		return true, 2
	}
	return false, 1
}

// bundled is the size of a buffer, of an all-to-all, of which a message has that many
// bytes.
func (z *Sizes) bundled() uint64 {
	return min(MostBundled, z.Slot) * uint64(z.Ranks()) / uint64(z.Most)
}

// BundleOf is how many bytes of each part are worked on at a time, on all hosts: so that
// the parts of a host for one rank fit a slot, and those for all ranks the memory that
// they pass through.
func (z *Sizes) BundleOf(element uint64) uint64 {
	all := uint64(z.Ranks() + len(z.Hosts)*z.Most) // with what is added to fill rounds
	room := min(RegionBytes, z.BlockBytes())
	return max(1, min(z.Slot/uint64(z.Most), room/all)/element) * element
}

// BlockBytes is what the pieces of all ranks of a host take at most, with what is added
// to divide them evenly.
func (z *Sizes) BlockBytes() uint64 { return uint64(z.Most)*(z.Slot+8) + Slack }

// PieceOfPart is how many bytes of each rank's part are worked on at a time, so that a
// share of the ranks of any host fits a region of any other.
func (z *Sizes) PieceOfPart(element uint64) uint64 {
	return max(1, min(z.Slot, (RegionBytes-Slack)*uint64(z.Fewest)/uint64(z.Most))/element) * element
}

// SwapPiece is how many bytes of each part of an all-to-all are worked on at a time: so
// that those for all ranks of a host fit a slot.
func (z *Sizes) SwapPiece(element uint64) uint64 {
	return max(element, z.Slot/uint64(z.Most)/WordBytes*WordBytes)
}
