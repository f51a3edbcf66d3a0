package twolevel

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lanes"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// mostPacket is up to which size of the larger buffer packets are used.
const mostPacket = 32 << 10

// A packet: what call it belongs to as in front of a piece, data filled up to words, the
// epoch, and the seal of all that. The data begins with a line, as kernels like it.
const (
	packetHead = lanes.SlotHead - lanes.PreambleBytes // where it begins in its slot
	packetTail = 16
	packetMore = lanes.SlotHead + kernelargs.CacheLine // the parts of a slot beside the lines of the data
)

func wholeWords(bytes uint64) uint64 { return (bytes + 7) &^ 7 }

// memory is how many bytes packets take behind the slots, on either side.
func (x *packets) memory() uint64 {
	return 2 * max(x.half(), uint64(len(x.Hosts))*x.stride())
}

// half is the size of half of the memory that packets are sent from: one for all, or parts
// that are as large together.
func (x *packets) half() uint64 {
	return lanes.WholeLines(x.room) + uint64(len(x.Local))*(packetMore+kernelargs.CacheLine)
}

// stride is the size of a slot for what comes from one host.
func (x *packets) stride() uint64 { return lanes.WholeLines(x.room) + packetMore }

// open decides, together with all ranks, whether packets are used. It is collective.
func (x *packets) open(ctx context.Context) error {
	if x == nil {
		return nil
	}
	own := []byte{1}
	for _, l := range x.Lanes.Comm.Links() {
		if l.Kind == framework.KindPort && !x.Local[l.Peer] && !sealable(l.Transport.Description) {
			own[0] = 0
		}
	}
	all, err := x.Lanes.Comm.AllGather(ctx, own)
	if err != nil {
		return fmt.Errorf("packets: %w", err)
	}
	for _, b := range all {
		if len(b) != 1 || b[0] == 0 {
			return nil
		}
	}
	x.on.Store(true)
	return nil
}

// sealable reports whether packets go over a transport. An adapter writes the memory of
// the peer by itself, and each signal is one more message to it: those are what packets
// save. A proxy at the far end has to be given the data and the signal in one message
// anyway, and where the rank reads the sockets itself nothing would arrive at all while it
// waits for no signal. Where signals are stores, there is nothing to save but credits.
func sealable(d framework.Description) bool {
	return !d.Streams && (d.Signal == framework.SignalAtomic || d.Signal == framework.SignalImmediate)
}

// Begin starts an epoch.
func (x *packets) Begin(bytes uint64) []byte {
	x.epoch++
	x.sent, x.next, x.common = 0, x.base+x.epoch%2*x.half(), nil
	if bytes > 0 {
		x.common = device.Bytes(x.Lanes.Out)[x.next+lanes.SlotHead:][:bytes:bytes]
	}
	return x.common
}

// Give puts a packet. Data that all counterparts get is sealed once.
func (x *packets) Give(_ context.Context, to int, b []byte) error {
	at, bytes := x.sent, uint64(len(b))
	common := unsafe.SliceData(b) == unsafe.SliceData(x.common)
	if at == 0 || !common {
		at = x.next
		x.next += lanes.WholeLines(bytes) + packetMore
		slot := device.Bytes(x.Lanes.Out)[at:][:lanes.WholeLines(bytes)+packetMore]
		if !common {
			copy(slot[lanes.SlotHead:], b)
		} else {
			x.sent = at
		}
		x.Lanes.Preamble(slot[packetHead:], &x.Lanes.Call, bytes)
		end := lanes.SlotHead + wholeWords(bytes)
		clear(slot[lanes.SlotHead+bytes : end])
		binary.LittleEndian.PutUint64(slot[end:], x.epoch)
		binary.LittleEndian.PutUint64(slot[end+8:], sealOf(x.epoch, slot[packetHead:end]))
	}
	far := x.place(x.Host, x.epoch) + packetHead
	return x.Lanes.To[to].Data.Put(far, at+packetHead, lanes.PreambleBytes+wholeWords(bytes)+packetTail)
}

// place is where packets of a host come to.
func (x *packets) place(g int, epoch uint64) uint64 {
	return x.base + (epoch%2*uint64(len(x.Hosts))+uint64(g))*x.stride()
}

// Receive waits for the packet of a host.
func (x *packets) Receive(ctx context.Context, g int, bytes uint64, use func(b []byte)) error {
	x.from, x.bytes, x.looks, x.wrong = x.Counterpart(g), bytes, 0, nil
	x.slot = device.Bytes(x.Lanes.In)[x.place(g, x.epoch):][:x.stride()]
	if err := x.Lanes.To[x.from].Data.Await(ctx, x.arrived); err != nil {
		return err
	}
	if x.wrong != nil {
		return x.wrong
	}
	var want [lanes.PreambleBytes]byte
	x.Lanes.Preamble(want[:], &x.Lanes.Call, bytes)
	if head := x.slot[packetHead:lanes.SlotHead]; string(head) != string(want[:]) {
		return x.Lanes.Contradicted(x.from, head, bytes)
	}
	use(x.slot[lanes.SlotHead:][:bytes])
	return nil
}

