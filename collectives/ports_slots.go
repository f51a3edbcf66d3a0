package collectives

import (
	"context"
	"encoding/binary"
	"math"
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// portSlots is how many pieces may be on their way from one rank to another.
const portSlots = 4

// lane is the way to one rank and back.
type lane struct {
	data, credit   *comm.PortChannel
	results        *comm.PortChannel // nil: they go through slots like all else
	sent, received uint64
	owed           uint64 // credits that wait for the next message
	patience       patience
}

// Each slot begins with what call the piece belongs to: the sequence, the count, the
// rest of the signature and the bytes that follow, of eight bytes each.
const (
	headBytes = 32
	slotHead  = line
)

func (p *ports) head(b []byte, c *signature, bytes uint64) {
	binary.LittleEndian.PutUint64(b, c.Sequence)
	binary.LittleEndian.PutUint64(b[8:], c.Count)
	binary.LittleEndian.PutUint64(b[16:], uint64(c.Type&0xff|c.Op&0xff<<8|c.Root<<16)|uint64(c.Collective<<24|c.Algorithm&0xffffff)<<32)
	binary.LittleEndian.PutUint64(b[24:], bytes)
}

// slot is where a slot for the way to or from a rank begins.
func (p *ports) slot(rank int, number uint64) uint64 {
	return (uint64(rank)*portSlots + number%portSlots) * (slotHead + p.piece)
}

// post sends a piece, which may be empty. It waits while all slots are in use. A large one is
// sent from where it is, if this rank sends itself.
func (p *ports) post(ctx context.Context, peer int, b []byte) error {
	l := &p.lanes[peer]
	if len(b) < givenPiece || !l.data.Gives() {
		return p.write(ctx, peer, uint64(len(b)), func(room []byte) { copy(room, b) })
	}
	head, far, err := p.next(ctx, peer, uint64(len(b)))
	if err != nil {
		return err
	}
	return l.data.Give(ctx, far, head[:slotHead], b)
}

// write is post of what is put together in the slot.
func (p *ports) write(ctx context.Context, peer int, bytes uint64, fill func(room []byte)) error {
	own := p.slot(peer, p.lanes[peer].sent)
	room, far, err := p.next(ctx, peer, bytes)
	if err != nil {
		return err
	}
	fill(room[slotHead : slotHead+bytes])
	return p.lanes[peer].data.PutWithSignal(far, own, slotHead+bytes)
}

// next waits for a slot on the way to a rank, and writes the head of a piece into it: room
// begins with that. far is where the slot is at the peer.
func (p *ports) next(ctx context.Context, peer int, bytes uint64) (room []byte, far uint64, err error) {
	l := &p.lanes[peer]
	if l.sent >= portSlots {
		if err := l.credit.Wait(ctx); err != nil {
			return nil, 0, err
		}
	}
	room, far = device.Bytes(p.out)[p.slot(peer, l.sent):], p.slot(p.comm.Rank(), l.sent)
	l.sent++
	atomic.StoreUint64(&l.owed, 0) // they go with it
	p.head(room, &p.call, bytes)
	return room, far, nil
}

// anyBytes is what take expects where the piece itself says how long it is.
const anyBytes = math.MaxUint64

// take waits for the next message of a rank, hands it to use, and frees its slot.
func (p *ports) take(ctx context.Context, peer int, bytes uint64, use func(b []byte)) error {
	l := &p.lanes[peer]
	if err := p.await(ctx, peer); err != nil {
		return err
	}
	slot := device.Bytes(p.in)[p.slot(peer, l.received):]
	l.received++
	if bytes == anyBytes {
		bytes = min(binary.LittleEndian.Uint64(slot[headBytes-8:]), p.piece)
	}
	var want [headBytes]byte
	p.head(want[:], &p.call, bytes)
	if string(slot[:headBytes]) != string(want[:]) {
		return p.contradicted(peer, slot[:headBytes], bytes)
	}
	if use != nil {
		use(slot[slotHead : slotHead+bytes])
	}
	// A credit travels with the next message the other way. That half of the slots are
	// free is told at once.
	if atomic.AddUint64(&l.owed, 1) < portSlots/2 {
		return l.credit.SignalLater()
	}
	atomic.StoreUint64(&l.owed, 0)
	return l.credit.Signal()
}

// await waits for the signal of a piece.
func (p *ports) await(ctx context.Context, peer int) error {
	if h := p.hierarchy; h != nil && h.packets != nil {
		return h.packets.wait(ctx, peer)
	}
	return p.lanes[peer].data.Wait(ctx)
}

// contradicted ends the communicator: ranks that met in different calls cannot go back.
func (p *ports) contradicted(peer int, head []byte, bytes uint64) error {
	var theirs, ours [4]uint64
	for i := range theirs {
		theirs[i] = binary.LittleEndian.Uint64(head[8*i:])
	}
	var want [headBytes]byte
	p.head(want[:], &p.call, bytes)
	for i := range ours {
		ours[i] = binary.LittleEndian.Uint64(want[8*i:])
	}
	cause := p.disagreement(peer, theirs, ours)
	p.comm.Abort(cause)
	return cause
}
