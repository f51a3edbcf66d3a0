package harness

import (
	"context"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/ring"
)

// port is a ring with the proxy that drains it: what a rank has once for many
// port channels.
type port struct {
	*Rank
	Ring  *ring.Ring
	Proxy framework.Proxy
}

// Unstarted makes a ring and a proxy that does not drain it yet.
func (r *Rank) Unstarted(slots int) *port {
	t := r.T
	proxy, err := r.NewProxy(t.ctx)
	if err != nil {
		t.Fatalf("rank %d: new proxy: %v", r.N, err)
	}
	queue, err := ring.New(slots)
	if err != nil {
		t.Fatalf("make a ring: %v", err)
	}
	t.Cleanup(func() { _ = queue.Close() })
	t.Cleanup(func() {
		if err := proxy.Stop(context.Background()); err != nil && framework.Class(err) != framework.ErrPlugin {
			t.Errorf("rank %d: stop the proxy: %v", r.N, err)
		}
	})
	return &port{Rank: r, Ring: queue, Proxy: proxy}
}

// Proxied makes a ring and a proxy that drains it.
func (r *Rank) Proxied(slots int) *port {
	p := r.Unstarted(slots)
	p.Start()
	return p
}

func (p *port) Start() {
	if err := p.StartWith(p.Share()); err != nil {
		p.T.Fatalf("rank %d: start the proxy: %v", p.N, err)
	}
}

// Share is the ring's share until the end of the test.
func (p *port) Share() framework.Share {
	s, err := p.Ring.Share()
	if err != nil {
		p.T.Fatalf("share a ring: %v", err)
	}
	p.T.Cleanup(func() { _ = s.Close() })
	return s
}

func (p *port) StartWith(s framework.Share) error { return p.Proxy.Start(p.T.ctx, s) }

// Dies waits for the end of the proxy and returns why.
func (p *port) Dies() error {
	ctx, cancel := context.WithTimeout(p.T.ctx, p.T.Options.CallLimit)
	defer cancel()
	return p.Proxy.Wait(ctx)
}

// Channel is one direction of a port connection: puts go from src to dst, signals
// raise the word at SignalAt of the receiver's counters.
type Channel struct {
	*port
	Conn     framework.ID
	Src, Dst *Buffer
	Counters *Buffer // of the receiver
	DstID    framework.ID
	SrcSlot  uint32
	DstSlot  uint32
	SemSlot  uint32
}

// SignalAt is the offset of a channel's counter in the receiver's counters.
const SignalAt = 64

// Numbers hands out slots: far apart, so that a mask that is too short shows.
type Numbers struct{ Memory, Semaphore uint32 }

func (n *Numbers) next() (src, dst, sem uint32) {
	src, dst, sem = n.Memory, 511-n.Memory, kernel.RingFlushWords-1-n.Semaphore
	n.Memory++
	n.Semaphore++
	return src, dst, sem
}

// ChannelTo makes side i of the link the sender of a channel with room bytes.
func (p *port) ChannelTo(l *Link, i int, room uint64, n *Numbers) *Channel {
	sender, receiver := l.Ranks[i], l.Ranks[1-i]
	return p.ChannelOver(l, i, sender.Alloc(room), receiver.Alloc(room), receiver.Alloc(4096), n)
}

// ChannelOver is channelTo with memory that there is.
func (p *port) ChannelOver(l *Link, i int, from, to, counters *Buffer, n *Numbers) *Channel {
	t := p.T
	sender, receiver := l.Ranks[i], l.Ranks[1-i]
	c := &Channel{port: p, Conn: l.Conn[i], Src: from, Dst: to, Counters: counters}
	c.SrcSlot, c.DstSlot, c.SemSlot = n.next()
	src := sender.Registered(c.Src.Segment)
	dst := receiver.Registered(c.Dst.Segment)
	c.DstID = dst.ID
	// A recipe is asked for as comm does; a port may have nothing to perform.
	a, err := sender.Attach(t.ctx, c.Conn, src.ID, []framework.Parcel{dst.Key})
	if err != nil {
		t.Fatalf("rank %d: attach to a port: %v", sender.N, err)
	}
	(&RecipeRunner{Rank: sender, own: c.Src, Meet: NewBarrier(1)}).Perform(a)
	c.bind(src.ID, dst.Key, receiver.Registered(c.Counters.Segment).Key)
	return c
}

