package negotiate

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/counters"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/memory"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/preamble"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/recipe"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// MemoryLink is Link for memory channels; with it go the semaphore counters of
// both sides.
func (n *Negotiator) MemoryLink(ctx context.Context, peer int) (*Link, error) {
	l, err := n.Link(ctx, Key{Kind: framework.KindMemory, Peer: peer})
	if err != nil || l.Inbox.Addr != 0 {
		return l, err
	}
	return l, n.Inbox(ctx, l, peer)
}

// Inbox trades semaphore counters with a peer, and makes those of the peer
// addressable. The peer does the same.
func (n *Negotiator) Inbox(ctx context.Context, l *Link, peer int) error {
	if err := n.SendKey(ctx, l, peer, n.Counters.Inbound); err != nil {
		return err
	}
	r, err := n.RecvKey(ctx, l, peer, n.Counters.Inbound)
	if err != nil {
		return err
	}
	if r.Bytes != n.Counters.Inbound.Bytes() {
		n.Life.Rollback(r.Close)
		return &framework.Error{Op: "link", Peer: peer, Err: fmt.Errorf("%w: %d bytes of semaphores, expected %d", framework.ErrPeer, r.Bytes, n.Counters.Inbound.Bytes())}
	}
	l.Inbox = r
	return nil
}

// SendKey sends what the peer needs to reach m over l: its size, and the key.
func (n *Negotiator) SendKey(ctx context.Context, l *Link, peer int, m *memory.Memory) error {
	reg, err := memory.Registration(ctx, m, l.Transport, n.Counters.Dev.Info().Device)
	if err != nil {
		return &framework.Error{Op: "register", Peer: framework.NoPeer, Err: err}
	}
	key := reg.Key
	key.Data = append(binary.LittleEndian.AppendUint64(nil, m.Bytes()), key.Data...)
	return n.Boot.Send(ctx, peer, preamble.TagKeys, key)
}

// RecvBareKey receives what SendKey sent.
func (n *Negotiator) RecvBareKey(ctx context.Context, peer int) (key framework.Parcel, bytes uint64, err error) {
	key, err = n.Boot.Recv(ctx, peer, preamble.TagKeys)
	if err != nil {
		return key, 0, err
	}
	if len(key.Data) < 8 {
		key.Close()
		return framework.Parcel{}, 0, &framework.Error{Op: "exchange", Peer: peer, Err: fmt.Errorf("%w: key of %d bytes, expected at least 8", framework.ErrPeer, len(key.Data))}
	}
	bytes = binary.LittleEndian.Uint64(key.Data)
	key.Data = key.Data[8:]
	return key, bytes, nil
}

// RecvKey receives the peer's key and makes its memory addressable. own is the
// rank's memory that was sent the other way.
func (n *Negotiator) RecvKey(ctx context.Context, l *Link, peer int, own *memory.Memory) (Remote, error) {
	key, bytes, err := n.RecvBareKey(ctx, peer)
	if err != nil {
		return Remote{}, err
	}
	defer key.Close()
	return n.Attach(ctx, l, peer, Reached{Key: key, Bytes: bytes, Own: own})
}

// Reached is memory of a peer that is to be made addressable.
type Reached struct {
	Key   framework.Parcel
	Bytes uint64
	Own   *memory.Memory                                 // the rank's memory that was sent the other way
	Map   func(framework.Mapping) (device.Memory, error) // nil: that of the device
}

// Attach makes memory of a peer addressable. It talks to no other rank.
func (n *Negotiator) Attach(ctx context.Context, l *Link, peer int, of Reached) (Remote, error) {
	reg, err := memory.Registration(ctx, of.Own, l.Transport, n.Counters.Dev.Info().Device)
	if err != nil {
		return Remote{}, &framework.Error{Op: "register", Peer: framework.NoPeer, Err: err}
	}
	att, err := l.Transport.Attach(ctx, l.Conn, reg.ID, []framework.Parcel{of.Key})
	if err != nil {
		return Remote{}, &framework.Error{Op: "attach", Peer: peer, Err: err}
	}
	p, err := n.Recipes.Perform(ctx, att, recipe.Operands{Transport: l.Transport, Members: []int{peer}, Own: of.Own, Map: of.Map})
	if err != nil {
		return Remote{}, &framework.Error{Op: "attach", Peer: peer, Err: err}
	}
	if len(p.Mapped) != 1 || p.Mapped[0] == nil || p.Mapped[0].Bytes() < of.Bytes {
		n.Life.Rollback(p.Close)
		return Remote{}, &framework.Error{Op: "attach", Peer: peer, Err: fmt.Errorf("%w: %s did not map the %d bytes of the peer", framework.ErrPlugin, l.Transport.Name, of.Bytes)}
	}
	return Remote{Addr: p.Mapped[0].Addr(), Bytes: of.Bytes, Transport: l.Transport, Close: p.Close}, nil
}

// Outbound is where this rank raises the peer's counter of a pair.
func (n *Negotiator) Outbound(p counters.Pair) uintptr {
	return n.links[Key{Kind: framework.KindMemory, Peer: p.Peer}].Inbox.Addr + uintptr(p.Theirs)*counters.Stride
}