// whole reports whether a packet of so many bytes has arrived, all of it. The word of the
// epoch is the last but one, so that where bytes come in order it is seldom seen too soon.
func (x *packets) whole(slot []byte, epoch, bytes uint64) bool {
	end := lanes.SlotHead + wholeWords(bytes)
	return atomic.LoadUint64(word(slot, end)) == epoch && atomic.LoadUint64(word(slot, end+8)) == sealOf(epoch, slot[packetHead:end])
}

func word(b []byte, at uint64) *uint64 { return (*uint64)(unsafe.Pointer(&b[at])) }

// lookPast is how many looks pass before one for what would be a contradiction: a wait that is
// that long is no quick one.
const lookPast = 512

func (x *packets) look() bool {
	if x.whole(x.slot, x.epoch, x.bytes) {
		return true
	}
	if x.looks++; x.looks%lookPast == 0 {
		x.wrong = x.contradiction()
	}
	return x.wrong != nil
}

// contradiction looks for what the counterpart may have sent in place of the packet: one of
// another length, or a piece through a slot.
func (x *packets) contradiction() error {
	p := x.Lanes
	if atomic.LoadUint64(word(x.slot, packetHead)) == p.Call.Sequence {
		bytes := binary.LittleEndian.Uint64(x.slot[lanes.SlotHead-8:])
		if bytes != x.bytes && bytes <= x.room && x.whole(x.slot, x.epoch, bytes) {
			return p.Contradicted(x.from, x.slot[packetHead:lanes.SlotHead], x.bytes)
		}
	}
	piece := device.Bytes(p.In)[p.Slot(x.from, p.To[x.from].Received):][:lanes.PreambleBytes]
	if atomic.LoadUint64(word(piece, 0)) != p.Call.Sequence || !settled(piece, &x.misplaced) {
		return nil
	}
	return p.Contradicted(x.from, piece, x.bytes)
}

// misplaced is what was seen where it is not expected: it counts when it is seen once more,
// unchanged, after a while.
type misplaced struct {
	head [lanes.PreambleBytes]byte
	at   time.Time
}

// MisplacedPatience is longer than anything takes that was on its way.
const MisplacedPatience = 250 * time.Millisecond

// settled reports whether a head has been seen for long enough.
func settled(head []byte, s *misplaced) bool {
	if string(s.head[:]) != string(head) || s.at.IsZero() {
		copy(s.head[:], head)
		s.at = time.Now()
		return false
	}
	return time.Since(s.at) >= MisplacedPatience
}

// patience is the context of a wait for a piece. It ends with another one, or when the peer
// turns out to be in a call that sends packets in the place of pieces, for which it looks
// now and then.
type patience struct {
	context.Context
	x         *packets
	peer      int
	next      time.Time // when to look
	misplaced misplaced // a packet in place of the piece
	wrong     error
}

func (p *patience) Err() error {
	if now := time.Now(); p.wrong == nil && now.After(p.next) {
		p.next = now.Add(MisplacedPatience)
		p.wrong = p.x.instead(p.peer, &p.misplaced)
	}
	if p.wrong != nil {
		return p.wrong
	}
	return p.Context.Err()
}

// wait waits for the signal of a piece.
func (x *packets) wait(ctx context.Context, peer int) error {
	l := &x.Lanes.To[peer]
	if !x.on.Load() || x.Local[peer] {
		return l.Data.Wait(ctx)
	}
	p := &x.patience[peer]
	*p = patience{Context: ctx, x: x, peer: peer, next: time.Now().Add(MisplacedPatience)}
	err := l.Data.Wait(p)
	if p.wrong != nil {
		return p.wrong
	}
	return err
}

// instead says that a packet of a peer's host has come for the call that this rank is in.
// Messages have no number. While one is on its way another rank of that host may have sent the
// packet of the next call already, but not the one that sends the message: its channel keeps order.
func (x *packets) instead(peer int, seen *misplaced) error {
	p, due := x.Lanes, x.Lanes.Call.Sequence
	g, _ := x.Find(peer)
	if due == 0 {
		if peer != x.Counterpart(g) {
			return nil
		}
		due = x.session.Calls() + 1
	}
	slot := device.Bytes(p.In)[x.place(g, x.epoch+1):][:x.stride()]
	bytes := binary.LittleEndian.Uint64(slot[lanes.SlotHead-8:])
	if atomic.LoadUint64(word(slot, packetHead)) != due || bytes > x.room || !x.whole(slot, x.epoch+1, bytes) || !settled(slot[packetHead:lanes.SlotHead], seen) {
		return nil
	}
	return p.Contradicted(x.Counterpart(g), slot[packetHead:lanes.SlotHead], 0)
}
