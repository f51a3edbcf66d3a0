package intra

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"time"

	"github.com/mscclpp-go/mscclpp/collectives/internal/choose/model"
	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/intra/lend"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/internal/streamorder"
)

const (
	leastCopyScratch = 32 << 20 // that is asked for, and that a device with little left gives
	leastPiece       = 64 << 10
	slotsOfAPeer     = 2 // in a rank's scratch
	slotUnit         = 512
	idlePatience     = 5 * time.Second
)

// exchanged is memory for pieces, and that of the peers.
type exchanged struct {
	memory *comm.Memory
	peers  *comm.Symmetric
}

// pieceMemory is the memory into which peers push pieces.
type pieceMemory struct {
	exchanged             // two pieces for each peer, by turns
	asked     uint64      // the most bytes that all ranks have tried to have there
	room      uint64      // bytes of it that all ranks have
	graphs    bool        // captured calls use it
	kept      []exchanged // that was too small, and that graphs may use
	giving    exchanged   // that peers take away
	lender    lend.Lender // of exchanged, to other communicators
	poor      error       // why no rank has that memory
}

// places is for how many peers a rank has slots. Kernels count slots by rank, so there is one for the rank itself
// unless there are two ranks.
func (k *copier) places() uint64 {
	if k.ranks == 2 {
		return 1
	}
	return uint64(k.ranks)
}

// slot is the largest piece of a call.
func (k *copier) slot(c *engine.Call) uint64 {
	return model.Slot(k.scratch, k.ranks, c.Collective.Rooted(), c.Count*uint64(c.Type.Size())) / leastPiece * leastPiece
}

// most is the memory that the largest calls take, in bytes.
func (k *copier) most() uint64 {
	return slotsOfAPeer * k.places() * (model.Slot(k.scratch, k.ranks, false, 0) / leastPiece * leastPiece)
}

// cutOf cuts a call into pieces: as few as the largest slots allow, or if all ranks have less memory than
// that takes, those that fit. It returns the bytes of an element, too.
func (k *copier) cutOf(a *algorithm, c *engine.Call) (cut, uint64) {
	x, element := k.cutInto(a, c, k.slot(c))
	if k.bytes(x, element) > k.room {
		x, element = k.cutInto(a, c, k.room/(slotsOfAPeer*k.places())/leastPiece*leastPiece)
	}
	return x, element
}

// needs is how many bytes a call would like to have.
func (k *copier) needs(a *algorithm, c *engine.Call) uint64 {
	return k.bytes(k.cutInto(a, c, k.slot(c)))
}

func (k *copier) bytes(x cut, element uint64) (all uint64) {
	for _, slot := range k.divide(x, element) {
		all += slot * k.places()
	}
	return all
}

// divide says how large the slots of a call are: those of its first piece, its third and so on, and those of the others.
// Calls may have different ones, since one begins when the peers have taken all pieces of the calls before.
func (k *copier) divide(x cut, element uint64) (slots [slotsOfAPeer]uint64) {
	for p := range x.pieces() {
		s := &slots[p%slotsOfAPeer]
		*s = max(*s, roundUp((x.bounds[p+1]-x.bounds[p])*element, slotUnit))
	}
	return slots
}

// ask is how much memory is asked for where a call needs so much: the next power of two, so that it seldom grows.
func (k *copier) ask(needs uint64) uint64 {
	return min(k.most(), max(leastCopyScratch, uint64(1)<<bits.Len64(max(needs, 1)-1)))
}

// make is open once all ranks have come. Of the first time they may be sure: it is as for any first call. Later, ranks may make the
// calls of several communicators in different orders, and do without.
func (k *copier) make(ctx context.Context, needs uint64) error {
	if k.lender.Lends() {
		all, err := k.lender.Meet(ctx)
		switch {
		case err != nil:
			return err
		case !all && k.peers != nil:
			return nil // with the memory that there is
		case !all:
			return errNoCopies{fmt.Errorf("%w: the memory for copies in pieces was given up for another communicator, and not all ranks have come to make it anew: expected them to make calls in the same order", framework.ErrUnavailable)}
		}
	}
	return k.open(ctx, needs)
}

