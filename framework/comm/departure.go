package comm

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
)

// How long a wait for a peer lasts before somebody asks whether the peer is still there,
// and how long what it sent before it left may be under way: its channels are closed,
// and empty, before it says goodbye, but processes that pass things on may be slow.
const (
	departureDoubt = 250 * time.Millisecond
	departureGrace = 500 * time.Millisecond
)

// partingPatience is how long a rank that is done with its channels keeps its adapter for
// others that are not.
const partingPatience = 500 * time.Millisecond

// partings knows which peers of links by adapters have closed all their channels. Their
// adapters stay for partingPatience, and are gone then.
type partings struct {
	from  map[int]parting // by peer; grows under Communicator.setup
	waits sync.WaitGroup
	life  context.Context
	end   context.CancelFunc
}

// parting is closed when the peer has closed its channels; nil: its link is none by adapters.
type parting chan struct{}

// heard reports whether the peer has closed all its channels: nobody would see a signal.
func (p parting) heard() bool {
	select {
	case <-p:
		return true
	default:
		return false
	}
}

// expect listens for the parting of the peer of a new link, if that is one by adapters.
func (p *partings) expect(c *Communicator, k framework.Kind, peer int, l *link) parting {
	if s := l.transport.Description.Signal; k != framework.KindPort || (s != framework.SignalAtomic && s != framework.SignalImmediate) {
		return nil
	}
	if p.from == nil {
		p.from = make(map[int]parting)
		p.life, p.end = context.WithCancel(context.Background())
	}
	x := p.from[peer]
	if x != nil {
		return x
	}
	x = make(parting)
	p.from[peer] = x
	p.waits.Go(func() {
		parcel, err := c.boot.Recv(p.life, peer, tagParting)
		if err == nil {
			parcel.Close()
		}
		if err == nil || errors.Is(err, framework.ErrPeer) { // or it has left without a word
			close(x)
			c.spare(peer)
		}
	})
	return x
}

// spare tells the proxies of all channels to a peer that it has parted.
func (c *Communicator) spare(peer int) {
	c.parts.mu.Lock()
	var channels []*PortChannel
	for x := range c.parts.live {
		if ch, ok := x.(*PortChannel); ok && ch.pair.peer == peer && ch.Parted() {
			channels = append(channels, ch)
		}
	}
	c.parts.mu.Unlock()
	for _, ch := range channels {
		ch.spare()
	}
}

// spare tells the proxy to which kernels push that the peer has parted: they do not know it.
func (ch *PortChannel) spare() {
	if ch.enter("signal") != nil {
		return
	}
	defer ch.use.RUnlock()
	p := ch.kernels.service.proxy
	if p == nil {
		return
	}
	ctx, cancel := ch.comm.bound(ch.life)
	defer cancel()
	ctx, stop := context.WithTimeout(ctx, closeTimeout)
	defer stop()
	if err := p.BindSemaphore(ctx, ch.kernels.slots.semaphore, framework.SemaphoreBinding{}); err != nil {
		ch.comm.log.Debug("signals of kernels may still go to a peer that has closed its communicator", "peer", ch.pair.peer, "reason", err)
	}
}

// part waits until the peers of links by adapters have closed their channels as well, or a
// moment: to flush one takes the adapter of the other side, and where signals are counted
// by the peer's plugin, so does the end of a proxy.
func (c *Communicator) part(ctx context.Context) {
	p := &c.partings
	if p.end == nil {
		return
	}
	defer p.waits.Wait()
	defer p.end()
	if c.aborted() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, partingPatience)
	defer cancel()
	for peer := range p.from {
		_ = c.boot.Send(ctx, peer, tagParting, framework.Parcel{}) // one that is gone needs nothing
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
func (d *departures) of(c *Communicator, rank int) *departure {
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
	c.health.mu.Lock() // Close waits for what has begun before it
	defer c.health.mu.Unlock()
	if !c.shut {
		c.health.group.Go(func() {
			if c.Departed(c.life, rank) {
				x.at = time.Now()
				close(x.gone)
			}
		})
	}
	return x
}

// Deserted returns an error if a wait of kernels that has gone on since start waits for
// a rank that has left the job in an orderly way, otherwise nil.
func (ch *PortChannel) Deserted(start time.Time) error { return ch.deserted("wait", start) }

// Parted reports whether the peer has closed its communicator. It is known of peers that
// are reached by adapters of a network, for which it matters: theirs are gone half a second
// later. A signal by itself is not sent then, whoever pushes it.
func (ch *PortChannel) Parted() bool { return ch.link.parting.heard() }

// deserted says that a wait of the host since start is for a rank that has left the job
// in good order, or nil. A death ends the communicator, and is not asked for here.
func (ch *PortChannel) deserted(op string, start time.Time) error {
	if time.Since(start) < departureDoubt {
		return nil
	}
	x := ch.comm.departures.of(ch.comm, ch.pair.peer)
	select {
	case <-x.gone:
	default:
		return nil
	}
	if time.Since(x.at) < departureGrace {
		return nil
	}
	return ch.comm.blame(op, ch.pair.peer, fmt.Errorf(
		"%w: it has left the job in good order, and what this rank waits for has not come: expected all ranks to make the same calls", framework.ErrPeer))
}
