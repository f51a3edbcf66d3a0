package porting

import (
	"context"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/counters"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/preamble"
	"github.com/mscclpp-go/mscclpp/framework/proxy"
)

// tradeHostCounters lets both ends of a link find each other's host counters. An end that cannot,
// such as one on another host, raises the counters on the peer's device instead: each
// says to the other what it does.
func (s *Ports) tradeHostCounters(ctx context.Context, l *link, peer int) error {
	shares, err := s.Counters.LendHost()
	if err != nil {
		s.Log.Debug("signals go to the device", "peer", peer, "reason", err)
	}
	offer := framework.Parcel{Shares: shares}
	err = s.Boot.Send(ctx, peer, preamble.TagHostCounters, offer)
	lent := len(shares) > 0
	offer.Close()
	if err != nil {
		return err
	}
	theirs, err := s.Boot.Recv(ctx, peer, preamble.TagHostCounters)
	if err != nil {
		return err
	}
	answer := []byte{0}
	if len(theirs.Shares) > 0 {
		if l.host, err = s.Counters.MapHost(theirs.Shares); err == nil {
			answer[0] = 1
		} else {
			s.Log.Debug("signals go to the peer's device", "peer", peer, "reason", err)
		}
	}
	if err := s.Boot.Send(ctx, peer, preamble.TagHostCounters, framework.Parcel{Data: answer}); err != nil {
		return err
	}
	said, err := s.Boot.Recv(ctx, peer, preamble.TagHostCounters)
	if err != nil {
		return err
	}
	said.Close()
	if len(said.Data) != 1 || said.Data[0] > 1 || said.Data[0] == 1 && !lent {
		return &framework.Error{Op: "link", Peer: peer, Err: fmt.Errorf("%w: it answers % x about host counters, expected 00, or 01 if it was lent some", framework.ErrPeer, said.Data)}
	}
	l.hosted = said.Data[0] == 1
	return nil
}

// inbound is the word that kernels wait at for the peer of a channel: the peer raises
// it, or the forwarder does.
func (s *Ports) inbound(l *link, p counters.Pair) proxy.Word {
	forwarded := l.posted.words != nil && s.forwarding.view == nil
	if w := s.Counters.Host.Load().Word(p.Mine); w.Host != nil && (l.hosted || forwarded) {
		return w
	}
	return proxy.Word{Device: s.Counters.InboundAddr(p.Mine)}
}

// outboundWord is the word that this rank raises at the peer, by copy engine.
func (s *Ports) outboundWord(l *link, p counters.Pair) proxy.Word {
	if l.host == nil {
		return proxy.Word{Device: l.Inbox.Addr + uintptr(p.Theirs)*counters.Stride}
	}
	w := l.host.Word(p.Theirs)
	if s.Counters.Signaling == counters.SignalByStream {
		w.Host = nil
	}
	return w
}