// open makes the memory for pieces, or replaces what is too small. All ranks get what the one with the least of it has.
func (k *copier) open(ctx context.Context, needs uint64) error {
	unit := slotsOfAPeer * k.places() * leastPiece
	if least := slotsOfAPeer * uint64(k.ranks) * leastPiece; k.scratch < least {
		return fmt.Errorf("%w: copy scratch of %d bytes: expected at least %d", framework.ErrInvalid, k.scratch, least)
	}
	if err := k.leave(ctx); err != nil {
		return fmt.Errorf("copy scratch: %w", err)
	}
	lend.Ask(ctx, k.comm.Device().Info().Device, &k.lender)
	k.asked = k.ask(needs)
	short := k.allocate(k.asked, unit)
	var has uint64
	if k.memory != nil {
		has = k.memory.Bytes()
	}
	all, err := k.comm.AllGather(ctx, binary.LittleEndian.AppendUint64(nil, has))
	if err != nil {
		return fmt.Errorf("copy scratch: %w", err)
	}
	bytes := k.asked
	for rank, b := range all {
		if bytes = min(bytes, binary.LittleEndian.Uint64(b)); bytes == 0 {
			err := &framework.Error{Op: "copy scratch", Peer: rank, Err: fmt.Errorf(
				"%w: too little memory is left on its device: choose another algorithm, or switch collectives.copy_engines off", framework.ErrUnavailable)}
			k.poor = errors.Join(err, short, k.release())
			k.comm.Log().Warn("no memory for copies in pieces: other algorithms serve their calls", "reason", k.poor)
			return errNoCopies{k.poor}
		}
	}
	if bytes < k.asked/2 {
		k.comm.Log().Warn("little memory for copies in pieces, which makes them slower", "bytes", bytes, "wanted", k.asked)
	}
	if k.peers, err = k.comm.Exchange(ctx, k.memory); err != nil {
		return fmt.Errorf("copy scratch: %w", err)
	}
	k.room = bytes
	k.lender.Start(k.comm, k, k.comm.Device().Info().Device, k.peers.ID)
	k.lender.Offer(true)
	return nil
}

// leave gives the memory back that is too small, if nothing uses it on any rank: what a rank has enqueued has ended when
// its own two streams have nothing left. Else it is kept: graphs push into it whenever they are launched.
func (k *copier) leave(ctx context.Context) error {
	if k.peers == nil {
		return nil
	}
	k.lender.Offer(false)
	idle := byte(0)
	bounded, cancel := context.WithTimeout(ctx, idlePatience)
	if !k.graphs && k.comm.Settle(bounded, k.side, k.telling) == nil {
		idle = 1
	}
	cancel()
	all, err := k.comm.AllGather(ctx, []byte{idle})
	if err != nil {
		return err
	}
	old := k.exchanged
	k.exchanged, k.room = exchanged{}, 0
	for _, b := range all {
		if len(b) != 1 || b[0] == 0 {
			k.kept, k.graphs = append(k.kept, old), false
			return nil
		}
	}
	err = old.peers.Close()
	if _, e := k.comm.AllGather(ctx, nil); err == nil { // no rank frees what another one has mapped
		err = e
	}
	return errors.Join(err, old.memory.Close())
}

// allocate takes so many bytes, or half of them, and so on, in whole units. It returns why there was no more, if there
// was too little.
func (k *copier) allocate(bytes, unit uint64) (err error) {
	for ; k.memory == nil; bytes /= 2 {
		if err != nil && (bytes < leastCopyScratch || !errors.Is(err, framework.ErrUnavailable)) {
			return err
		}
		k.memory, err = k.comm.Alloc(bytes / unit * unit)
	}
	return nil
}

// release gives back memory that was not exchanged.
func (k *copier) release() error {
	if k.memory == nil {
		return nil
	}
	m := k.memory
	k.memory = nil
	return m.Close()
}

// closeMemory gives everything back.
func (k *copier) closeMemory() (err error) {
	for _, x := range append(k.kept, k.giving, k.exchanged) {
		if x.peers != nil {
			err = errors.Join(err, x.peers.Close())
		}
		if x.memory != nil {
			err = errors.Join(err, x.memory.Close())
		}
	}
	k.kept, k.giving, k.exchanged = nil, exchanged{}, exchanged{}
	return err
}

// recording notes whether a call is captured.
func (k *copier) recording(s device.Stream) {
	if is, err := streamorder.Capturing(k.engine, s); err == nil && is {
		k.graphs = true
		k.lender.Offer(false)
	}
}

// Idle, Unmap and Free are what the lender asks for, between calls.

// Idle reports whether what was enqueued has ended: what a rank pushes and takes, its own two streams know.
func (k *copier) Idle() bool {
	for _, s := range []device.Stream{k.side, k.telling} {
		if state, err := k.engine.Query(s); err != nil || state != device.StreamIdle {
			return false
		}
	}
	return true
}

// Unmap takes the memory of the peers away.
func (k *copier) Unmap() error {
	k.comm.Log().Info("memory for copies in pieces is given up for another communicator", "bytes", k.memory.Bytes())
	k.giving, k.exchanged, k.room, k.asked = k.exchanged, exchanged{}, 0, 0
	return k.giving.peers.Close()
}

// Free frees the rank's own.
func (k *copier) Free() error {
	m := k.giving.memory
	k.giving = exchanged{}
	return m.Close()
}
