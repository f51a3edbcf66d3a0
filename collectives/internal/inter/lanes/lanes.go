// Package lanes sends pieces between pairs of ranks over port channels, driven by the host. Each pair has
// slots in both directions. A piece is copied into an own slot (a large one is sent from where it is, over
// streams that this rank drives), put into the same slot of the peer, and announced by a signal; the receiver
// returns the slot by a signal over a second channel (a credit), and only then the slot is used again. In
// front of a piece stands what call it belongs to, so that ranks that disagree get an error.
package lanes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework/comm"
)

// Name is that of the algorithms that need nothing else.
const Name = "ports"

// Slots is how many pieces may be in flight from one rank to another.
const Slots = 4

// Limits of the size of a piece. Below the first a message is all head, above the
// second nothing is gained.
const (
	minPiece = 4 << 10
	maxPiece = 1 << 20
)

// givenPiece is from where on it costs less to send a piece from where it is than to copy it
// into a slot first.
const givenPiece = 32 << 10

// Lanes join a rank with all others.
type Lanes struct {
	Comm     *comm.Communicator   // over whose port channels
	Piece    uint64               // bytes of a piece, at most
	Call     kernelargs.Signature // under way; all zero but the collective for messages
	Describe func(*kernelargs.Signature) string

	Behind uint64                                    // bytes of memory behind the slots, in either direction
	Await  func(ctx context.Context, peer int) error // how to wait for the signal of a piece; nil: nothing else can come

	// First chooses the ranks whose lanes are made first; those to others are made when a
	// call needs them. It is the same relation on all ranks. Nil: all lanes are made first.
	First func(rank int) bool

	To  []Lane // by rank
	Out *comm.Memory
	In  *comm.Memory

	complete bool // all lanes are there
}

// Lane joins this rank with another one, in both directions.
type Lane struct {
	Data, Credit   *comm.PortChannel
	Results        *comm.PortChannel // nil: they go through slots like all else
	Sent, Received uint64
	owed           uint64 // credits that wait for the next message
}

// New prepares lanes that use so much memory.
func New(c *comm.Communicator, scratch uint64, describe func(*kernelargs.Signature) string) *Lanes {
	slots := uint64(2 * c.Size() * Slots)
	piece := min(maxPiece, max(minPiece, scratch/slots/kernelargs.CacheLine*kernelargs.CacheLine))
	return &Lanes{Comm: c, Piece: piece, Describe: describe}
}

// SlotBytes is the memory of all slots of one direction.
func (l *Lanes) SlotBytes() uint64 { return uint64(l.Comm.Size()) * Slots * (SlotHead + l.Piece) }

// Allocate makes the memory for slots.
func (l *Lanes) Allocate() error {
	n := l.Comm.Size()
	l.To = make([]Lane, n)
	bytes := l.SlotBytes() + l.Behind
	var err error
	if l.Out, err = l.Comm.Alloc(bytes); err != nil {
		return fmt.Errorf("slots: %w", err)
	}
	if l.In, err = l.Comm.Alloc(bytes); err != nil {
		return fmt.Errorf("slots: %w", err)
	}
	return nil
}

// Link makes the channels that come first. All ranks come here in their first collective.
func (l *Lanes) Link(ctx context.Context) error {
	if l.First == nil {
		return l.LinkAll(ctx)
	}
	return l.link(ctx, l.First)
}

// LinkAll makes the lanes that are not there yet. Collective.
func (l *Lanes) LinkAll(ctx context.Context) error {
	if l.complete {
		return nil
	}
	err := l.link(ctx, func(int) bool { return true })
	l.complete = err == nil
	return err
}

// linkFor makes the lanes of a group of messages, which their peers make in a group of theirs.
func (l *Lanes) linkFor(ctx context.Context, list []kernelargs.Transfer) error {
	if l.complete {
		return nil
	}
	return l.link(ctx, func(rank int) bool {
		return slices.ContainsFunc(list, func(m kernelargs.Transfer) bool { return int(m.Peer) == rank })
	})
}

// link makes the lanes to ranks that are wanted. Both ranks of a lane want it in the same
// call, and all ranks go through their pairs in the same order, so that no ring of ranks
// can wait for each other.
func (l *Lanes) link(ctx context.Context, wanted func(rank int) bool) (err error) {
	n, rank := l.Comm.Size(), l.Comm.Rank()
	for round := range n {
		peer := (round - rank + n) % n // the rank whose peer this one is in the same round
		to := &l.To[peer]
		if peer == rank || to.Data != nil || !wanted(peer) {
			continue
		}
		if to.Data, err = l.Comm.PortChannel(ctx, peer, l.Out, l.In); err != nil {
			return err
		}
		if to.Credit, err = l.Comm.PortChannel(ctx, peer, l.Out, l.In); err != nil {
			return err
		}
		if n == 2 && to.Data.Gives() {
			if to.Results, err = l.Comm.PortChannel(ctx, peer, l.Out, l.In); err != nil {
				return err
			}
			to.Results.Land(nil) // until a call says where to
		}
	}
	return nil
}

// Close closes the channels, and releases the memory.
func (l *Lanes) Close() error {
	var all []error
	for _, to := range l.To {
		for _, ch := range []*comm.PortChannel{to.Data, to.Credit, to.Results} {
			if ch != nil {
				all = append(all, ch.Close())
			}
		}
	}
	for _, m := range []*comm.Memory{l.Out, l.In} {
		if m != nil {
			all = append(all, m.Close())
		}
	}
	l.To, l.Out, l.In = nil, nil, nil
	return errors.Join(all...)
}

// View is memory of the caller.
func View(p unsafe.Pointer, bytes uint64) []byte {
	if p == nil {
		return nil
	}
	return unsafe.Slice((*byte)(p), bytes)
}

// Clip is the part of b that piece number at has.
func Clip(b []byte, at, piece uint64) []byte {
	n := uint64(len(b))
	return b[min(at, n):min(at+piece, n)]
}

// WholeLines is a number of bytes rounded up to lines.
func WholeLines(bytes uint64) uint64 {
	return (bytes + kernelargs.CacheLine - 1) / kernelargs.CacheLine * kernelargs.CacheLine
}

// PointerTo is the address of memory, nil of none.
func PointerTo(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

// Each slot begins with what call the piece belongs to: the sequence, the count, the
// rest of the signature and the bytes that follow, of eight bytes each.
const (
	PreambleBytes = 32
	SlotHead      = kernelargs.CacheLine // the bytes in front of the data of a slot
)
