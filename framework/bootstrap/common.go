package bootstrap

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Limits of one parcel. They keep a broken or malicious peer from making a rank
// allocate without bound; set-up needs a thousandth of them.
const (
	MaxRanks  = 1 << 16
	MaxData   = 64 << 20 // bytes of Parcel.Data
	MaxShares = 4096     // shares of a parcel
	maxBlob   = 1 << 20  // bytes of Share.Blob
	maxKind   = 64       // bytes of Share.Kind
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

// opError says which operation failed and with whom. An error that already blames
// a rank keeps its culprit: that is the one to name, not the rank in the middle.
// Layers of this package that would only repeat it are taken off.
func opError(op string, peer int, err error) error {
	if culprit := framework.PeerOf(err); culprit != framework.NoPeer {
		peer = culprit
	}
	return &framework.Error{Op: "bootstrap " + op, Peer: peer, Err: innermost(err)}
}

// innermost takes layers of this package off an error.
func innermost(err error) error {
	for {
		var e *framework.Error
		if !errors.As(err, &e) || e.Transport != "" || e.Err == nil || !strings.HasPrefix(e.Op, "bootstrap") {
			return err
		}
		err = e.Err
	}
}

func errRange(rank, size int) error {
	return fmt.Errorf("%w: rank %d: expected 0 to %d", framework.ErrInvalid, rank, size-1)
}

func errLeft(rank int) error {
	return fmt.Errorf("%w: rank %d has left the job", framework.ErrPeer, rank)
}

// validParcel refuses what the far side would refuse, where the mistake is made.
func validParcel(p framework.Parcel) error {
	if len(p.Data) > MaxData {
		return fmt.Errorf("%w: a parcel of %d bytes: expected at most %d", framework.ErrInvalid, len(p.Data), MaxData)
	}
	if len(p.Shares) > MaxShares {
		return fmt.Errorf("%w: a parcel of %d shares: expected at most %d", framework.ErrInvalid, len(p.Shares), MaxShares)
	}
	for i, s := range p.Shares {
		switch {
		case len(s.Kind) > maxKind:
			return fmt.Errorf("%w: share %d: a kind of %d bytes: expected at most %d", framework.ErrInvalid, i, len(s.Kind), maxKind)
		case len(s.Blob) > maxBlob:
			return fmt.Errorf("%w: share %d: a blob of %d bytes: expected at most %d", framework.ErrInvalid, i, len(s.Blob), maxBlob)
		case s.FD == nil && s.Kind.HasFD():
			return fmt.Errorf("%w: share %d is a %s without a descriptor", framework.ErrInvalid, i, s.Kind)
		}
	}
	return nil
}
