package transporttest

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/ring"
)

var portControlTests = []test{
	{name: "port/bindings", when: portClaimed, body: testBindings},
	{name: "port/binding-parcels", when: portClaimed, body: testBindingParcels},
	{name: "port/bad-triggers", when: portClaimed, body: testBadTriggers},
	{name: "port/start", when: portClaimed, body: testStart},
	{name: "port/stop", when: portClaimed, body: testStop},
	{name: "port/proxy-descriptors", when: portClaimed, body: testProxyDescriptors},
}

// testBindings binds what cannot be bound. Slots are written once.
func testBindings(t *T) {
	l := t.link(framework.KindPort, t.rank(0), t.rank(1))
	r, peer := l.ranks[0], l.ranks[1]
	p := r.proxied(16)
	c := p.channelTo(l, 0, 4096, &numbers{memory: 10, semaphore: 10})
	src := r.registered(c.src.segment).ID
	key := peer.registered(c.dst.segment).Key

	memory := func(what string, slot uint32, b framework.MemoryBinding) {
		t.wantClass("bind "+what, p.proxy.BindMemory(t.ctx, slot, b), framework.ErrInvalid)
	}
	memory("a slot twice", c.srcSlot, framework.MemoryBinding{Local: src})
	memory("a slot twice, to other memory", c.srcSlot, framework.MemoryBinding{Conn: c.conn, Key: key})
	memory("a slot that no trigger can cite", 512, framework.MemoryBinding{Local: src})
	memory("an enormous slot", 1<<31, framework.MemoryBinding{Local: src})
	memory("nothing", 0, framework.MemoryBinding{})
	memory("both own and a peer's memory", 0, framework.MemoryBinding{Local: src, Conn: c.conn, Key: key})
	memory("an unknown registration", 0, framework.MemoryBinding{Local: unknown})
	memory("a connection as registration", 0, framework.MemoryBinding{Local: c.conn})
	memory("an unknown connection", 0, framework.MemoryBinding{Conn: unknown, Key: key})
	memory("a registration as connection", 0, framework.MemoryBinding{Conn: src, Key: key})

	semaphore := func(what string, slot uint32, b framework.SemaphoreBinding) {
		t.wantClass("bind a semaphore "+what, p.proxy.BindSemaphore(t.ctx, slot, b), framework.ErrInvalid)
	}
	good := framework.SemaphoreBinding{Conn: c.conn, Key: key, Offset: 128}
	at := func(offset uint64) framework.SemaphoreBinding { b := good; b.Offset = offset; return b }
	semaphore("twice", c.semSlot, good)
	semaphore("to a slot without flush word", kernel.RingFlushWords, good)
	semaphore("to an enormous slot", 1<<31, good)
	semaphore("at the end of the memory", 0, at(4096))
	semaphore("across the end of the memory", 0, at(4092))
	semaphore("that is not aligned", 0, at(4))
	semaphore("at an offset that overflows", 0, at(1<<64-8))
	semaphore("of an unknown connection", 0, framework.SemaphoreBinding{Conn: unknown, Key: key})
	semaphore("of no connection, to a slot that is not bound", 0, framework.SemaphoreBinding{})

	// A refused binding takes no slot.
	if err := p.proxy.BindMemory(t.ctx, 0, framework.MemoryBinding{Local: src}); err != nil {
		t.Errorf("bind a slot after it was refused: %v", err)
	}
	c.putSignal(0, 0, 8)
	c.flush()
}

// testBindingParcels feeds malformed keys to a proxy that is running.
func testBindingParcels(t *T) {
	l := t.link(framework.KindPort, t.rank(0), t.rank(1))
	p := l.ranks[0].proxied(16)
	c := p.channelTo(l, 0, 4096, &numbers{})
	key := l.ranks[1].registered(c.dst.segment).Key
	slot := uint32(100)
	for _, m := range mutations(key, t.stray()) {
		slot++
		err := p.proxy.BindMemory(t.ctx, slot%200+100, framework.MemoryBinding{Conn: c.conn, Key: m.parcel})
		if err == nil && m.may {
			continue
		}
		t.wantClass("bind memory by a key with "+m.what, err, framework.ErrPeer, framework.ErrInvalid)
		err = p.proxy.BindSemaphore(t.ctx, slot%200+100, framework.SemaphoreBinding{Conn: c.conn, Key: m.parcel})
		if err == nil && m.may {
			continue
		}
		t.wantClass("bind a semaphore by a key with "+m.what, err, framework.ErrPeer, framework.ErrInvalid)
	}
	c.putSignal(0, 0, 8)
	c.flush()
}

