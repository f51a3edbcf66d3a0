package collectives

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// messages performs a group on the host.
func (p *ports) messages(list []transfer, stream device.Stream) error {
	if p.courier != nil {
		return p.enqueueMessages(list, stream)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.call = ofMessages()
	return p.run(func(ctx context.Context) error { return p.exchange(ctx, list) })
}

// ofMessages is what stands in front of their pieces.
func ofMessages() signature {
	return signature{Collective: uint32(SendRecv), Algorithm: nameID(portsName)}
}

// exchange performs a group: sends first, then receives, each in the order of the
// peers. A message is a piece with its length, then its data. Each direction to each
// peer is served by itself, so that ranks that all send first do not wait for each
// other.
func (p *ports) exchange(ctx context.Context, list []transfer) error {
	var both sync.WaitGroup
	var mu sync.Mutex
	var failed []error
	serve := func(f func() error) {
		both.Go(func() {
			if err := f(); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, err)
			}
		})
	}
	rank := uint32(p.comm.Rank())
	var own [2][]transfer
	for len(list) > 0 {
		n := 1
		for n < len(list) && list[n].Peer == list[0].Peer && list[n].Receive == list[0].Receive {
			n++
		}
		run := list[:n]
		list = list[n:]
		switch {
		case run[0].Peer == rank:
			own[run[0].Receive] = run
		case run[0].Receive == 1:
			serve(func() error { return p.receive(ctx, run) })
		default:
			serve(func() error { return p.send(ctx, run) })
		}
	}
	serve(func() error { return p.local(own[0], own[1]) })
	both.Wait()
	return errors.Join(failed...)
}

// send sends messages to one peer.
func (p *ports) send(ctx context.Context, run []transfer) error {
	for _, m := range run {
		peer := int(m.Peer)
		if err := p.post(ctx, peer, binary.LittleEndian.AppendUint64(nil, m.Bytes)); err != nil {
			return err
		}
		data := view(at(m.Buffer), m.Bytes)
		for from := uint64(0); from < m.Bytes; from += p.piece {
			if err := p.post(ctx, peer, clip(data, from, p.piece)); err != nil {
				return err
			}
		}
	}
	return nil
}

// receive receives those of one peer. Half of a message cannot be taken back, so one
// of another length than expected ends the communicator.
func (p *ports) receive(ctx context.Context, run []transfer) error {
	for _, m := range run {
		peer := int(m.Peer)
		var sent uint64
		if err := p.take(ctx, peer, 8, func(b []byte) { sent = binary.LittleEndian.Uint64(b) }); err != nil {
			return err
		}
		if sent != m.Bytes {
			return p.unequal(peer, sent, m.Bytes)
		}
		data := view(at(m.Buffer), m.Bytes)
		for from := uint64(0); from < m.Bytes; from += p.piece {
			to := clip(data, from, p.piece)
			if err := p.take(ctx, peer, uint64(len(to)), func(b []byte) { copy(to, b) }); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *ports) unequal(peer int, sent, expected uint64) error {
	cause := p.otherLength(peer, sent, expected)
	p.comm.Abort(cause)
	return cause
}

func (p *ports) otherLength(peer int, sent, expected uint64) error {
	return &framework.Error{Op: "message", Peer: peer,
		Err: fmt.Errorf("%w: its message has a length of %d bytes: expected %d as rank %d receives", framework.ErrInvalid, sent, expected, p.comm.Rank())}
}

// own lists what a rank sends to itself, and receives from itself.
func (p *ports) own(list []transfer) (own [2][]transfer) {
	for _, m := range list {
		if int(m.Peer) == p.comm.Rank() {
			own[m.Receive] = append(own[m.Receive], m)
		}
	}
	return own
}

// alone says what is wrong with what a rank sends to itself: it does that within one
// group.
func (p *ports) alone(sends, receives []transfer) error {
	if len(sends) != len(receives) {
		return fmt.Errorf("%w: rank %d sends %d messages to itself and receives %d in one group: expected as many", framework.ErrUnsupported, p.comm.Rank(), len(sends), len(receives))
	}
	return nil
}

// local is what a rank sends to itself.
func (p *ports) local(sends, receives []transfer) error {
	if err := p.alone(sends, receives); err != nil {
		return err
	}
	for i, m := range sends {
		if m.Bytes != receives[i].Bytes {
			return p.unequal(p.comm.Rank(), m.Bytes, receives[i].Bytes)
		}
		copy(view(at(receives[i].Buffer), m.Bytes), view(at(m.Buffer), m.Bytes))
	}
	return nil
}
