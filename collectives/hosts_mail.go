package collectives

import (
	"context"
	"errors"
	"fmt"
	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/streamgate"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// mostMailPiece is the size of a piece of a message, if there is memory for it: while one
// crosses the network, the kernels copy those before it and behind it.
const mostMailPiece = 256 << 10

// mail is the way of messages between hosts on which the host has no part: as direct is for
// collectives, and only where that is. Each rank has channels to all ranks of other hosts.
// Messages between ranks of one host go inside, at the same time.
type mail struct {
	direct   *direct
	kernel   *engine.Kernel
	slots    *comm.Memory  // that adapters reach: kernels/exchange_args.h
	private  device.Memory // state, what was sent and received by rank, and handles
	words    streamgate.Mapped
	note     *mailNote
	parted   []uint32            // by rank: not 0: nobody is there to get a signal
	channels []*comm.PortChannel // by rank, for pieces; then by rank, for credits
	lists    engine.Lists
	args     mailArgs
	waits    [mailBlocks]mailWait // as the watch saw them last
}

// mailWait is when a wait of a block was seen first. Ranks that are waited for are named in
// turn in its word.
type mailWait struct {
	word  uint64
	since time.Time
}

// mails reports whether messages between hosts go from memory of a GPU to memory of a GPU.
func (h *hierarchy) mails() bool { return h != nil && h.delivers.Load() }

// open decides, together with all ranks, whether there is such a way, and makes it.
func (m *mail) open(ctx context.Context) error {
	world := m.direct.ports.courier.world
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
	m.direct.ports.hierarchy.delivers.Store(true)
	return nil
}

// peers are the ranks on other hosts.
func (m *mail) peers() (ranks []int) {
	for r, local := range m.direct.ports.hierarchy.Local {
		if !local {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// allocate makes what the rank needs by itself.
func (m *mail) allocate(ctx context.Context) (err error) {
	k, ranks := m.direct.ports.courier, uint64(m.direct.ports.Comm.Size())
	if m.kernel == nil {
		return fmt.Errorf("%w: no transport has the kernel for messages between hosts", framework.ErrUnsupported)
	}
	if n := len(m.peers()); n > mailPeers {
		return fmt.Errorf("%w: kernels send messages to %d ranks of other hosts at most, and there are %d", framework.ErrUnsupported, mailPeers, n)
	}
	if _, err := m.kernel.Load(ctx, k.world, kernel.Uint8); err != nil {
		return err
	}
	slot := mailHead + min(mostMailPiece, m.direct.ports.Piece/4/line*line)
	if m.slots, err = k.world.Alloc(2 * ranks * mailSlots * slot); err != nil {
		return fmt.Errorf("slots of messages: %w", err)
	}
	handles := 2 * ranks * uint64(unsafe.Sizeof(kernel.PortChannelHandle{}))
	front := (mailStateBytes + ranks*mailWayBytes + line - 1) / line * line
	if m.private, err = m.direct.device.Alloc(front + handles); err != nil {
		return fmt.Errorf("memory of messages: %w", err)
	}
	parted := mailNoteBytes + uintptr(handles) // of the words
	if m.words, err = streamgate.Map(m.direct.device, k.host, (uint64(parted)+4*ranks+4095)/4096*4096); err != nil {
		return fmt.Errorf("words of messages: %w", err)
	}
	m.note = (*mailNote)(at(m.words.Host.Addr()))
	m.parted = unsafe.Slice((*uint32)(at(m.words.Host.Addr()+parted)), ranks)
	base := m.private.Addr()
	m.args = mailArgs{
		Control: k.world.Control(), State: base, Ways: base + mailStateBytes, Note: m.words.Device.Addr(), Parted: m.words.Device.Addr() + parted,
		Data: base + uintptr(front), Credit: base + uintptr(front+handles/2),
		Slots: m.slots.Addr(), Slot: slot, Rank: uint32(m.direct.ports.Comm.Rank()), Ranks: uint32(ranks),
		Signature: signature{Collective: uint32(SendRecv), Algorithm: nameID(hierarchicalDirect)},
	}
	if g := m.direct.ports.hierarchy.group; g != nil {
		m.args.Inside = g.Control()
	}
	return nil
}

// connect makes the channels, and puts their handles where kernels find them.
func (m *mail) connect(ctx context.Context) error {
	h, n, rank := m.direct.ports.hierarchy, m.direct.ports.Comm.Size(), m.direct.ports.Comm.Rank()
	m.channels = make([]*comm.PortChannel, 2*n)
	for round := range n {
		peer := (round - rank + n) % n // whose peer this rank is in the same round
		if h.Local[peer] {
			continue
		}
		for i := peer; i < 2*n; i += n {
			var err error
			if m.channels[i], err = m.direct.ports.courier.world.PortChannel(ctx, peer, m.slots, m.slots); err != nil {
				return err
			}
		}
	}
	return m.direct.handOver(m.channels, m.words, mailNoteBytes, m.args.Data)
}

// close is for when the streams with messages on them have ended.
func (m *mail) close() error {
	m.direct.ports.hierarchy.delivers.Store(false)
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
	m.channels, m.slots, m.private, m.lists, m.words, m.note, m.parted = nil, nil, nil, nil, streamgate.Mapped{}, nil, nil
	return errors.Join(all...)
}

// enqueueMail performs a group in which the host takes no part: on a stream that is
// captured as well.
func (p *ports) enqueueMail(list []transfer, stream device.Stream) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := &trip{courier: p.courier, stream: stream, direct: true}
	state, err := t.device.Query(stream)
	if err != nil {
		return err
	}
	t.captured = state == device.StreamCapturing
	own := p.Own(list)
	if err := p.Alone(own[0], own[1]); err != nil {
		return err
	}
	d := p.hierarchy.direct
	if err := d.prepare(SendRecv, kernel.Uint8, t.captured); err != nil {
		return err
	}
	near, far := make([]transfer, 0, len(list)), make([]transfer, 0, len(list))
	for _, x := range list {
		if p.hierarchy.Local[x.Peer] {
			near = append(near, x)
		} else {
			far = append(far, x)
		}
	}
	return t.perform(func() { d.mail.enqueue(t, near, far) })
}

// enqueue has what stays on the host and what leaves it go at the same time: each message
// may be waiting for another one, which nobody here knows of.
func (m *mail) enqueue(t *trip, near, far []transfer) {
	b, s := &m.direct.beside[0], t.stream
	if t.captured {
		b = &m.direct.beside[1]
	}
	both := len(near) > 0 && len(far) > 0
	if both {
		s = b.stream
		t.after(b.marks[2], s, t.stream)
	}
	m.send(t, s, far)
	if both {
		t.record(b.marks[0], s)
	}
	m.stay(t, near)
	if both {
		t.join(b.marks[0], t.stream)
	}
}

// send delivers messages between hosts. Their kernel has no more blocks than there are
// queues of messages, and is one that may run beside those inside: see exchangeBlocks.
func (m *mail) send(t *trip, s device.Stream, list []transfer) {
	if t.err != nil || len(list) == 0 {
		return
	}
	queues := numberQueues(list)
	k, a := m.kernel.For(kernel.Uint8), &m.args
	l := device.Launch{Grid: min(mailBlocks, m.direct.blocks, queues), Block: m.direct.threads(m.kernel), Stream: s}
	a.Transfers, a.Listed, a.First, a.Memory = uint32(len(list)), 0, 0, 0
	if len(list) > maxTransfers {
		memory, err := m.lists.Room(m.direct.device, len(list), s)
		if err != nil {
			t.err = err
			return
		}
		for a.Memory = memory.Addr(); len(list) > 0 && t.err == nil; list = list[a.Listed:] {
			a.First += uint64(a.Listed)
			a.Listed = uint32(copy(a.List[:], list))
			t.err = k.Launch(l, unsafe.Pointer(a), unsafe.Sizeof(*a))
		}
		a.Listed = 0
	}
	if t.err == nil {
		copy(a.List[:], list)
		t.err = k.Launch(l, unsafe.Pointer(a), unsafe.Sizeof(*a))
	}
}

// numberQueues tells messages which queue they are in, as kernels want it, and returns how
// many queues there are.
func numberQueues(list []transfer) (queues uint32) {
	before := transfer{}
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
func (m *mail) stay(t *trip, list []transfer) {
	h := m.direct.ports.hierarchy
	if t.err != nil || len(list) == 0 {
		return
	}
	if h.inside == nil {
		own := m.direct.ports.Own(list)
		for i, x := range own[0] {
			if to := own[1][i]; to.Bytes == x.Bytes {
				t.copy(to.Buffer, x.Buffer, x.Bytes)
			} else if t.err == nil {
				t.err = m.direct.ports.OtherLength(m.direct.ports.Comm.Rank(), x.Bytes, to.Bytes)
			}
		}
		return
	}
	o := &CallOptions{Stream: t.stream}
	h.inside.GroupStart()
	for _, x := range list {
		call := h.inside.Send
		if x.Receive == 1 {
			call = h.inside.Recv
		}
		_ = call(at(x.Buffer), int(x.Bytes), kernel.Uint8, slices.Index(h.Hosts[h.Host], int(x.Peer)), o) // the end of the group says it
	}
	t.err = h.named(h.inside.GroupEnd())
}

// trouble lets kernels know who has left in good order, which they have to within the time
// that adapters stay. It is what kernels have said of messages that end the job: one of
// another length than was expected, and a wait for a rank that has left.
func (m *mail) trouble() error {
	n := m.note
	if n == nil {
		return nil
	}
	for peer := range m.parted {
		if ch := m.channels[peer]; ch != nil && ch.Parted() {
			atomic.StoreUint32(&m.parted[peer], 1)
		}
	}
	if atomic.LoadUint32(&n.Found) == 1 {
		return m.direct.ports.OtherLength(int(n.Peer), n.Sent, n.Expected)
	}
	for i := range m.waits {
		last, word := &m.waits[i], atomic.LoadUint64(&n.Waits[i])
		if word>>16 != last.word>>16 {
			*last = mailWait{word, time.Now()}
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
