package comm

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/proxy"
	"github.com/mscclpp-go/mscclpp/framework/ring"
)

// PortChannel is a channel to one peer whose data a proxy moves. Kernels push
// triggers through its handle; the host can do the same with the methods below,
// without a kernel. The methods may be called concurrently.
//
// The link determines who moves the data, and set-up differs accordingly:
//
//	proxy of the transport    portLink sends a key of the counters, bindKeys binds keys
//	copy engine of the rank   driveLink makes a lane, bindAddresses binds what is mapped
//	sockets of the rank       streamLink takes them over, bindStreams binds memory
type PortChannel struct {
	lifetime
	pair    pair
	link    *link
	binding portBinding
	remote  remote   // the peer's memory, where this rank drives its copy engine
	kernels *portEnd // where kernels push
	handle  kernel.PortChannelHandle
	src     *Memory
	stage   *stage // in front of src, where the transport cannot reach that
	peerLen uint64
	inbound proxy.Word     // that the peer raises
	watched *proxy.Watched // nil where nobody forwards signals

	making sync.Mutex
	host   atomic.Pointer[portEnd] // where the host pushes: the same if kernels run there, else made when it is needed

	life    context.Context // ends when Close begins
	cancel  context.CancelFunc
	closing atomic.Bool  // life has ended, or is about to
	use     sync.RWMutex // held for reading by those who are in a method
	waiting atomic.Bool  // somebody is in Wait, whose turn it is
}

