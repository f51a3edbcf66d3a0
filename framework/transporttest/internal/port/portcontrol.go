package port

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/ring"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/internal/harness"
)

var portControlTests = []harness.Test{
	{
		Name: "port/bindings", Rule: "Bindings that make no sense are invalid and take no slot.",
		When: harness.PortClaimed, Body: testBindings,
	},
	{
		Name: "port/binding-parcels", Rule: "Bindings by keys that the transport did not make are refused.",
		When: harness.PortClaimed, Body: testBindingParcels,
	},
	{
		Name: "port/bad-triggers", Rule: "A trigger that cannot be performed ends its proxy, in the error word and from Wait, and touches nothing.",
		When: harness.PortClaimed, Body: testBadTriggers,
	},
	{
		Name: "port/start", Rule: "What is no ring of this version, or can shrink, is refused; a proxy starts once.",
		When: harness.PortClaimed, Body: testStart,
	},
	{
		Name: "port/stop", Rule: "Stop performs what was pushed before it, ends pushes, and can be repeated.",
		When: harness.PortClaimed, Body: testStop,
	},
	{
		Name: "port/proxy-descriptors", Rule: "The life of a proxy leaves no descriptor and no mapping behind.",
		When: harness.PortClaimed, Body: testProxyDescriptors,
	},
}

// testBindings binds what cannot be bound. Slots are written once.
func testBindings(t *harness.T) {
	l := t.Link(framework.KindPort, t.Rank(0), t.Rank(1))
	r, peer := l.Ranks[0], l.Ranks[1]
	p := r.Proxied(16)
	c := p.ChannelTo(l, 0, 4096, &harness.Numbers{Memory: 10, Semaphore: 10})
	src := r.Registered(c.Src.Segment).ID
	key := peer.Registered(c.Dst.Segment).Key

	memory := func(what string, slot uint32, b framework.MemoryBinding) {
		t.WantClass("bind "+what, p.Proxy.BindMemory(t.Context(), slot, b), framework.ErrInvalid)
	}
	memory("a slot twice", c.SrcSlot, framework.MemoryBinding{Local: src})
	memory("a slot twice, to other memory", c.SrcSlot, framework.MemoryBinding{Conn: c.Conn, Key: key})
	memory("a slot that no trigger can cite", 512, framework.MemoryBinding{Local: src})
	memory("an enormous slot", 1<<31, framework.MemoryBinding{Local: src})
	memory("nothing", 0, framework.MemoryBinding{})
	memory("both own and a peer's memory", 0, framework.MemoryBinding{Local: src, Conn: c.Conn, Key: key})
	memory("an unknown registration", 0, framework.MemoryBinding{Local: harness.Unknown})
	memory("a connection as registration", 0, framework.MemoryBinding{Local: c.Conn})
	memory("an unknown connection", 0, framework.MemoryBinding{Conn: harness.Unknown, Key: key})
	memory("a registration as connection", 0, framework.MemoryBinding{Conn: src, Key: key})

	semaphore := func(what string, slot uint32, b framework.SemaphoreBinding) {
		t.WantClass("bind a semaphore "+what, p.Proxy.BindSemaphore(t.Context(), slot, b), framework.ErrInvalid)
	}
	good := framework.SemaphoreBinding{Conn: c.Conn, Key: key, Offset: 128}
	at := func(offset uint64) framework.SemaphoreBinding { b := good; b.Offset = offset; return b }
	semaphore("twice", c.SemSlot, good)
	semaphore("to a slot without flush word", kernel.RingFlushWords, good)
	semaphore("to an enormous slot", 1<<31, good)
	semaphore("at the end of the memory", 0, at(4096))
	semaphore("across the end of the memory", 0, at(4092))
	semaphore("that is not aligned", 0, at(4))
	semaphore("at an offset that overflows", 0, at(1<<64-8))
	semaphore("of an unknown connection", 0, framework.SemaphoreBinding{Conn: harness.Unknown, Key: key})
	semaphore("of no connection, to a slot that is not bound", 0, framework.SemaphoreBinding{})

	// A refused binding takes no slot.
	if err := p.Proxy.BindMemory(t.Context(), 0, framework.MemoryBinding{Local: src}); err != nil {
		t.Errorf("bind a slot after it was refused: %v", err)
	}
	c.PutSignal(0, 0, 8)
	c.Flush()
}

