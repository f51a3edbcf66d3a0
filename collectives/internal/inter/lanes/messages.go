package lanes

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/collective"
)

// OfMessages is what stands in front of pieces of messages.
func OfMessages() kernelargs.Signature {
	return kernelargs.Signature{Collective: uint32(collective.SendRecv), Algorithm: kernelargs.NameID(Name)}
}

// Exchange performs a group: sends first, then receives, each in the order of the
// peers. A message is a piece with its length, then its data. Each direction to each
// peer is served by itself, so that ranks that all send first do not wait for each
// other.
func (l *Lanes) Exchange(ctx context.Context, list []kernelargs.Transfer) error {
	if err := l.linkFor(ctx, list); err != nil {
		return err
	}
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
	rank := uint32(l.Comm.Rank())
	var own [2][]kernelargs.Transfer
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
			serve(func() error { return l.receive(ctx, run) })
		default:
			serve(func() error { return l.send(ctx, run) })
		}
	}
	serve(func() error { return l.local(own[0], own[1]) })
	both.Wait()
	return errors.Join(failed...)
}

// send sends messages to one peer.
func (l *Lanes) send(ctx context.Context, run []kernelargs.Transfer) error {
	for _, m := range run {
		peer := int(m.Peer)
		if err := l.Post(ctx, peer, binary.LittleEndian.AppendUint64(nil, m.Bytes)); err != nil {
			return err
		}
		data := View(kernelargs.At(m.Buffer), m.Bytes)
		for from := uint64(0); from < m.Bytes; from += l.Piece {
			if err := l.Post(ctx, peer, Clip(data, from, l.Piece)); err != nil {
				return err
			}
		}
	}
	return nil
}

// receive receives those of one peer. Half of a message cannot be taken back, so one
// of another length than expected ends the communicator.
func (l *Lanes) receive(ctx context.Context, run []kernelargs.Transfer) error {
	for _, m := range run {
		peer := int(m.Peer)
		var sent uint64
		if err := l.Take(ctx, peer, 8, func(b []byte) { sent = binary.LittleEndian.Uint64(b) }); err != nil {
			return err
		}
		if sent != m.Bytes {
			return l.unequal(peer, sent, m.Bytes)
		}
		data := View(kernelargs.At(m.Buffer), m.Bytes)
		for from := uint64(0); from < m.Bytes; from += l.Piece {
			to := Clip(data, from, l.Piece)
			if err := l.Take(ctx, peer, uint64(len(to)), func(b []byte) { copy(to, b) }); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *Lanes) unequal(peer int, sent, expected uint64) error {
	cause := l.OtherLength(peer, sent, expected)
	l.Comm.Abort(cause)
	return cause
}

// OtherLength is the error about a message of a peer that has another length than expected.
func (l *Lanes) OtherLength(peer int, sent, expected uint64) error {
	return &framework.Error{Op: "message", Peer: peer,
		Err: fmt.Errorf("%w: its message has a length of %d bytes: expected %d as rank %d receives", framework.ErrInvalid, sent, expected, l.Comm.Rank())}
}

// Own lists what a rank sends to itself, and receives from itself.
func (l *Lanes) Own(list []kernelargs.Transfer) (own [2][]kernelargs.Transfer) {
	for _, m := range list {
		if int(m.Peer) == l.Comm.Rank() {
			own[m.Receive] = append(own[m.Receive], m)
		}
	}
	return own
}

// Alone says what is wrong with what a rank sends to itself: it does that within one
// group.
func (l *Lanes) Alone(sends, receives []kernelargs.Transfer) error {
	if len(sends) != len(receives) {
		return fmt.Errorf("%w: rank %d sends %d messages to itself and receives %d in one group: expected as many", framework.ErrUnsupported, l.Comm.Rank(), len(sends), len(receives))
	}
	return nil
}

// local is what a rank sends to itself.
func (l *Lanes) local(sends, receives []kernelargs.Transfer) error {
	if err := l.Alone(sends, receives); err != nil {
		return err
	}
	for i, m := range sends {
		if m.Bytes != receives[i].Bytes {
			return l.unequal(l.Comm.Rank(), m.Bytes, receives[i].Bytes)
		}
		copy(View(kernelargs.At(receives[i].Buffer), m.Bytes), View(kernelargs.At(m.Buffer), m.Bytes))
	}
	return nil
}
