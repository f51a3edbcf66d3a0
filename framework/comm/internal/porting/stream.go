package porting

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/memory"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/preamble"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/recipe"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/transport"
	"github.com/mscclpp-go/mscclpp/framework/stream"
)

// Where a transport hands its sockets over, this rank drives them (framework/stream): a thread that
// pushes sends, and a thread that waits receives.

// streamLink takes the sockets of a link over, and opens the counters to the peer.
func (s *Ports) streamLink(ctx context.Context, l *link, peer int) error {
	if l.stream != nil {
		return nil
	}
	fail := func(err error) error { return &framework.Error{Op: "streams", Peer: peer, Err: err} }
	if s.engine == nil {
		var err error
		if s.engine, err = stream.NewEngine(); err != nil {
			return fail(err)
		}
	}
	att, err := l.Transport.Attach(ctx, l.Conn, 0, nil)
	if err != nil {
		return &framework.Error{Op: "attach", Peer: peer, Err: err}
	}
	defer att.Close()
	if len(att.Mappings) != 1 || att.Mappings[0].Role != framework.RoleStream || len(att.Steps) > 0 {
		return fail(recipe.Nonsense("%d mappings and %d steps in place of streams", len(att.Mappings), len(att.Steps)))
	}
	m := att.Mappings[0]
	sockets := make([]*os.File, len(m.Shares))
	for i, share := range m.Shares {
		if share.Kind != framework.ShareSocket {
			return fail(recipe.Nonsense("stream %d as %s", i, share.Kind))
		}
		sockets[i] = share.FD
	}
	made, err := s.engine.Link(peer, sockets, m.Bytes)
	if err != nil {
		return fail(err)
	}
	opened := &streamLink{Link: made, attached: att.ID}
	own, err := opened.Expose(s.Counters.Inbound.Addr(), s.Counters.Inbound.Bytes())
	if err == nil {
		opened.counters, _, err = s.tradeHandles(ctx, peer, own, s.Counters.Inbound.Bytes())
	}
	if err != nil {
		s.Life.Rollback(func(ctx context.Context) error { return opened.close(ctx, l.Transport) })
		return err
	}
	l.stream = opened
	return nil
}

func (s *streamLink) close(ctx context.Context, t *transport.Transport) error {
	return errors.Join(s.Link.Close(), t.Close(ctx, s.attached))
}

// tradeHandles tells the peer what it reaches this rank's memory by, and learns the same
// of the peer's.
func (s *Ports) tradeHandles(ctx context.Context, peer int, own uint32, bytes uint64) (theirs uint32, size uint64, err error) {
	b := binary.LittleEndian.AppendUint64(nil, bytes)
	b = binary.LittleEndian.AppendUint32(b, own)
	if err := s.Boot.Send(ctx, peer, preamble.TagKeys, framework.Parcel{Data: b}); err != nil {
		return 0, 0, err
	}
	p, err := s.Boot.Recv(ctx, peer, preamble.TagKeys)
	if err != nil {
		return 0, 0, err
	}
	p.Close() // nothing is expected in it
	if len(p.Data) != len(b) {
		return 0, 0, &framework.Error{Op: "exchange", Peer: peer, Err: fmt.Errorf("%w: handle of %d bytes, expected %d", framework.ErrPeer, len(p.Data), len(b))}
	}
	return binary.LittleEndian.Uint32(p.Data[8:]), binary.LittleEndian.Uint64(p.Data), nil
}

func (b *streamBinding) bind(q *stream.Queue, n slots, src *memory.Memory) error {
	return errors.Join(
		q.BindSource(n.src, src.Addr(), src.Bytes()),
		q.BindTarget(n.dst, b.link.Link, b.target, b.bytes),
		q.BindSemaphore(n.semaphore, b.link.Link, b.link.counters, b.offset))
}