// testBindingParcels feeds malformed keys to a proxy that is running.
func testBindingParcels(t *harness.T) {
	l := t.Link(framework.KindPort, t.Rank(0), t.Rank(1))
	p := l.Ranks[0].Proxied(16)
	c := p.ChannelTo(l, 0, 4096, &harness.Numbers{})
	key := l.Ranks[1].Registered(c.Dst.Segment).Key
	slot := uint32(100)
	for _, m := range t.Mutations(key) {
		slot++
		err := p.Proxy.BindMemory(t.Context(), slot%200+100, framework.MemoryBinding{Conn: c.Conn, Key: m.Parcel})
		if err == nil && m.May {
			continue
		}
		t.WantClass("bind memory by a key with "+m.What, err, framework.ErrPeer, framework.ErrInvalid)
		err = p.Proxy.BindSemaphore(t.Context(), slot%200+100, framework.SemaphoreBinding{Conn: c.Conn, Key: m.Parcel})
		if err == nil && m.May {
			continue
		}
		t.WantClass("bind a semaphore by a key with "+m.What, err, framework.ErrPeer, framework.ErrInvalid)
	}
	c.PutSignal(0, 0, 8)
	c.Flush()
}

// testBadTriggers pushes requests that cannot be performed. Each ends its proxy:
// Wait tells a typed cause, the ring's error word ends pushes and flushes, and
// memory that was not meant stays untouched.
func testBadTriggers(t *harness.T) {
	a, b := t.Rank(0), t.Rank(1)
	const room = 4096
	bad := map[string]func(c *harness.Channel) kernel.Trigger{
		"unbound source": func(c *harness.Channel) kernel.Trigger {
			c.SrcSlot = 300
			return c.Trigger(kernel.TriggerData, 0, 0, 8)
		},
		"unbound destination": func(c *harness.Channel) kernel.Trigger {
			c.DstSlot = 300
			return c.Trigger(kernel.TriggerData, 0, 0, 8)
		},
		"unbound semaphore": func(c *harness.Channel) kernel.Trigger {
			c.SemSlot = 300
			return c.Trigger(kernel.TriggerSignal, 0, 0, 0)
		},
		"unbound semaphore, flush": func(c *harness.Channel) kernel.Trigger {
			c.SemSlot = 300
			return c.Trigger(kernel.TriggerFlush, 0, 0, 0)
		},
		"semaphore beyond the flush words": func(c *harness.Channel) kernel.Trigger {
			c.SemSlot = 1023
			return c.Trigger(kernel.TriggerFlush, 0, 0, 0)
		},
		"source and destination swapped": func(c *harness.Channel) kernel.Trigger {
			c.SrcSlot, c.DstSlot = c.DstSlot, c.SrcSlot
			return c.Trigger(kernel.TriggerData, 0, 0, 8)
		},
		"source beyond its end":      func(c *harness.Channel) kernel.Trigger { return c.Trigger(kernel.TriggerData, 0, room-4, 8) },
		"destination beyond its end": func(c *harness.Channel) kernel.Trigger { return c.Trigger(kernel.TriggerData, room-4, 0, 8) },
		"source far away":            func(c *harness.Channel) kernel.Trigger { return c.Trigger(kernel.TriggerData, 0, 1<<32-8, 8) },
		"destination far away":       func(c *harness.Channel) kernel.Trigger { return c.Trigger(kernel.TriggerData, 1<<32-8, 0, 8) },
		"too large":                  func(c *harness.Channel) kernel.Trigger { return c.Trigger(kernel.TriggerData, 0, 0, 1<<32-1) },
	}
	for what, make := range bad {
		l := t.Link(framework.KindPort, a, b)
		p := a.Proxied(16)
		c := p.ChannelTo(l, 0, room, &harness.Numbers{})
		good := *c
		harness.Fill(c.Src.Bytes, 1)
		c.PutSignal(0, 0, 64)
		good.Flush()
		wrong := make(c)
		c.Push(wrong)
		t.WantClass(what+": wait for the proxy", p.Dies(), framework.ErrInvalid)
		if err := p.Ring.Err(); !errors.Is(err, framework.ErrInvalid) {
			t.Errorf("%s: the ring's error word says %v, expected class invalid", what, err)
		}
		if _, err := p.Ring.Push(good.Trigger(kernel.TriggerSignal, 0, 0, 0)); err == nil {
			t.Errorf("%s: a push succeeded after the proxy's end", what)
		}
		if n := atomic.LoadUint64(good.Count()); n != 1 {
			t.Errorf("%s: the counter is %d, expected 1", what, n)
		}
		if i, bad := harness.Differs(good.Dst.Bytes[:64], 1); bad {
			t.Errorf("%s: byte %d of earlier data is lost", what, i)
		}
		for i, x := range good.Dst.Bytes[64:] {
			if x != 0 {
				t.Errorf("%s: byte %d was written", what, i+64)
				break
			}
		}
		if err := p.Dies(); !errors.Is(err, framework.ErrInvalid) {
			t.Errorf("%s: the second Wait says %v", what, err)
		}
	}
	l := t.Link(framework.KindPort, a, b) // one proxy's end is not another's
	c := a.Proxied(16).ChannelTo(l, 0, room, &harness.Numbers{})
	c.PutSignal(0, 0, 8)
	c.Flush()
}