// PortChannel builds a channel to one peer; both ends call it. src is the rank's memory
// that puts read. open is the rank's memory that the peer's puts may write: the Dst of
// the peer. They may be the same.
//
// On the host, src may be any memory (host.Wrap). If the transport can neither map nor
// register it, puts of the host copy what they read before they return, and kernels
// cannot put.
//
// open has to be memory from Alloc, or memory behind a sealed memfd, unless the
// transport is embedded and registers addresses, or the rank drives its streams. For
// other memory the error is ErrUnsupported. The program then uses memory from Alloc,
// and copies the data out of it after Wait.
func (c *Communicator) PortChannel(ctx context.Context, peer int, src, open *Memory) (*PortChannel, error) {
	if err := c.checkPeer(opPortChannel, peer); err != nil {
		return nil, err
	}
	ch := &PortChannel{src: src}
	err := c.setUp(ctx, opPortChannel, func(ctx context.Context) error {
		mine := src.usable()
		if mine == nil {
			mine = open.usable()
		}
		pairs, err := c.pairUp(ctx, opPortChannel, []int{peer}, mine)
		if err != nil {
			return err
		}
		ch.pair = pairs[0]
		if ch.link, err = c.portLink(ctx, peer); err == nil {
			err = ch.join(ctx, c, open)
		}
		if err != nil {
			c.control.semaphores.cancel(ch.pair.mine) // either the peer has failed as well, or both end
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if ch.Parted() { // before the channel was on the list of those that are told
		ch.spare()
	}
	return ch, nil
}

// portLink is link for port channels; with it go the semaphore counters of the peer:
// their key for a proxy of the transport, else their address, and a stream.
func (c *Communicator) portLink(ctx context.Context, peer int) (*link, error) {
	first, err := c.link(ctx, linkKey{framework.KindPort, peer, 0})
	if err != nil {
		return nil, err
	}
	number := first.users % first.several // both ends count alike: they build channels in the same order
	first.users++
	l, err := c.link(ctx, linkKey{framework.KindPort, peer, number})
	if err != nil {
		return nil, err
	}
	if l.transport.Description.Proxy == framework.ProxyRank {
		return l, c.driveLink(ctx, l, peer)
	}
	if l.streamed {
		return l, c.streamLink(ctx, l, peer)
	}
	if l.peerKey.Data != nil {
		return l, nil
	}
	if err := c.sendKey(ctx, l, peer, c.control.inbound); err != nil {
		return nil, err
	}
	if l.peerKey, _, err = c.recvBareKey(ctx, peer); err != nil {
		return nil, err
	}
	return l, c.openInbox(ctx, l, peer)
}

// driveLink makes a link ready for the rank's own copy engine.
func (c *Communicator) driveLink(ctx context.Context, l *link, peer int) error {
	if l.lane != nil {
		return nil
	}
	if err := c.counters(ctx, l, peer); err != nil {
		return err
	}
	if err := c.tradeTokens(ctx, l, peer); err != nil {
		return err
	}
	word, err := c.control.engine.word()
	if err == nil {
		l.lane, err = proxy.NewLane(c.control.engine.Engine, peer, word)
	}
	if err != nil {
		return &framework.Error{Op: "link", Peer: peer, Err: err}
	}
	return nil
}

// join trades keys with the peer and gives the proxy numbers for what triggers will
// cite.
func (ch *PortChannel) join(ctx context.Context, c *Communicator, open *Memory) (err error) {
	if ch.watched, err = c.forward(ch.link, ch.pair); err != nil {
		return &framework.Error{Op: opPortChannel, Peer: framework.NoPeer, Err: err}
	}
	defer func() {
		if err != nil {
			c.undo(func(ctx context.Context) error { return c.forwarding.unwatch(ctx, ch.watched) })
		}
	}()
	if !ch.link.streamed {
		if err := c.sendKey(ctx, ch.link, ch.pair.peer, open); err != nil {
			return c.target(open, ch.link.transport, err)
		}
	}
	switch {
	case ch.link.streamed:
		err = ch.bindStreams(ctx, c, open)
	case ch.link.lane != nil:
		err = ch.bindAddresses(ctx, c)
	default:
		err = ch.bindKeys(ctx, c)
	}
	if err != nil {
		return err
	}
	if ch.kernels, err = c.openEnd(ctx, ch.link.transport, fromKernels, ch.binding); err == nil {
		if c.control.hostDev == nil {
			ch.host.Store(ch.kernels)
			err = ch.binding.dst.Key.Close() // nobody else will be told
			ch.binding.dst.Key = framework.Parcel{}
		}
		ch.fillHandle(c)
		ch.life, ch.cancel = context.WithCancel(context.Background())
		if err == nil {
			err = ch.begin(c, ch, ch.src, open)
		}
		if err != nil {
			ch.kernels.service.leave()
		}
	}
	if err != nil {
		c.undo(ch.release)
		return &framework.Error{Op: opPortChannel, Peer: ch.pair.peer, Err: err}
	}
	return nil
}

// bindKeys is for a proxy of the transport.
func (ch *PortChannel) bindKeys(ctx context.Context, c *Communicator) error {
	key, bytes, err := c.recvBareKey(ctx, ch.pair.peer)
	if err != nil {
		return err
	}
	ch.peerLen = bytes
	reg, err := ch.source(ctx, c)
	if err != nil {
		key.Close()
		return err
	}
	ch.binding = portBinding{
		src:       framework.MemoryBinding{Local: reg.ID},
		dst:       framework.MemoryBinding{Conn: ch.link.conn, Key: key},
		semaphore: framework.SemaphoreBinding{Conn: ch.link.conn, Key: ch.link.peerKey, Offset: uint64(ch.pair.theirs) * semaphoreStride},
	}
	return nil
}

// bindAddresses is for the rank's own copy engine.
func (ch *PortChannel) bindAddresses(ctx context.Context, c *Communicator) (err error) {
	if ch.remote, err = c.recvKey(ctx, ch.link, ch.pair.peer, ch.src); err != nil {
		return err
	}
	ch.peerLen = ch.remote.bytes
	counter := ch.link.lane.Counter(c.outboundWord(ch.link, ch.pair))
	ch.binding = portBinding{lane: ch.link.lane, own: ch.src, peer: ch.remote, counter: counter}
	return nil
}

func (ch *PortChannel) fillHandle(c *Communicator) {
	e := ch.kernels
	ch.inbound = c.inbound(ch.link, ch.pair)
	ch.handle = kernel.PortChannelHandle{
		Semaphore:     c.semaphoreHandle(ch.pair, 0),
		DstMemory:     e.slots.dst,
		SrcMemory:     e.slots.src,
		SemaphoreSlot: e.slots.semaphore,
	}
	ch.handle.Semaphore.Inbound = ch.inbound.Device
	if ch.stage != nil {
		ch.handle.SrcMemory = noMemory
	}
	r := e.service.ring
	if v := e.service.view; v.counters != nil {
		base := v.memory.Addr()
		ch.handle.Fifo = r.HandleOn(ring.View{Base: base, Counters: v.counters.Addr(), Control: c.control.deviceAddr})
		// A look at the ring's own word would cost each push, and each look of a flush,
		// a microsecond. The rank follows it with this one.
		ch.handle.Fifo.Error = v.counters.Addr() + errorWord
		ch.handle.FlushDone = ring.FlushWordOn(base, e.slots.semaphore)
		return
	}
	ch.handle.Fifo = r.Handle(c.control.deviceAddr)
	ch.handle.FlushDone = r.FlushWord(e.slots.semaphore)
}

// Kind implements framework.Channel.
func (ch *PortChannel) Kind() framework.Kind { return framework.KindPort }

// Handle returns what a kernel takes. Where puts are copied (see
// Communicator.PortChannel), kernels may signal, wait and flush, but not put: a put
// ends the proxy, with an error which says that its source is not bound.
func (ch *PortChannel) Handle() kernel.PortChannelHandle { return ch.handle }

// AppendBinary implements framework.Channel.
func (ch *PortChannel) AppendBinary(b []byte) ([]byte, error) {
	return appendHandle(b, &ch.handle), nil
}

// Close ends the use of the channel by this rank; calls in progress return. What was
// pushed before is performed.
func (ch *PortChannel) Close() error { return ch.shutNow(ch) }

func (ch *PortChannel) shut(ctx context.Context) error {
	return ch.end(ch, func() error {
		ch.closing.Store(true)
		ch.cancel()
		ch.use.Lock() // all are out, and nobody comes in
		defer ch.use.Unlock()
		c := ch.comm
		var first error
		keep := func(err error) {
			if first == nil {
				first = err
			}
		}
		keep(ch.drain(ctx))
		ch.unbind()
		keep(ch.settle(ctx))
		keep(c.forwarding.unwatch(ctx, ch.watched))
		c.control.semaphores.close(ch.pair)
		keep(ch.release(ctx))
		for _, e := range ch.ends() {
			if e != nil && e.service.leave() {
				keep(c.retire(ctx, ch.link.transport, e.service))
			}
		}
		if c.aborted() {
			return nil
		}
		return first
	})
}

// ends are the rings that the channel has numbers on; one or two.
func (ch *PortChannel) ends() (all [2]*portEnd) {
	all[0] = ch.kernels
	if h := ch.host.Load(); h != ch.kernels {
		all[1] = h
	}
	return all
}

// drain waits until all triggers of the channel are performed.
func (ch *PortChannel) drain(ctx context.Context) error {
	for _, e := range ch.ends() {
		if e == nil || ch.comm.aborted() {
			continue
		}
		var err error
		if e.service.queue != nil {
			err = ch.flushStream(ctx, e)
		} else if e.service.from == fromKernels {
			err = e.service.ring.WaitTaken(ctx) // the host cannot push there
		} else {
			var pos uint64
			if pos, err = e.service.ring.PushContext(ctx, ch.trigger(e, kernel.TriggerFlush, 0, 0, 0)); err == nil {
				err = e.service.ring.WaitFlushed(ctx, e.slots.semaphore, pos)
			}
		}
		if err != nil {
			return ch.comm.blame("close port channel", ch.pair.peer, err)
		}
	}
	return nil
}

// unbind makes the rank's own proxy forget the addresses of the channel. One of a
// transport forgets what its transport closes.
func (ch *PortChannel) unbind() {
	for _, e := range ch.ends() {
		if e != nil && e.service.queue != nil {
			e.service.queue.Unbind(e.slots.src, e.slots.dst, e.slots.semaphore)
		}
		if e == nil || e.service.copier == nil {
			continue
		}
		p := e.service.copier
		if ch.comm.aborted() {
			ch.link.lane.Drop()
			p.Quit() // it may be waiting for room on a stream that does not move
		}
		p.Unbind(e.slots.semaphore, e.slots.src, e.slots.dst)
	}
}

// settle waits until the copy engine has done what it was given: it must not find
// memory unmapped.
func (ch *PortChannel) settle(ctx context.Context) error {
	if ch.link.lane == nil {
		return nil
	}
	if err := ch.link.lane.Settle(ctx); err != nil {
		return ch.comm.blame("close port channel", ch.pair.peer, err)
	}
	return nil
}

// release gives back what join has received.
func (ch *PortChannel) release(ctx context.Context) error {
	err := ch.binding.dst.Key.Close()
	if e := ch.leaveStream(); err == nil {
		err = e
	}
	if ch.remote.close != nil {
		if e := ch.remote.close(ctx); err == nil {
			err = e
		}
	}
	if ch.stage != nil {
		if e := ch.stage.close(ctx); err == nil && !errors.Is(e, framework.ErrPlugin) {
			err = e
		}
	}
	return err
}

var _ framework.Channel = (*PortChannel)(nil)
