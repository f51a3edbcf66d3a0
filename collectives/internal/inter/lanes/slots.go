package lanes

import (
	"context"
	"encoding/binary"
	"math"
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/framework/device"
)

// Slot is where a slot for pieces to or from a rank begins.
func (l *Lanes) Slot(rank int, number uint64) uint64 {
	return (uint64(rank)*Slots + number%Slots) * (SlotHead + l.Piece)
}

// Post sends a piece, which may be empty. It waits while all slots are in use. A large one is
// sent from where it is, if this rank sends itself.
func (l *Lanes) Post(ctx context.Context, peer int, b []byte) error {
	to := &l.To[peer]
	if len(b) < givenPiece || !to.Data.Gives() {
		return l.Write(ctx, peer, uint64(len(b)), func(room []byte) { copy(room, b) })
	}
	head, far, err := l.next(ctx, peer, uint64(len(b)))
	if err != nil {
		return err
	}
	return to.Data.Give(ctx, far, head[:SlotHead], b)
}

// Write is post of what is put together in the slot.
func (l *Lanes) Write(ctx context.Context, peer int, bytes uint64, fill func(room []byte)) error {
	own := l.Slot(peer, l.To[peer].Sent)
	room, far, err := l.next(ctx, peer, bytes)
	if err != nil {
		return err
	}
	fill(room[SlotHead : SlotHead+bytes])
	return l.To[peer].Data.PutWithSignal(far, own, SlotHead+bytes)
}

// next waits for a slot to a rank, and writes the head of a piece into it: room
// begins with that. far is where the slot is at the peer.
func (l *Lanes) next(ctx context.Context, peer int, bytes uint64) (room []byte, far uint64, err error) {
	to := &l.To[peer]
	if to.Sent >= Slots {
		if err := to.Credit.Wait(ctx); err != nil {
			return nil, 0, err
		}
	}
	room, far = device.Bytes(l.Out)[l.Slot(peer, to.Sent):], l.Slot(l.Comm.Rank(), to.Sent)
	to.Sent++
	atomic.StoreUint64(&to.owed, 0) // they go with it
	l.Preamble(room, &l.Call, bytes)
	return room, far, nil
}

// AnyBytes is what take expects where the piece itself says how long it is.
const AnyBytes = math.MaxUint64

// Take waits for the next message of a rank, hands it to use, and frees its slot.
func (l *Lanes) Take(ctx context.Context, peer int, bytes uint64, use func(b []byte)) error {
	to := &l.To[peer]
	if err := l.await(ctx, peer); err != nil {
		return err
	}
	slot := device.Bytes(l.In)[l.Slot(peer, to.Received):]
	to.Received++
	if bytes == AnyBytes {
		bytes = min(binary.LittleEndian.Uint64(slot[PreambleBytes-8:]), l.Piece)
	}
	var want [PreambleBytes]byte
	l.Preamble(want[:], &l.Call, bytes)
	if string(slot[:PreambleBytes]) != string(want[:]) {
		return l.Contradicted(peer, slot[:PreambleBytes], bytes)
	}
	if use != nil {
		use(slot[SlotHead : SlotHead+bytes])
	}
	// A credit travels with the next message the other way. That half of the slots are
	// free is announced at once.
	if atomic.AddUint64(&to.owed, 1) < Slots/2 {
		return to.Credit.SignalLater()
	}
	atomic.StoreUint64(&to.owed, 0)
	return to.Credit.Signal()
}

// await waits for the signal of a piece.
func (l *Lanes) await(ctx context.Context, peer int) error {
	if l.Await != nil {
		return l.Await(ctx, peer)
	}
	return l.To[peer].Data.Wait(ctx)
}
