package transporttest_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/ring"
)

func (b *broken) NewProxy(ctx context.Context) (framework.Proxy, error) {
	p, err := b.Transport.NewProxy(ctx)
	if err == nil && b.proxy != nil {
		p = b.proxy(p)
	}
	return p, err
}

// meddler sits between a ring and a good proxy: it drains the suite's ring, and
// pushes what the defect makes of each trigger to a ring of its own.
type meddler struct {
	framework.Proxy
	// change returns what to push instead of t, and whether a flush is reported as
	// done before it is.
	change func(t kernel.Trigger, pos uint64) (instead []kernel.Trigger, early bool)
	// silent: the error word of the suite's ring is never written.
	silent bool
	// drop: what is left in the ring at Stop is not performed, and some always is.
	drop bool

	outer, inner *ring.Ring
	stop         atomic.Bool
	done         chan struct{}
}

func (m *meddler) Start(ctx context.Context, share framework.Share) error {
	outer, err := ring.Open(share)
	if err != nil {
		return err
	}
	inner, err := ring.New(1024)
	if err != nil {
		return err
	}
	s, err := inner.Share()
	if err != nil {
		return err
	}
	defer s.Close()
	m.outer, m.inner, m.done = outer, inner, make(chan struct{})
	if err := m.Proxy.Start(ctx, s); err != nil {
		return err
	}
	go m.drain()
	return nil
}

// performed is how many triggers a proxy that drops the others performs.
const performed = 100

func (m *meddler) drain() {
	defer close(m.done)
	for {
		if err := m.inner.Err(); err != nil {
			if !m.silent {
				m.outer.Fail(err)
			}
			return
		}
		t, pos, ok := m.outer.Poll()
		if !ok || m.drop && pos >= performed {
			if m.stop.Load() {
				return
			}
			m.outer.Park(time.Millisecond)
			continue
		}
		list, early := []kernel.Trigger{t}, false
		if m.change != nil {
			list, early = m.change(t, pos)
		}
		flush := t.Kind()&kernel.TriggerFlush != 0 && t.Slot() < kernel.RingFlushWords
		if flush && early {
			m.outer.Complete(t.Slot(), pos)
		}
		var last uint64
		for _, x := range list {
			var err error
			if last, err = m.inner.Push(x); err != nil {
				break
			}
		}
		if flush && !early && m.inner.WaitFlushed(context.Background(), t.Slot(), last) == nil {
			m.outer.Complete(t.Slot(), pos)
		}
		m.outer.Pop()
	}
}

func (m *meddler) Stop(ctx context.Context) error {
	if m.outer == nil {
		return m.Proxy.Stop(ctx)
	}
	m.stop.Store(true)
	<-m.done
	err := m.Proxy.Stop(ctx)
	if !m.silent {
		m.outer.Fail(nil)
	}
	return err
}

// as is t as another kind of trigger.
func as(t kernel.Trigger, kind uint64) kernel.Trigger {
	return changed(t, func(f *kernel.TriggerFields) { f.Kind = kind })
}

// changed is t with other fields.
func changed(t kernel.Trigger, change func(*kernel.TriggerFields)) kernel.Trigger {
	f := kernel.TriggerFields{Kind: t.Kind(), Bytes: t.Bytes(), From: t.From(), To: t.To(), Src: t.Src(), Dst: t.Dst(), Slot: t.Slot()}
	change(&f)
	return f.Pack()
}

// meddling plants a proxy that changes triggers.
func meddling(change func() func(kernel.Trigger, uint64) ([]kernel.Trigger, bool)) func(*broken) {
	return func(b *broken) {
		b.proxy = func(p framework.Proxy) framework.Proxy { return &meddler{Proxy: p, change: change()} }
	}
}