func (c *Channel) bind(src framework.ID, dst, counters framework.Parcel) {
	t := c.T
	if err := c.Proxy.BindMemory(t.ctx, c.SrcSlot, framework.MemoryBinding{Local: src}); err != nil {
		t.Fatalf("rank %d: bind own memory: %v", c.N, err)
	}
	if err := c.Proxy.BindMemory(t.ctx, c.DstSlot, framework.MemoryBinding{Conn: c.Conn, Key: dst}); err != nil {
		t.Fatalf("rank %d: bind the peer's memory: %v", c.N, err)
	}
	s := framework.SemaphoreBinding{Conn: c.Conn, Key: counters, Offset: SignalAt}
	if err := c.Proxy.BindSemaphore(t.ctx, c.SemSlot, s); err != nil {
		t.Fatalf("rank %d: bind a semaphore: %v", c.N, err)
	}
}

// Channel is a channel from rank 0 to rank 1 on a ring of its own.
func (t *T) Channel(slots int, room uint64) *Channel {
	l := t.Link(framework.KindPort, t.Rank(0), t.Rank(1))
	return l.Ranks[0].Proxied(slots).ChannelTo(l, 0, room, &Numbers{})
}

// Trigger encodes a request as the device headers do.
func (c *Channel) Trigger(kind uint64, dst, src, bytes uint64) kernel.Trigger {
	return kernel.TriggerFields{Kind: kind, Bytes: bytes, From: src, To: dst, Src: c.SrcSlot, Dst: c.DstSlot, Slot: c.SemSlot}.Pack()
}

// Push queues a trigger and ends the test if the proxy does not make room.
func (c *Channel) Push(t kernel.Trigger) (pos uint64) {
	ctx, cancel := context.WithTimeout(c.T.ctx, c.T.Options.CallLimit)
	defer cancel()
	pos, err := c.Ring.PushContext(ctx, t)
	if err != nil {
		c.T.Fatalf("rank %d: push: %v%s", c.N, err, c.why())
	}
	return pos
}

// why is the proxy's own account of its end, if it has ended.
func (c *Channel) why() string {
	if c.Ring.Err() == nil {
		return ""
	}
	return "; the proxy says: " + ErrorText(c.Dies())
}

// ErrorText is what a proxy says of its end: the text of the error, or that it was stopped.
func ErrorText(err error) string {
	if err == nil {
		return "stopped"
	}
	return err.Error()
}

// Put queues a put of bytes from offset src of the sender's buffer to offset dst of the
// receiver's.
func (c *Channel) Put(dst, src, bytes uint64) { c.Push(c.Trigger(kernel.TriggerData, dst, src, bytes)) }

// Signal queues a signal, which raises the receiver's counter.
func (c *Channel) Signal() { c.Push(c.Trigger(kernel.TriggerSignal, 0, 0, 0)) }

// PutSignal queues a put and the signal behind it as one trigger.
func (c *Channel) PutSignal(dst, src, bytes uint64) {
	c.Push(c.Trigger(kernel.TriggerData|kernel.TriggerSignal, dst, src, bytes))
}

// Flush pushes a flush and waits for it.
func (c *Channel) Flush() { c.Flushed(c.Push(c.Trigger(kernel.TriggerFlush, 0, 0, 0))) }

// Flushed waits until the proxy has completed the flush at a position, and ends the test if
// it does not.
func (c *Channel) Flushed(pos uint64) {
	ctx, cancel := context.WithTimeout(c.T.ctx, c.T.Options.CallLimit)
	defer cancel()
	if err := c.Ring.WaitFlushed(ctx, c.SemSlot, pos); err != nil {
		c.T.Fatalf("rank %d: flush at position %d: %v%s", c.N, pos, err, c.why())
	}
}

// Count is the receiver's counter.
func (c *Channel) Count() *uint64 { return Word(c.Counters.Bytes, SignalAt) }

// Settle is how long the suite looks for something that must not happen.
const Settle = 20 * time.Millisecond
