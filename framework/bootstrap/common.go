package bootstrap

import (
	"fmt"
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/wire"
)

// MaxRanks is how many ranks a job may have.
const MaxRanks = 1 << 16

// Limits of one parcel. They keep a broken or malicious peer from making a rank
// allocate without bound; set-up needs a thousandth of them.
const (
	MaxData   = wire.MaxData   // bytes of Parcel.Data
	MaxShares = wire.MaxShares // shares of a parcel
)

// Stats count what a rank has sent.
type Stats struct {
	Rounds   uint64 // of collectives
	Messages uint64 // parcels
	Bytes    uint64 // of parcels, as they travel
}

type counters struct{ rounds, messages, bytes atomic.Uint64 }

func (c *counters) read() Stats {
	return Stats{Rounds: c.rounds.Load(), Messages: c.messages.Load(), Bytes: c.bytes.Load()}
}

func errRange(rank, size int) error {
	return fmt.Errorf("%w: rank %d: expected 0 to %d", framework.ErrInvalid, rank, size-1)
}