// testStart starts proxies on what is no ring.
func testStart(t *harness.T) {
	r := t.Rank(0)
	p := r.Unstarted(16)
	refused := func(what string, s framework.Share) {
		t.WantClass("start a proxy on "+what, p.StartWith(s), framework.ErrInvalid, framework.ErrUnsupported)
	}
	refused("a pipe", framework.Share{Kind: framework.ShareMemFD, FD: t.ForeignFile()})
	refused("nothing", framework.Share{Kind: framework.ShareMemFD})
	refused("memory that its owner can shrink", framework.Share{Kind: framework.ShareMemFD, FD: shrinkableRing(t)})
	refused("a blob", framework.Share{Kind: framework.ShareLocal, Blob: []byte("ring")})
	plain := r.Alloc(1 << 16)
	for _, s := range plain.Segment.Shares {
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
		bad := r.Unstarted(16)
		spoil((*kernel.RingHeader)(harness.Pointer(bad.Ring.FlushWord(0) - 256)))
		refused(what, bad.Share())
	}
	if err := p.StartWith(p.Share()); err != nil {
		t.Fatalf("start on a good ring after the bad ones: %v", err)
	}
	t.WantClass("start a proxy twice", p.StartWith(p.Share()), framework.ErrInvalid)
}

// shrinkableRing is a ring in memory that its owner can still shrink.
func shrinkableRing(t *harness.T) *os.File {
	const slots = 16
	f := t.Shrinkable(kernel.RingTriggers + 16*slots)
	header := kernel.RingHeader{Magic: kernel.RingMagic, Version: kernel.RingVersion, Slots: slots}
	if _, err := f.WriteAt((*[unsafe.Sizeof(header)]byte)(unsafe.Pointer(&header))[:], 0); err != nil {
		t.Fatalf("write the header of a ring: %v", err)
	}
	return f
}

// testStop stops a proxy with work in its ring, twice, and one that never ran.
func testStop(t *harness.T) {
	const work, size = 4000, 4096
	l := t.Link(framework.KindPort, t.Rank(0), t.Rank(1))
	p := l.Ranks[0].Unstarted(4096)
	c := p.ChannelTo(l, 0, size, &harness.Numbers{})
	for range work {
		c.PutSignal(0, 0, size)
	}
	p.Start()
	for range 2 {
		if err := c.Proxy.Stop(t.Context()); err != nil {
			t.Fatalf("stop: %v", err)
		}
	}
	if got := atomic.LoadUint64(c.Count()); got != work {
		t.Errorf("%d of %d triggers were performed by Stop, which performs what was pushed before", got, work)
	}
	if err := c.Dies(); err != nil {
		t.Errorf("Wait after Stop: %v: want no error", err)
	}
	if _, err := c.Ring.Push(c.Trigger(kernel.TriggerSignal, 0, 0, 0)); err == nil {
		t.Errorf("a push succeeded after Stop: its kernel would wait for ever")
	}
	never := c.Unstarted(16)
	if err := never.Proxy.Stop(t.Context()); err != nil {
		t.Errorf("stop a proxy that was not started: %v", err)
	}
	if err := never.Dies(); err != nil {
		t.Errorf("Wait for a proxy that was stopped before it was started: %v", err)
	}
}

// testProxyDescriptors starts and stops many proxies and counts what is left.
func testProxyDescriptors(t *harness.T) {
	a, b := t.Rank(0), t.Rank(1)
	l := t.Link(framework.KindPort, a, b)
	src := a.Registered(a.Alloc(4096).Segment)
	key := b.Registered(b.Alloc(4096).Segment).Key
	round := func() {
		proxy, err := a.NewProxy(t.Context())
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
			proxy.BindMemory(t.Context(), 0, framework.MemoryBinding{Local: src.ID}),
			proxy.BindMemory(t.Context(), 1, framework.MemoryBinding{Conn: l.Conn[0], Key: key}),
			proxy.BindSemaphore(t.Context(), 0, framework.SemaphoreBinding{Conn: l.Conn[0], Key: key}),
			proxy.Start(t.Context(), share),
			proxy.Stop(context.Background()),
		} {
			if err != nil {
				t.Fatalf("the life of a proxy: %v", err)
			}
		}
	}
	t.Grows("the life of a proxy", []*harness.Rank{a, b}, round)
}