// testBadTriggers pushes requests that cannot be performed. Each ends its proxy:
// Wait tells a typed cause, the ring's error word ends pushes and flushes, and
// memory that was not meant stays untouched.
func testBadTriggers(t *T) {
	a, b := t.rank(0), t.rank(1)
	const room = 4096
	bad := map[string]func(c *channel) kernel.Trigger{
		"unbound source": func(c *channel) kernel.Trigger {
			c.srcSlot = 300
			return c.trigger(kernel.TriggerData, 0, 0, 8)
		},
		"unbound destination": func(c *channel) kernel.Trigger {
			c.dstSlot = 300
			return c.trigger(kernel.TriggerData, 0, 0, 8)
		},
		"unbound semaphore": func(c *channel) kernel.Trigger {
			c.semSlot = 300
			return c.trigger(kernel.TriggerSignal, 0, 0, 0)
		},
		"unbound semaphore, flush": func(c *channel) kernel.Trigger {
			c.semSlot = 300
			return c.trigger(kernel.TriggerFlush, 0, 0, 0)
		},
		"semaphore beyond the flush words": func(c *channel) kernel.Trigger {
			c.semSlot = 1023
			return c.trigger(kernel.TriggerFlush, 0, 0, 0)
		},
		"source and destination swapped": func(c *channel) kernel.Trigger {
			c.srcSlot, c.dstSlot = c.dstSlot, c.srcSlot
			return c.trigger(kernel.TriggerData, 0, 0, 8)
		},
		"source beyond its end":      func(c *channel) kernel.Trigger { return c.trigger(kernel.TriggerData, 0, room-4, 8) },
		"destination beyond its end": func(c *channel) kernel.Trigger { return c.trigger(kernel.TriggerData, room-4, 0, 8) },
		"source far away":            func(c *channel) kernel.Trigger { return c.trigger(kernel.TriggerData, 0, 1<<32-8, 8) },
		"destination far away":       func(c *channel) kernel.Trigger { return c.trigger(kernel.TriggerData, 1<<32-8, 0, 8) },
		"too large":                  func(c *channel) kernel.Trigger { return c.trigger(kernel.TriggerData, 0, 0, 1<<32-1) },
	}
	for what, make := range bad {
		l := t.link(framework.KindPort, a, b)
		p := a.proxied(16)
		c := p.channelTo(l, 0, room, &numbers{})
		good := *c
		fill(c.src.bytes, 1)
		c.putSignal(0, 0, 64)
		good.flush()
		wrong := make(c)
		c.push(wrong)
		t.wantClass(what+": wait for the proxy", p.dies(), framework.ErrInvalid)
		if err := p.ring.Err(); !errors.Is(err, framework.ErrInvalid) {
			t.Errorf("%s: the ring's error word says %v, expected class invalid", what, err)
		}
		if _, err := p.ring.Push(good.trigger(kernel.TriggerSignal, 0, 0, 0)); err == nil {
			t.Errorf("%s: a push succeeded after the proxy's end", what)
		}
		if n := atomic.LoadUint64(good.count()); n != 1 {
			t.Errorf("%s: the counter is %d, expected 1", what, n)
		}
		if i, bad := differs(good.dst.bytes[:64], 1); bad {
			t.Errorf("%s: byte %d of earlier data is lost", what, i)
		}
		for i, x := range good.dst.bytes[64:] {
			if x != 0 {
				t.Errorf("%s: byte %d was written", what, i+64)
				break
			}
		}
		if err := p.dies(); !errors.Is(err, framework.ErrInvalid) {
			t.Errorf("%s: the second Wait says %v", what, err)
		}
	}
	l := t.link(framework.KindPort, a, b) // one proxy's end is not another's
	c := a.proxied(16).channelTo(l, 0, room, &numbers{})
	c.putSignal(0, 0, 8)
	c.flush()
}