var proxyDefects = []defect{
	{"signals before data", "port/signal-after-data", "arrived after its signal", meddling(func() func(kernel.Trigger, uint64) ([]kernel.Trigger, bool) {
		var held []kernel.Trigger // puts wait for the next signal, which overtakes them
		return func(t kernel.Trigger, _ uint64) ([]kernel.Trigger, bool) {
			switch t.Kind() {
			case kernel.TriggerData:
				held = append(held, t)
				return nil, false
			case kernel.TriggerData | kernel.TriggerSignal:
				held = append(held, as(t, kernel.TriggerData))
				return []kernel.Trigger{as(t, kernel.TriggerSignal)}, false
			}
			list := append([]kernel.Trigger{t}, held...)
			held = nil
			return list, false
		}
	})},
	{"loses a signal", "port/signals", "last signal", meddling(func() func(kernel.Trigger, uint64) ([]kernel.Trigger, bool) {
		return func(t kernel.Trigger, pos uint64) ([]kernel.Trigger, bool) {
			if pos == 1234 {
				return nil, false
			}
			return []kernel.Trigger{t}, false
		}
	})},
	{"signals twice", "port/signals", "the counter is", meddling(func() func(kernel.Trigger, uint64) ([]kernel.Trigger, bool) {
		return func(t kernel.Trigger, pos uint64) ([]kernel.Trigger, bool) {
			if pos == 1234 {
				return []kernel.Trigger{t, t}, false
			}
			return []kernel.Trigger{t}, false
		}
	})},
	{"puts out of order", "port/order", "out of order", meddling(func() func(kernel.Trigger, uint64) ([]kernel.Trigger, bool) {
		var held []kernel.Trigger // every second put comes late
		return func(t kernel.Trigger, _ uint64) ([]kernel.Trigger, bool) {
			if t.Kind() != kernel.TriggerData {
				return []kernel.Trigger{t}, false
			}
			if held == nil {
				held = []kernel.Trigger{t}
				return nil, false
			}
			list := append([]kernel.Trigger{t}, held...)
			held = nil
			return list, false
		}
	})},
	{"flushes early", "port/flush", "after the flush", meddling(func() func(kernel.Trigger, uint64) ([]kernel.Trigger, bool) {
		var held []kernel.Trigger // puts wait for the next signal
		return func(t kernel.Trigger, _ uint64) ([]kernel.Trigger, bool) {
			switch t.Kind() {
			case kernel.TriggerData:
				held = append(held, t)
				return nil, false
			case kernel.TriggerFlush:
				return nil, true
			}
			list := append(held, t)
			held = nil
			return list, false
		}
	})},
	{"signals over another link", "port/several-links", "signals arrived", func(b *broken) {
		b.describe = func(d framework.Description) framework.Description {
			d.Links = 3
			return d
		}
		meddling(func() func(kernel.Trigger, uint64) ([]kernel.Trigger, bool) {
			return func(t kernel.Trigger, _ uint64) ([]kernel.Trigger, bool) {
				if t.Kind()&kernel.TriggerSignal != 0 {
					t = changed(t, func(f *kernel.TriggerFields) { f.Slot = kernel.RingFlushWords - 1 }) // the first one's
				}
				return []kernel.Trigger{t}, false
			}
		})(b)
	}},
	{"loses the tail of a put", "port/put", "is wrong after the flush", meddling(func() func(kernel.Trigger, uint64) ([]kernel.Trigger, bool) {
		return func(t kernel.Trigger, _ uint64) ([]kernel.Trigger, bool) {
			if t.Bytes() > 16 {
				t = changed(t, func(f *kernel.TriggerFields) { f.Bytes &^= 15 })
			}
			return []kernel.Trigger{t}, false
		}
	})},
	{"writes whole words", "port/put", "changed byte", meddling(func() func(kernel.Trigger, uint64) ([]kernel.Trigger, bool) {
		return func(t kernel.Trigger, _ uint64) ([]kernel.Trigger, bool) {
			if t.Kind() == kernel.TriggerData {
				t = changed(t, func(f *kernel.TriggerFields) { f.Bytes = (f.Bytes + 7) &^ 7 })
			}
			return []kernel.Trigger{t}, false
		}
	})},
	{"says nothing when it dies", "port/bad-triggers", "error word", func(b *broken) {
		b.proxy = func(p framework.Proxy) framework.Proxy { return &meddler{Proxy: p, silent: true} }
	}},
	{"drops work at stop", "port/stop", "of 4000 triggers", func(b *broken) {
		b.proxy = func(p framework.Proxy) framework.Proxy { return &meddler{Proxy: p, drop: true} }
	}},
	{"forgets why it died", "port/bad-triggers", "wait for the proxy", func(b *broken) {
		b.proxy = func(p framework.Proxy) framework.Proxy { return forgetful{p} }
	}},
	{"rebinds", "port/bindings", "a slot twice: accepted", func(b *broken) {
		b.proxy = func(p framework.Proxy) framework.Proxy { return lenient{p} }
	}},
	{"hangs when the peer leaves", "failure/peer-leaves", "hangs", func(b *broken) {
		b.proxy = func(p framework.Proxy) framework.Proxy {
			n := 0
			return &meddler{Proxy: p, change: func(t kernel.Trigger, _ uint64) ([]kernel.Trigger, bool) {
				if n++; n > 3 { // as if it waited for an answer that never comes
					return []kernel.Trigger{as(t, kernel.TriggerSignal), as(t, kernel.TriggerSignal)}, false
				}
				return []kernel.Trigger{t}, false
			}}
		}
	}},
}

type forgetful struct{ framework.Proxy }

func (f forgetful) Wait(ctx context.Context) error {
	_ = f.Proxy.Wait(ctx)
	return nil
}

type lenient struct{ framework.Proxy }

func (l lenient) BindMemory(ctx context.Context, slot uint32, m framework.MemoryBinding) error {
	if err := l.Proxy.BindMemory(ctx, slot, m); err != nil && !strings.Contains(err.Error(), "already") {
		return err
	}
	return nil
}

func TestSuiteFindsProxyDefects(t *testing.T) {
	for _, d := range proxyDefects {
		t.Run(strings.ReplaceAll(d.name, " ", "-"), func(t *testing.T) { findDefect(t, d) })
	}
}

// The meddler alone is no defect: what it passes on unchanged passes the tests.
func TestMeddlerIsTransparent(t *testing.T) {
	for _, name := range []string{"port/order", "port/flush", "port/stop"} {
		report := suiteOn(t, name, 10*time.Second, func(b *broken) {
			b.proxy = func(p framework.Proxy) framework.Proxy { return &meddler{Proxy: p} }
		})
		if report.Failed() != 0 {
			t.Errorf("%s: %s", name, report.Results[0].Error)
		}
	}
}
