package direct

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/crosshost"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/enqueue"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/streamgate"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// mostPiece is the size of a piece of a message, if there is memory for it: while one
// crosses the network, the kernels copy those before it and behind it.
const mostPiece = 256 << 10

// open decides, together with all ranks, whether kernels can exchange between hosts, and makes what they need.
func (m *sendrecv) open(ctx context.Context) error {
	world := m.direct.queue.World
	unwilling := m.allocate(ctx)
	apart, err := world.ReachPorts(ctx, m.peers(), m.slots, unwilling)
	if err != nil {
		return err
	}
	if apart != nil {
		world.Log().Debug("messages over hosts go through memory of the host", "reason", apart)
		return m.close()
	}
	if err := m.connect(ctx); err != nil {
		err = fmt.Errorf("channels of messages: %w", err)
		world.Abort(err) // the others are connected, and would wait for this rank
		return err
	}
	m.direct.delivers.Store(true)
	return nil
}

// peers are the ranks on other hosts.
func (m *sendrecv) peers() (ranks []int) {
	for r, local := range m.direct.queue.Local {
		if !local {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// allocate makes what the rank needs by itself.
func (m *sendrecv) allocate(ctx context.Context) (err error) {
	q, ranks := m.direct.queue, uint64(m.direct.queue.Ranks())
	if m.kernel == nil {
		return fmt.Errorf("%w: no transport has the kernel for messages between hosts", framework.ErrUnsupported)
	}
	if n := len(m.peers()); n > kernelargs.SendRecvPeers {
		return fmt.Errorf("%w: kernels send messages to %d ranks of other hosts at most, and there are %d", framework.ErrUnsupported, kernelargs.SendRecvPeers, n)
	}
	if _, err := m.kernel.Load(ctx, q.World, kernel.Uint8); err != nil {
		return err
	}
	slot := kernelargs.SendRecvHead + min(mostPiece, m.direct.queue.Slot/4/kernelargs.CacheLine*kernelargs.CacheLine)
	if m.slots, err = q.World.Alloc(2 * ranks * kernelargs.SendRecvSlots * slot); err != nil {
		return fmt.Errorf("slots of messages: %w", err)
	}
	handles := 2 * ranks * uint64(unsafe.Sizeof(kernel.PortChannelHandle{}))
	front := (kernelargs.SendRecvStateBytes + ranks*kernelargs.SendRecvPeerBytes + kernelargs.CacheLine - 1) / kernelargs.CacheLine * kernelargs.CacheLine
	if m.private, err = m.direct.queue.Device.Alloc(front + handles); err != nil {
		return fmt.Errorf("memory of messages: %w", err)
	}
	departed := kernelargs.SendRecvNoteBytes + uintptr(handles) // of the words
	if m.words, err = streamgate.Map(m.direct.queue.Device, q.HostDevice, (uint64(departed)+4*ranks+4095)/4096*4096); err != nil {
		return fmt.Errorf("words of messages: %w", err)
	}
	m.note = (*kernelargs.SendRecvNote)(kernelargs.At(m.words.Host.Addr()))
	m.departed = unsafe.Slice((*uint32)(kernelargs.At(m.words.Host.Addr()+departed)), ranks)
	base := m.private.Addr()
	m.args = kernelargs.SendRecvArgs{
		Control: q.World.Control(), State: base, Peers: base + kernelargs.SendRecvStateBytes, Note: m.words.Device.Addr(), Departed: m.words.Device.Addr() + departed,
		Data: base + uintptr(front), Credit: base + uintptr(front+handles/2),
		Slots: m.slots.Addr(), Slot: slot, Rank: uint32(m.direct.queue.Rank), Ranks: uint32(ranks),
		Signature: kernelargs.Signature{Collective: uint32(collective.SendRecv), Algorithm: kernelargs.NameID(crosshost.NameDirect)},
	}
	if g := m.direct.queue.Inside.Group(); g != nil {
		m.args.Inside = g.Control()
	}
	return nil
}

// connect makes the channels, and puts their handles where kernels find them.
func (m *sendrecv) connect(ctx context.Context) error {
	h, n, rank := m.direct.queue, m.direct.queue.Ranks(), m.direct.queue.Rank
	m.channels = make([]*comm.PortChannel, 2*n)
	for round := range n {
		peer := (round - rank + n) % n // the rank whose peer this one is in the same round
		if h.Local[peer] {
			continue
		}
		for i := peer; i < 2*n; i += n {
			var err error
			if m.channels[i], err = m.direct.queue.World.PortChannel(ctx, peer, m.slots, m.slots); err != nil {
				return err
			}
		}
	}
	return m.direct.handOver(m.channels, m.words, kernelargs.SendRecvNoteBytes, m.args.Data)
}

// close is for when the streams with messages on them have ended.
func (m *sendrecv) close() error {
	m.direct.delivers.Store(false)
	var all []error
	for _, ch := range m.channels {
		if ch != nil {
			all = append(all, ch.Close())
		}
	}
	if m.slots != nil {
		all = append(all, m.slots.Close())
	}
	for _, l := range append(m.lists, m.private) {
		if l != nil {
			all = append(all, l.Close())
		}
	}
	all = append(all, m.words.Close())
	m.channels, m.slots, m.private, m.lists, m.words, m.note, m.departed = nil, nil, nil, nil, streamgate.Mapped{}, nil, nil
	return errors.Join(all...)
}

// Exchange performs a group in which the host takes no part: on a stream that is
// captured as well.
func (d *Engine) Exchange(g *engine.Group) error {
	s := d.queue.Session
	return s.Do(func() error {
		t := &call{&enqueue.Enqueued{Queue: d.queue, Stream: g.Stream}, d}
		if err := t.Capture(); err != nil {
			return err
		}
		own := s.Own(g.List)
		if err := s.Alone(own[0], own[1]); err != nil {
			return err
		}
		if err := d.prepare(collective.SendRecv, kernel.Uint8); err != nil {
			return err
		}
		local, remote := make([]kernelargs.Transfer, 0, len(g.List)), make([]kernelargs.Transfer, 0, len(g.List))
		for _, x := range g.List {
			if d.queue.Local[x.Peer] {
				local = append(local, x)
			} else {
				remote = append(remote, x)
			}
		}
		return t.Perform(func() { d.sendrecv.enqueue(t, local, remote) })
	})
}

// enqueue has what stays on the host and what leaves it go at the same time: each message
// may be waiting for another one, which nobody here knows of.
func (m *sendrecv) enqueue(t *call, local, remote []kernelargs.Transfer) {
	b, s := &m.direct.exchanges[0], t.Stream
	if t.Captured {
		b = &m.direct.exchanges[1]
	}
	both := len(local) > 0 && len(remote) > 0
	if both {
		s = b.stream
		t.after(b.marks[2], s, t.Stream)
	}
	m.send(t, s, remote)
	if both {
		t.record(b.marks[0], s)
	}
	m.stay(t, local)
	if both {
		t.join(b.marks[0], t.Stream)
	}
}

// send delivers messages between hosts. Their kernel has no more blocks than there are
// queues of messages, and is one that may run beside those inside: see exchangeBlocks.
func (m *sendrecv) send(t *call, s device.Stream, list []kernelargs.Transfer) {
	if t.Err != nil || len(list) == 0 {
		return
	}
	queues := numberQueues(list)
	k, a := m.kernel.For(kernel.Uint8), &m.args
	l := device.Launch{Grid: min(kernelargs.SendRecvBlocks, m.direct.blocks, queues), Block: m.direct.threads(m.kernel), Stream: s}
	a.Transfers, a.Listed, a.First, a.Memory = uint32(len(list)), 0, 0, 0
	if len(list) > kernelargs.MaxTransfers {
		memory, err := m.lists.Room(m.direct.queue.Device, len(list))
		if err != nil {
			t.Err = err
			return
		}
		for a.Memory = memory.Addr(); len(list) > 0 && t.Err == nil; list = list[a.Listed:] {
			a.First += uint64(a.Listed)
			a.Listed = uint32(copy(a.List[:], list))
			t.Err = k.Launch(l, unsafe.Pointer(a), unsafe.Sizeof(*a))
		}
		a.Listed = 0
	}
	if t.Err == nil {
		copy(a.List[:], list)
		t.Err = k.Launch(l, unsafe.Pointer(a), unsafe.Sizeof(*a))
	}
}

// numberQueues tells messages which queue they are in, as kernels want it, and returns how
// many queues there are.
func numberQueues(list []kernelargs.Transfer) (queues uint32) {
	before := kernelargs.Transfer{}
	for i, x := range list {
		if i == 0 || x.Peer != before.Peer || x.Receive != before.Receive {
			queues++
		}
		before = x
		list[i].Receive |= (queues - 1) << 1
	}
	return queues
}

// stay delivers messages between ranks of one host, and of this one to itself.
func (m *sendrecv) stay(t *call, list []kernelargs.Transfer) {
	h := m.direct.queue
	if t.Err != nil || len(list) == 0 {
		return
	}
	if h.Inside.Alone() {
		own := m.direct.queue.Session.Own(list)
		for i, x := range own[0] {
			if to := own[1][i]; to.Bytes == x.Bytes {
				t.Copy(to.Buffer, x.Buffer, x.Bytes)
			} else if t.Err == nil {
				t.Err = m.direct.queue.Session.OtherLength(m.direct.queue.Rank, x.Bytes, to.Bytes)
			}
		}
		return
	}
	inside := make([]kernelargs.Transfer, len(list))
	for i, x := range list {
		inside[i] = x
		inside[i].Peer = uint32(slices.Index(h.Hosts[h.Placement.Host], int(x.Peer)))
	}
	t.Err = h.Inside.Messages(t.Stream, inside)
}

// trouble lets kernels know which ranks have left in good order, which they have to within the time
// that adapters stay. It is what kernels have said of messages that end the job: one of another
// length than was expected, and a wait for a rank that has left.
func (m *sendrecv) trouble() error {
	n := m.note
	if n == nil {
		return nil
	}
	for peer := range m.departed {
		if ch := m.channels[peer]; ch != nil && ch.Parted() {
			atomic.StoreUint32(&m.departed[peer], 1)
		}
	}
	if atomic.LoadUint32(&n.Found) == 1 {
		return m.direct.queue.Session.OtherLength(int(n.Peer), n.Sent, n.Expected)
	}
	for i := range m.waits {
		last, word := &m.waits[i], atomic.LoadUint64(&n.Waits[i])
		if word>>16 != last.word>>16 {
			*last = wait{word, time.Now()}
		}
		if word == 0 {
			continue
		}
		if err := m.channels[int(word&0xffff)-1].Deserted(last.since); err != nil && atomic.LoadUint64(&n.Waits[i])>>16 == word>>16 {
			return err
		}
	}
	return nil
}
