package porting

import (
	"context"
	"log/slog"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/counters"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/life"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/memory"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/negotiate"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/preamble"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/transport"
)

// New returns the ports of a communicator, which has none yet.
func New(log *slog.Logger, boot framework.Bootstrap, l *life.Life, k *counters.Counters, links *negotiate.Negotiator, abort func(error)) *Ports {
	s := &Ports{Log: log, Boot: boot, Life: l, Counters: k, Links: links, Abort: abort,
		services: make(map[*transport.Transport][]*service), links: make(map[*negotiate.Link]*link)}
	s.goodbyes.noted = s.spare
	links.Linked = func(k framework.Kind, peer int, l *negotiate.Link) { s.goodbyes.expect(s, k, peer, l) }
	return s
}

// Open builds a channel to the peer of a pair of semaphores, which does the same.
func (s *Ports) Open(ctx context.Context, pair counters.Pair, src, open *memory.Memory) (*Channel, error) {
	ch := &Channel{}
	ch.ports, ch.pair, ch.src = s, pair, src
	var err error
	if ch.link, err = s.portLink(ctx, pair.Peer); err == nil {
		err = ch.join(ctx, s, open)
	}
	if err != nil {
		s.Counters.Pool.Cancel(pair.Mine) // either the peer has failed as well, or both end
		return nil, err
	}
	return ch, nil
}

// Opened looks once more at a new channel, after the call that made it.
func (s *Ports) Opened(ch *Channel) {
	if ch.Parted() { // before the channel was on the list of those that are looked at
		ch.spare()
	}
}

// Close ends proxies and links, after all channels.
func (s *Ports) Close(ctx context.Context) error {
	var first error
	keep := func(err error) {
		if err != nil && first == nil {
			first = err
		}
	}
	for _, list := range s.services {
		for _, p := range list {
			keep(p.close(ctx, s.Life.Failed()))
		}
	}
	keep(s.forwarding.stop(ctx, s.Life.Failed()))
	s.sendGoodbye(ctx)
	for _, l := range s.links {
		keep(l.shut(ctx, s.Life.Failed()))
	}
	s.Flows.Close()
	return first
}

// CloseEngine ends what drives sockets, when nobody waits there any more.
func (s *Ports) CloseEngine() error {
	if s.engine == nil {
		return nil
	}
	return s.engine.Close()
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

// sendGoodbye waits until the peers of links by adapters have closed their channels as well, or a
// moment: to flush one takes the adapter of the other side, and where signals are counted
// by the peer's plugin, so does the end of a proxy.
func (s *Ports) sendGoodbye(ctx context.Context) {
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
