package comm

import (
	"context"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/proxy"
)

// tokens are semaphore counters in memory of the host, for port channels that ranks
// drive by copy engine: the peer's proxy stores a signal there itself while its
// stream has nothing to do, and kernels of this rank poll it over the bus. The same
// words serve where this rank's forwarder raises semaphores and cannot store on the device.
// They have the numbers of the counters on the device, which remain for memory channels, and
// for peers on other hosts.
type tokens struct {
	host device.Memory // as this process finds them
	seen device.Memory // as the device does
}

const tokenBytes = semaphoreStride * semaphoreMax

// signaling says where signals by copy engine go, and who stores them. Only tests
// choose: they compare what each takes.
type signaling uint8

const (
	signalByHost   signaling = iota // to memory of the host, by the host while nothing is outstanding
	signalByStream                  // to memory of the host, always by the stream
	signalOnDevice                  // to memory of the device, by the stream
)

// word is the token of a semaphore. Without tokens it is none.
func (t *tokens) word(i int) (w proxy.Word) {
	if t == nil {
		return w
	}
	offset := uintptr(i * semaphoreStride)
	return proxy.Word{Host: (*uint64)(pointer(t.host.Addr() + offset)), Device: t.seen.Addr() + offset}
}

func (t *tokens) close() error {
	var first error
	for _, m := range []device.Memory{t.seen, t.host} {
		if m == nil {
			continue
		}
		if err := m.Close(); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// mapTokens makes tokens addressable here and on the device. It closes the shares.
func (k *control) mapTokens(shares []framework.Share) (t *tokens, err error) {
	defer framework.Parcel{Shares: shares}.Close()
	m := framework.Mapping{Role: framework.RolePeer, Peer: framework.NoPeer, Shares: shares, Bytes: tokenBytes}
	t = &tokens{}
	if t.host, err = k.hostDev.Map(m); err != nil {
		return nil, err
	}
	if t.seen, err = k.dev.Map(m); err != nil {
		_ = t.close()
		return nil, err
	}
	return t, nil
}

// makeTokens makes this rank's tokens, if there are none yet. The caller holds
// Communicator.setup.
func (k *control) makeTokens() error {
	if k.tokens.Load() != nil {
		return nil
	}
	made, err := k.hostDev.Alloc(tokenBytes)
	if err != nil {
		return err
	}
	t := &tokens{host: made}
	shares, err := made.Export()
	if err == nil {
		t.seen, err = show(k.dev, shares, tokenBytes)
	}
	if err != nil {
		_ = t.close()
		return err
	}
	k.tokens.Store(t)
	return nil
}

// lendTokens returns what peers find this rank's tokens by; nothing if its device
// cannot see memory of the host. The first call makes them. The caller holds
// Communicator.setup.
func (k *control) lendTokens() ([]framework.Share, error) {
	if k.signaling == signalOnDevice {
		return nil, nil
	}
	if err := k.makeTokens(); err != nil {
		return nil, err
	}
	all, err := k.tokens.Load().host.Export()
	if err != nil {
		return nil, err
	}
	var shares []framework.Share
	for _, s := range all {
		if s.Kind == framework.ShareMemFD { // the only one that a device can see
			shares = append(shares, s)
		} else {
			s.Close()
		}
	}
	return shares, nil
}

// tradeTokens lets both ends of a link find each other's tokens. An end that cannot,
// such as one on another host, raises the counters on the peer's device instead: each
// tells the other what it does.
func (c *Communicator) tradeTokens(ctx context.Context, l *link, peer int) error {
	shares, err := c.control.lendTokens()
	if err != nil {
		c.log.Debug("signals go to the device", "peer", peer, "reason", err)
	}
	offer := framework.Parcel{Shares: shares}
	err = c.boot.Send(ctx, peer, tagTokens, offer)
	lent := len(shares) > 0
	offer.Close()
	if err != nil {
		return err
	}
	theirs, err := c.boot.Recv(ctx, peer, tagTokens)
	if err != nil {
		return err
	}
	answer := []byte{0}
	if len(theirs.Shares) > 0 {
		if l.tokens, err = c.control.mapTokens(theirs.Shares); err == nil {
			answer[0] = 1
		} else {
			c.log.Debug("signals go to the peer's device", "peer", peer, "reason", err)
		}
	}
	if err := c.boot.Send(ctx, peer, tagTokens, framework.Parcel{Data: answer}); err != nil {
		return err
	}
	said, err := c.boot.Recv(ctx, peer, tagTokens)
	if err != nil {
		return err
	}
	said.Close()
	if len(said.Data) != 1 || said.Data[0] > 1 || said.Data[0] == 1 && !lent {
		return &framework.Error{Op: "link", Peer: peer, Err: fmt.Errorf("%w: it answers % x about tokens, expected 00, or 01 if it was lent some", framework.ErrPeer, said.Data)}
	}
	l.hosted = said.Data[0] == 1
	return nil
}

// inbound is the word that kernels wait at for the peer of a channel: the peer raises
// it, or the forwarder does.
func (c *Communicator) inbound(l *link, p pair) proxy.Word {
	forwarded := l.posted.words != nil && c.forwarding.view == nil
	if w := c.control.tokens.Load().word(p.mine); w.Host != nil && (l.hosted || forwarded) {
		return w
	}
	return proxy.Word{Device: c.control.inboundAddr(p.mine)}
}

// outboundWord is the word that this rank raises at the peer, by copy engine.
func (c *Communicator) outboundWord(l *link, p pair) proxy.Word {
	if l.tokens == nil {
		return proxy.Word{Device: l.inbox.addr + uintptr(p.theirs)*semaphoreStride}
	}
	w := l.tokens.word(p.theirs)
	if c.control.signaling == signalByStream {
		w.Host = nil
	}
	return w
}
