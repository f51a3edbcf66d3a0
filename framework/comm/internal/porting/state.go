package porting

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/counters"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/memory"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/proxy"
)

// state is what of a channel its requests and its waits share.
type state struct {
	ports   *Ports
	pair    counters.Pair
	link    *link
	binding binding
	kernels *end // where kernels push
	handle  kernel.PortChannelHandle
	src     *memory.Memory
	stage   *stage // in front of src, where the transport cannot reach that
	peerLen uint64
	inbound proxy.Word // that the peer raises
	lent    uint64     // signals that its counter had got when the channel was made

	host    atomic.Pointer[end] // where the host pushes: the same if kernels run there, else made when it is needed
	life    context.Context     // ends when Close begins
	closing atomic.Bool         // life has ended, or is about to
	use     sync.RWMutex        // held for reading by threads in a method
}

// ends are the rings that the channel has numbers on; one or two.
func (ch *state) ends() (all [2]*end) {
	all[0] = ch.kernels
	if h := ch.host.Load(); h != ch.kernels {
		all[1] = h
	}
	return all
}

// enter begins a method that touches the ring or the counters; the caller leaves
// with ch.use.RUnlock.
func (ch *state) enter(op string) error {
	ch.use.RLock()
	if ch.ended() {
		return ch.turnAway(op)
	}
	return nil
}

func (ch *state) ended() bool { return ch.closing.Load() || ch.ports.Life.Over() }

// turnAway ends a method that has just begun.
func (ch *state) turnAway(op string) error {
	defer ch.use.RUnlock()
	if ch.closing.Load() {
		return ch.closedError(op)
	}
	return ch.ports.Life.Err()
}

func (ch *state) closedError(op string) error {
	return ch.ports.Life.Blame(op, ch.pair.Peer, framework.ErrClosed)
}

// refused is the error of a ring, with its cause if that is known here.
func (ch *state) refused(op string, err error) error {
	for _, e := range ch.ends() {
		if e != nil && e.service.ring.Err() != nil {
			e.service.settle(ch.ports.Life)
		}
	}
	if cause := ch.ports.Life.Err(); cause != nil {
		return cause
	}
	if ch.life.Err() != nil {
		return ch.closedError(op)
	}
	for _, e := range ch.ends() {
		if e == nil {
			continue
		}
		select {
		case <-e.service.ended:
			if why := e.service.left; why != nil {
				return ch.ports.Life.Blame(op, framework.PeerOf(why), why)
			}
		default:
		}
	}
	return ch.ports.Life.Blame(op, ch.pair.Peer, err)
}

// Parted reports whether the peer has closed its communicator. It is known of peers that are
// reached by adapters of a network, for which it matters: theirs are gone half a second later. A
// signal by itself is not sent then, whichever thread pushes it.
func (ch *state) Parted() bool { return ch.link.goodbye.heard() }

func (ch *state) trigger(e *end, kind, dst, src, bytes uint64) kernel.Trigger {
	return kernel.TriggerFields{Kind: kind, Bytes: bytes, From: src, To: dst, Src: e.slots.src, Dst: e.slots.dst, Slot: e.slots.semaphore}.Pack()
}
