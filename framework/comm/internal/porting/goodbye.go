package porting

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/life"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/negotiate"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/preamble"
)

// How long a wait for a peer lasts before somebody asks whether the peer is still there,
// and how long what it sent before it left may be under way: its channels are closed,
// and empty, before it says goodbye, but processes that pass things on may be slow.
const (
	departureDoubt = 250 * time.Millisecond
	departureGrace = 500 * time.Millisecond
)

// goodbyePatience is how long a rank that is done with its channels keeps its adapter for
// others that are not.
const goodbyePatience = 500 * time.Millisecond

// goodbyes knows which peers of links by adapters have closed all their channels. Their
// adapters stay for goodbyePatience, and are gone then.
type goodbyes struct {
	from  map[int]goodbye // by peer; grows in calls of set-up
	waits sync.WaitGroup
	life  context.Context
	end   context.CancelFunc
}

// goodbye is closed when the peer has closed its channels; nil: its link is none by adapters.
type goodbye chan struct{}

// heard reports whether the peer has closed all its channels: nobody would see a signal.
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
			s.spare(peer)
		}
	})
	return x
}

// spare lets the proxies of all channels to a peer know that it has left.
func (s *Ports) spare(peer int) {
	var channels []*Channel
	s.Life.Each(func(part any) {
		if ch, ok := part.(*Channel); ok && ch.pair.Peer == peer && ch.Parted() {
			channels = append(channels, ch)
		}
	})
	for _, ch := range channels {
		ch.spare()
	}
}

// spare lets the proxy to which kernels push know that the peer has left: they do not.
func (ch *Channel) spare() {
	if ch.enter("signal") != nil {
		return
	}
	defer ch.use.RUnlock()
	p := ch.kernels.service.proxy
	if p == nil {
		return
	}
	ctx, cancel := ch.ports.Life.Bound(ch.life)
	defer cancel()
	ctx, stop := context.WithTimeout(ctx, life.CloseTimeout)
	defer stop()
	if err := p.BindSemaphore(ctx, ch.kernels.slots.semaphore, framework.SemaphoreBinding{}); err != nil {
		ch.ports.Log.Debug("signals of kernels may still go to a peer that has closed its communicator", "peer", ch.pair.Peer, "reason", err)
	}
}

// sayGoodbye waits until the peers of links by adapters have closed their channels as well, or a
// moment: to flush one takes the adapter of the other side, and where signals are counted
// by the peer's plugin, so does the end of a proxy.
func (s *Ports) sayGoodbye(ctx context.Context) {
	p := &s.goodbyes
	if p.end == nil {
		return
	}
	defer p.waits.Wait()
	defer p.end()
	if s.Life.Failed() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, goodbyePatience)
	defer cancel()
	for peer := range p.from {
		_ = s.Boot.Send(ctx, peer, preamble.TagGoodbye, framework.Parcel{}) // one that is gone needs nothing
	}
	for _, x := range p.from {
		select {
		case <-x:
		case <-ctx.Done():
		}
	}
}

// departures knows of peers that have been waited for long which of them have left.
type departures struct {
	mu   sync.Mutex
	asks map[int]*departure
}

type departure struct {
	gone chan struct{} // closed when the peer has left
	at   time.Time     // when that was known
}

// of returns what is known of a peer. Who asks first has it found out.
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