// testStart starts proxies on what is no ring.
func testStart(t *T) {
	r := t.rank(0)
	p := r.unstarted(16)
	refused := func(what string, s framework.Share) {
		t.wantClass("start a proxy on "+what, p.startWith(s), framework.ErrInvalid, framework.ErrUnsupported)
	}
	refused("a pipe", framework.Share{Kind: framework.ShareMemFD, FD: t.stray()})
	refused("nothing", framework.Share{Kind: framework.ShareMemFD})
	refused("a blob", framework.Share{Kind: framework.ShareLocal, Blob: []byte("ring")})
	plain := r.alloc(1 << 16)
	for _, s := range plain.segment.Shares {
		if s.Kind == framework.ShareMemFD {
			refused("memory that is no ring", s)
		}
	}
	for what, spoil := range map[string]func(h *kernel.RingHeader){
		"a ring of another version":   func(h *kernel.RingHeader) { h.Version++ },
		"a ring of no slots":          func(h *kernel.RingHeader) { h.Slots = 0 },
		"a ring of slots that do not": func(h *kernel.RingHeader) { h.Slots = 1 << 30 },
		"a ring of 12 slots":          func(h *kernel.RingHeader) { h.Slots = 12 },
	} {
		bad := r.unstarted(16)
		spoil((*kernel.RingHeader)(pointer(bad.ring.FlushWord(0) - 256)))
		refused(what, bad.share())
	}
	if err := p.startWith(p.share()); err != nil {
		t.Fatalf("start on a good ring after the bad ones: %v", err)
	}
	t.wantClass("start a proxy twice", p.startWith(p.share()), framework.ErrInvalid)
}

// testStop stops a proxy with work in its ring, twice, and one that never ran.
func testStop(t *T) {
	const work, size = 4000, 4096
	l := t.link(framework.KindPort, t.rank(0), t.rank(1))
	p := l.ranks[0].unstarted(4096)
	c := p.channelTo(l, 0, size, &numbers{})
	for range work {
		c.putSignal(0, 0, size)
	}
	p.start()
	for range 2 {
		if err := c.proxy.Stop(t.ctx); err != nil {
			t.Fatalf("stop: %v", err)
		}
	}
	if got := atomic.LoadUint64(c.count()); got != work {
		t.Errorf("%d of %d triggers were performed by Stop, which performs what was pushed before", got, work)
	}
	if err := c.dies(); err != nil {
		t.Errorf("Wait after Stop: %v: want no error", err)
	}
	if _, err := c.ring.Push(c.trigger(kernel.TriggerSignal, 0, 0, 0)); err == nil {
		t.Errorf("a push succeeded after Stop: its kernel would wait for ever")
	}
	never := c.unstarted(16)
	if err := never.proxy.Stop(t.ctx); err != nil {
		t.Errorf("stop a proxy that was not started: %v", err)
	}
	if err := never.dies(); err != nil {
		t.Errorf("Wait for a proxy that was stopped before it was started: %v", err)
	}
}

// testProxyDescriptors starts and stops many proxies and counts what is left.
func testProxyDescriptors(t *T) {
	a, b := t.rank(0), t.rank(1)
	l := t.link(framework.KindPort, a, b)
	src := a.registered(a.alloc(4096).segment)
	key := b.registered(b.alloc(4096).segment).Key
	round := func() {
		proxy, err := a.NewProxy(t.ctx)
		if err != nil {
			t.Fatalf("new proxy: %v", err)
		}
		queue, err := ring.New(16)
		if err != nil {
			t.Fatalf("make a ring: %v", err)
		}
		defer queue.Close()
		share, err := queue.Share()
		if err != nil {
			t.Fatalf("share a ring: %v", err)
		}
		defer share.Close()
		for _, err := range []error{
			proxy.BindMemory(t.ctx, 0, framework.MemoryBinding{Local: src.ID}),
			proxy.BindMemory(t.ctx, 1, framework.MemoryBinding{Conn: l.conn[0], Key: key}),
			proxy.BindSemaphore(t.ctx, 0, framework.SemaphoreBinding{Conn: l.conn[0], Key: key}),
			proxy.Start(t.ctx, share),
			proxy.Stop(context.Background()),
		} {
			if err != nil {
				t.Fatalf("the life of a proxy: %v", err)
			}
		}
	}
	t.grows("the life of a proxy", []*rank{a, b}, round)
}
