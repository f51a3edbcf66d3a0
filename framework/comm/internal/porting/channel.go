package porting

import (
	"context"
	"errors"
	"sync/atomic"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/counters"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/life"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/memory"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/negotiate"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/proxy"
	"github.com/mscclpp-go/mscclpp/framework/ring"
)

// Channel is a channel to one peer whose data a proxy moves. Kernels push
// triggers through its handle; the host can do the same with the methods below,
// without a kernel. The methods may be called concurrently.
//
// The link determines which side moves the data, and set-up differs accordingly:
//
//	proxy of the transport    portLink sends a key of the counters, bindKeys binds keys
//	copy engine of the rank   driveLink makes a lane, bindAddresses binds what is mapped
//	sockets of the rank       streamLink takes them over, bindStreams binds memory
type Channel struct {
	requests
	lifetime life.Lifetime
	cancel   context.CancelFunc // of the life
	remote   negotiate.Remote   // the peer's memory, where this rank drives its copy engine
	watched  *proxy.Watched     // nil where nobody forwards signals
}

// join trades keys with the peer and gives the proxy numbers for what triggers will
// cite.
func (ch *Channel) join(ctx context.Context, s *Ports, open *memory.Memory) (err error) {
	if ch.watched, err = s.forward(ch.link, ch.pair); err != nil {
		return &framework.Error{Op: OpChannel, Peer: framework.NoPeer, Err: err}
	}
	defer func() {
		if err != nil {
			s.Life.Rollback(func(ctx context.Context) error { return s.forwarding.unwatch(ctx, ch.watched) })
		}
	}()
	if !ch.link.Streamed {
		if err := s.Links.SendKey(ctx, ch.link.Link, ch.pair.Peer, open); err != nil {
			return s.target(open, ch.link.Transport, err)
		}
	}
	switch {
	case ch.link.Streamed:
		err = ch.bindStreams(ctx, s, open)
	case ch.link.lane != nil:
		err = ch.bindAddresses(ctx, s)
	default:
		err = ch.bindKeys(ctx, s)
	}
	if err != nil {
		return err
	}
	if ch.kernels, err = s.openEnd(ctx, ch.link.Transport, fromKernels, ch.binding); err == nil {
		if s.Counters.HostDev == nil {
			ch.host.Store(ch.kernels)
			err = ch.binding.dst.Key.Close() // no peer has got it
			ch.binding.dst.Key = framework.Parcel{}
		}
		ch.fillHandle(s)
		if s.Counters.HostDev == nil {
			ch.lent = atomic.LoadUint64((*uint64)(counters.Pointer(ch.handle.Semaphore.Expected)))
		}
		ch.life, ch.cancel = context.WithCancel(context.Background())
		if err == nil {
			err = ch.lifetime.Begin(&s.Life.Parts, ch, ch.shut, memory.Users(ch.src), memory.Users(open))
		}
		if err != nil {
			ch.kernels.service.leave()
		}
	}
	if err != nil {
		s.Life.Rollback(ch.release)
		return &framework.Error{Op: OpChannel, Peer: ch.pair.Peer, Err: err}
	}
	return nil
}

// bindKeys is for a proxy of the transport.
func (ch *Channel) bindKeys(ctx context.Context, s *Ports) error {
	key, bytes, err := s.Links.RecvBareKey(ctx, ch.pair.Peer)
	if err != nil {
		return err
	}
	ch.peerLen = bytes
	reg, err := ch.source(ctx, s)
	if err != nil {
		key.Close()
		return err
	}
	ch.binding = binding{
		src:       framework.MemoryBinding{Local: reg.ID},
		dst:       framework.MemoryBinding{Conn: ch.link.Conn, Key: key},
		semaphore: framework.SemaphoreBinding{Conn: ch.link.Conn, Key: ch.link.peerKey, Offset: uint64(ch.pair.Theirs) * counters.Stride},
	}
	return nil
}

// bindAddresses is for the rank's own copy engine.
func (ch *Channel) bindAddresses(ctx context.Context, s *Ports) (err error) {
	if ch.remote, err = s.Links.RecvKey(ctx, ch.link.Link, ch.pair.Peer, ch.src); err != nil {
		return err
	}
	ch.peerLen = ch.remote.Bytes
	counter := ch.link.lane.Counter(s.outboundWord(ch.link, ch.pair))
	ch.binding = binding{lane: ch.link.lane, own: ch.src, peer: ch.remote, counter: counter}
	return nil
}

func (ch *Channel) fillHandle(s *Ports) {
	e := ch.kernels
	ch.inbound = s.inbound(ch.link, ch.pair)
	ch.handle = kernel.PortChannelHandle{
		Semaphore:     s.Counters.Handle(ch.pair, 0),
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
		ch.handle.Fifo = r.HandleOn(ring.View{Base: base, Counters: v.counters.Addr(), Control: s.Counters.DeviceAddr})
		// A look at the ring's own word would cost each push, and each look of a flush,
		// a microsecond. The rank follows it with this one.
		ch.handle.Fifo.Error = v.counters.Addr() + errorWord
		ch.handle.FlushDone = ring.FlushWordOn(base, e.slots.semaphore)
		return
	}
	ch.handle.Fifo = r.Handle(s.Counters.DeviceAddr)
	ch.handle.FlushDone = r.FlushWord(e.slots.semaphore)
}

