// Package porting is port channels: the rings that triggers are pushed to, the proxies, copy
// engines and sockets that take them from there, and how signals come back to whoever waits.
package porting

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/counters"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/life"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/memory"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/negotiate"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/preamble"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/transport"
	"github.com/mscclpp-go/mscclpp/framework/stream"
)

// OpChannel is the name of the call that builds a channel.
const OpChannel = "port channel"

// Ports is what all port channels of a communicator share.
type Ports struct {
	Log      *slog.Logger
	Boot     framework.Bootstrap
	Life     *life.Life
	Counters *counters.Counters
	Links    *negotiate.Negotiator
	Abort    func(cause error) // of the communicator, by a proxy that has ended

	rings    sync.Mutex // held while numbers of triggers are given out
	mu       sync.Mutex // held while services change
	services map[*transport.Transport][]*service

	links      map[*negotiate.Link]*link // grows in calls of set-up
	departures departures
	goodbyes   goodbyes
	forwarding forwarding     // made in calls of set-up
	engine     *stream.Engine // of links whose sockets this rank drives; made in calls of set-up
}

// New returns the ports of a communicator, which has none yet.
func New(log *slog.Logger, boot framework.Bootstrap, l *life.Life, k *counters.Counters, links *negotiate.Negotiator, abort func(error)) *Ports {
	s := &Ports{Log: log, Boot: boot, Life: l, Counters: k, Links: links, Abort: abort,
		services: make(map[*transport.Transport][]*service), links: make(map[*negotiate.Link]*link)}
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
	s.sayGoodbye(ctx)
	for _, l := range s.links {
		keep(l.shut(ctx, s.Life.Failed()))
	}
	return first
}

// CloseEngine ends what drives sockets, when nobody waits there any more.
func (s *Ports) CloseEngine() error {
	if s.engine == nil {
		return nil
	}
	return s.engine.Close()
}

// Departed waits until rank leaves the job in an orderly way, and returns true; or until
// ctx ends, and returns false.
func (s *Ports) Departed(ctx context.Context, rank int) bool {
	_, err := s.Boot.Recv(ctx, rank, preamble.TagFarewell)
	return errors.Is(err, framework.ErrPeer) && s.Life.Err() == nil
}
