package porting

import (
	"context"
	"errors"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/negotiate"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/preamble"
)

// How long a wait for a peer lasts before it asks whether the peer is still there, and how long
// what it sent before it left may be under way: its channels are closed, and empty, before it says
// goodbye, but processes that pass things on may be slow.
const (
	departureDoubt = 250 * time.Millisecond
	departureGrace = 500 * time.Millisecond
)

// goodbyePatience is how long a rank that is done with its channels keeps its adapter for
// others that are not.
const goodbyePatience = 500 * time.Millisecond

// heard reports whether the peer has closed all its channels: it would see no signal.
func (p goodbye) heard() bool {
	select {
	case <-p:
		return true
	default:
		return false
	}
}

// expect listens for the goodbye of the peer of a new link, if that is one by adapters.
func (p *goodbyes) expect(s *Ports, k framework.Kind, peer int, l *negotiate.Link) goodbye {
	if by := l.Transport.Description.Signal; k != framework.KindPort || (by != framework.SignalAtomic && by != framework.SignalImmediate) {
		return nil
	}
	if p.from == nil {
		p.from = make(map[int]goodbye)
		p.life, p.end = context.WithCancel(context.Background())
	}
	x := p.from[peer]
	if x != nil {
		return x
	}
	x = make(goodbye)
	p.from[peer] = x
	p.waits.Go(func() {
		parcel, err := s.Boot.Recv(p.life, peer, preamble.TagGoodbye)
		if err == nil {
			parcel.Close()
		}
		if err == nil || errors.Is(err, framework.ErrPeer) { // or it has left without a word
			close(x)
			p.noted(peer)
		}
	})
	return x
}

// of returns what is known of a peer. The first caller that asks has it found out.
func (d *departures) of(s *Ports, rank int) *departure {
	d.mu.Lock()
	defer d.mu.Unlock()
	if x := d.asks[rank]; x != nil {
		return x
	}
	if d.asks == nil {
		d.asks = make(map[int]*departure)
	}
	x := &departure{gone: make(chan struct{})}
	d.asks[rank] = x
	s.Life.Go(func() { // Close waits for it
		if s.Departed(s.Life.Context(), rank) {
			x.at = time.Now()
			close(x.gone)
		}
	})
	return x
}

// Departed waits until rank leaves the job in an orderly way, and returns true; or until
// ctx ends, and returns false.
func (s *Ports) Departed(ctx context.Context, rank int) bool {
	_, err := s.Boot.Recv(ctx, rank, preamble.TagFarewell)
	return errors.Is(err, framework.ErrPeer) && s.Life.Err() == nil
}
