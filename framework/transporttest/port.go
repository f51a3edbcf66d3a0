package transporttest

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
	*rank
	ring  *ring.Ring
	proxy framework.Proxy
}

// unstarted makes a ring and a proxy that does not drain it yet.
func (r *rank) unstarted(slots int) *port {
	t := r.t
	proxy, err := r.NewProxy(t.ctx)
	if err != nil {
		t.Fatalf("rank %d: new proxy: %v", r.n, err)
	}
	queue, err := ring.New(slots)
	if err != nil {
		t.Fatalf("make a ring: %v", err)
	}
	t.Cleanup(func() { _ = queue.Close() })
	t.Cleanup(func() {
		if err := proxy.Stop(context.Background()); err != nil && framework.Class(err) != framework.ErrPlugin {
			t.Errorf("rank %d: stop the proxy: %v", r.n, err)
		}
	})
	return &port{rank: r, ring: queue, proxy: proxy}
}

func (r *rank) proxied(slots int) *port {
	p := r.unstarted(slots)
	p.start()
	return p
}

func (p *port) start() {
	if err := p.startWith(p.share()); err != nil {
		p.t.Fatalf("rank %d: start the proxy: %v", p.n, err)
	}
}

// share is the ring's share until the end of the test.
func (p *port) share() framework.Share {
	s, err := p.ring.Share()
	if err != nil {
		p.t.Fatalf("share a ring: %v", err)
	}
	p.t.Cleanup(func() { _ = s.Close() })
	return s
}

func (p *port) startWith(s framework.Share) error { return p.proxy.Start(p.t.ctx, s) }

// dies waits for the end of the proxy and returns why.
func (p *port) dies() error {
	ctx, cancel := context.WithTimeout(p.t.ctx, p.t.o.CallLimit)
	defer cancel()
	return p.proxy.Wait(ctx)
}

// channel is one direction of a port connection: puts go from src to dst, signals
// raise the word at signalAt of the receiver's counters.
type channel struct {
	*port
	conn     framework.ID
	src, dst *buffer
	counters *buffer // of the receiver
	dstID    framework.ID
	srcSlot  uint32
	dstSlot  uint32
	semSlot  uint32
}

const signalAt = 64 // offset of the counter in the receiver's counters

// numbers hands out slots: far apart, so that a mask that is too short shows.
type numbers struct{ memory, semaphore uint32 }

func (n *numbers) next() (src, dst, sem uint32) {
	src, dst, sem = n.memory, 511-n.memory, kernel.RingFlushWords-1-n.semaphore
	n.memory++
	n.semaphore++
	return src, dst, sem
}

// channelTo makes side i of the link the sender of a channel with room bytes.
func (p *port) channelTo(l *link, i int, room uint64, n *numbers) *channel {
	sender, receiver := l.ranks[i], l.ranks[1-i]
	return p.channelOver(l, i, sender.alloc(room), receiver.alloc(room), receiver.alloc(4096), n)
}

// channelOver is channelTo with memory that there is.
func (p *port) channelOver(l *link, i int, from, to, counters *buffer, n *numbers) *channel {
	t := p.t
	sender, receiver := l.ranks[i], l.ranks[1-i]
	c := &channel{port: p, conn: l.conn[i], src: from, dst: to, counters: counters}
	c.srcSlot, c.dstSlot, c.semSlot = n.next()
	src := sender.registered(c.src.segment)
	dst := receiver.registered(c.dst.segment)
	c.dstID = dst.ID
	// A recipe is asked for as comm does; a port may have nothing to perform.
	a, err := sender.Attach(t.ctx, c.conn, src.ID, []framework.Parcel{dst.Key})
	if err != nil {
		t.Fatalf("rank %d: attach to a port: %v", sender.n, err)
	}
	(&performer{rank: sender, own: c.src, meet: newMeeting(1)}).perform(a)
	c.bind(src.ID, dst.Key, receiver.registered(c.counters.segment).Key)
	return c
}

func (c *channel) bind(src framework.ID, dst, counters framework.Parcel) {
	t := c.t
	if err := c.proxy.BindMemory(t.ctx, c.srcSlot, framework.MemoryBinding{Local: src}); err != nil {
		t.Fatalf("rank %d: bind own memory: %v", c.n, err)
	}
	if err := c.proxy.BindMemory(t.ctx, c.dstSlot, framework.MemoryBinding{Conn: c.conn, Key: dst}); err != nil {
		t.Fatalf("rank %d: bind the peer's memory: %v", c.n, err)
	}
	s := framework.SemaphoreBinding{Conn: c.conn, Key: counters, Offset: signalAt}
	if err := c.proxy.BindSemaphore(t.ctx, c.semSlot, s); err != nil {
		t.Fatalf("rank %d: bind a semaphore: %v", c.n, err)
	}
}

// channel is a channel from rank 0 to rank 1 on a ring of its own.
func (t *T) channel(slots int, room uint64) *channel {
	l := t.link(framework.KindPort, t.rank(0), t.rank(1))
	return l.ranks[0].proxied(slots).channelTo(l, 0, room, &numbers{})
}

// trigger encodes a request as the device headers do.
func (c *channel) trigger(kind uint64, dst, src, bytes uint64) kernel.Trigger {
	return kernel.Trigger{
		Fst: bytes | src<<32,
		Snd: dst | uint64(c.srcSlot)<<32 | uint64(c.dstSlot)<<41 | kind<<50 | uint64(c.semSlot)<<53,
	}
}

// push queues a trigger and ends the test if the proxy does not make room.
func (c *channel) push(t kernel.Trigger) (pos uint64) {
	ctx, cancel := context.WithTimeout(c.t.ctx, c.t.o.CallLimit)
	defer cancel()
	pos, err := c.ring.PushContext(ctx, t)
	if err != nil {
		c.t.Fatalf("rank %d: push: %v%s", c.n, err, c.why())
	}
	return pos
}

// why is the proxy's own account of its end, if it has ended.
func (c *channel) why() string {
	if c.ring.Err() == nil {
		return ""
	}
	return "; the proxy says: " + errorText(c.dies())
}

func errorText(err error) string {
	if err == nil {
		return "stopped"
	}
	return err.Error()
}

func (c *channel) put(dst, src, bytes uint64) { c.push(c.trigger(kernel.TriggerData, dst, src, bytes)) }
func (c *channel) signal()                    { c.push(c.trigger(kernel.TriggerSignal, 0, 0, 0)) }
func (c *channel) putSignal(dst, src, bytes uint64) {
	c.push(c.trigger(kernel.TriggerData|kernel.TriggerSignal, dst, src, bytes))
}

// flush pushes a flush and waits for it.
func (c *channel) flush() { c.flushed(c.push(c.trigger(kernel.TriggerFlush, 0, 0, 0))) }

func (c *channel) flushed(pos uint64) {
	ctx, cancel := context.WithTimeout(c.t.ctx, c.t.o.CallLimit)
	defer cancel()
	if err := c.ring.WaitFlushed(ctx, c.semSlot, pos); err != nil {
		c.t.Fatalf("rank %d: flush at position %d: %v%s", c.n, pos, err, c.why())
	}
}

// count is the receiver's counter.
func (c *channel) count() *uint64 { return word(c.counters.bytes, signalAt) }

// settle is how long the suite looks for something that must not happen.
const settle = 20 * time.Millisecond