// Kind implements framework.Channel.
func (ch *Channel) Kind() framework.Kind { return framework.KindPort }

// Handle returns what a kernel takes. Where puts are copied (see
// Communicator.PortChannel), kernels may signal, wait and flush, but not put: a put
// ends the proxy, with an error which says that its source is not bound.
func (ch *Channel) Handle() kernel.PortChannelHandle { return ch.handle }

// AppendBinary implements framework.Channel.
func (ch *Channel) AppendBinary(b []byte) ([]byte, error) {
	return AppendHandle(b, &ch.handle), nil
}

// Close ends the use of the channel by this rank; calls in progress return. Earlier requests are
// performed.
func (ch *Channel) Close() error { return ch.lifetime.Close() }

func (ch *Channel) shut(ctx context.Context) error {
	ch.closing.Store(true)
	ch.cancel()
	ch.use.Lock() // all are out, and nobody comes in
	defer ch.use.Unlock()
	s := ch.ports
	var first error
	keep := func(err error) {
		if first == nil {
			first = err
		}
	}
	keep(ch.drain(ctx))
	ch.unbind()
	keep(ch.settle(ctx))
	keep(s.forwarding.unwatch(ctx, ch.watched))
	s.Counters.Pool.Close(ch.pair)
	keep(ch.release(ctx))
	for _, e := range ch.ends() {
		if e != nil && e.service.leave() {
			keep(s.retire(ctx, ch.link.Transport, e.service))
		}
	}
	if s.Life.Failed() {
		return nil
	}
	return first
}

// drain waits until all triggers of the channel are performed.
func (ch *Channel) drain(ctx context.Context) error {
	for _, e := range ch.ends() {
		if e == nil || ch.ports.Life.Failed() {
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
			return ch.ports.Life.Blame("close port channel", ch.pair.Peer, err)
		}
	}
	return nil
}

// unbind makes the rank's own proxy forget the addresses of the channel. One of a
// transport forgets what its transport closes.
func (ch *Channel) unbind() {
	for _, e := range ch.ends() {
		if e != nil && e.service.queue != nil {
			e.service.queue.Unbind(e.slots.src, e.slots.dst, e.slots.semaphore)
		}
		if e == nil || e.service.copier == nil {
			continue
		}
		p := e.service.copier
		if ch.ports.Life.Failed() {
			ch.link.lane.Drop()
			p.Quit() // it may be waiting for room on a stream that does not move
		}
		p.Unbind(e.slots.semaphore, e.slots.src, e.slots.dst)
	}
}

// settle waits until the copy engine has done what it was given: it must not find
// memory unmapped.
func (ch *Channel) settle(ctx context.Context) error {
	if ch.link.lane == nil {
		return nil
	}
	if err := ch.link.lane.Settle(ctx); err != nil {
		return ch.ports.Life.Blame("close port channel", ch.pair.Peer, err)
	}
	return nil
}

// release gives back what join has received.
func (ch *Channel) release(ctx context.Context) error {
	err := ch.binding.dst.Key.Close()
	if e := ch.leaveStream(); err == nil {
		err = e
	}
	if ch.remote.Close != nil {
		if e := ch.remote.Close(ctx); err == nil {
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

var _ framework.Channel = (*Channel)(nil)

// AppendHandle appends the bytes of a handle as kernels lay it out. Handles hold addresses
// as integers, no Go pointers.
func AppendHandle[T any](b []byte, h *T) []byte {
	return append(b, unsafe.Slice((*byte)(unsafe.Pointer(h)), unsafe.Sizeof(*h))...)
}

// State is the state of a channel for a dump.
type State struct {
	Transport string
	Pair      counters.Pair
	Inbound   proxy.Word
	Queued    uint64 // triggers that wait for the proxies
}

// StateOf returns the state of a channel that is not closed.
func StateOf(ch *Channel) State {
	s := State{Transport: ch.link.Transport.Name, Pair: ch.pair, Inbound: ch.inbound}
	for _, e := range ch.ends() {
		if e != nil {
			s.Queued += e.service.ring.Depth()
		}
	}
	return s
}

// source registers what puts read, or a stage in front of it.
func (ch *Channel) source(ctx context.Context, s *Ports) (framework.Registration, error) {
	t := ch.link.Transport
	reg, err := memory.Registration(ctx, ch.src, t, s.Counters.Dev.Info().Device)
	if errors.Is(err, framework.ErrUnsupported) && s.apart(ch.src) {
		ch.stage, reg, err = s.newStage(ctx, t, ch.src.Bytes())
	}
	if err != nil {
		return reg, &framework.Error{Op: "register", Peer: framework.NoPeer, Err: err}
	}
	return reg, nil
}
