package transporttest

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// The failure tier. Nothing here may hang, whatever dies; and what is reported is
// typed, so that a communicator can tell its program what has happened.
var failureTests = []test{
	{name: "failure/peer-leaves", when: portClaimed, body: testPeerLeaves},
	{name: "failure/peer-killed", when: isProcessWithPort, body: testPeerKilled},
	{name: "failure/plugin-killed", when: isProcess, body: testPluginKilled},
	{name: "failure/plugin-killed-noticed", bare: true, when: isProcess, body: testNoticed},
	{name: "failure/plugin-killed-in-calls", when: isProcess, body: testKilledInCalls},
	{name: "failure/plugin-killed-with-proxy", when: isProcessWithPort, body: testKilledWithProxy},
	{name: "failure/memory-survives", when: func(c claims) bool { return c.process && memoryClaimed(c) }, body: testMemorySurvives},
	{name: "failure/plugin-killed-descriptors", when: isProcess, body: testKilledDescriptors},
}

// goneWithin is the promise: the host knows of a dead plugin within 100 ms.
const goneWithin = 100 * time.Millisecond

// survives uses a channel whose peer has gone. Where the peer's memory outlives it
// the puts succeed; elsewhere the proxy ends with a typed error. Either way the
// rank knows within the limit, and its own side can still be closed.
func (t *T) survives(c *channel) {
	ctx, cancel := context.WithTimeout(t.ctx, 2*t.o.CallLimit)
	defer cancel()
	var err error
	for range 20 {
		var pos uint64
		kind := uint64(kernel.TriggerData | kernel.TriggerSignal | kernel.TriggerFlush)
		if pos, err = c.ring.PushContext(ctx, c.trigger(kind, 0, 0, 8)); err == nil {
			err = c.ring.WaitFlushed(ctx, c.semSlot, pos)
		}
		if err != nil {
			break
		}
	}
	switch {
	case err == nil:
		// The memory is still there, and so is the proxy.
		return
	case errors.Is(err, context.DeadlineExceeded):
		t.Errorf("a put to a peer that is gone hangs: %v", err)
	default:
		t.wantClass("wait for a proxy whose peer is gone", c.dies(), framework.ErrPeer)
	}
}

// testPeerLeaves closes everything that the receiver has made, while the sender is
// connected to it.
func testPeerLeaves(t *T) {
	a, b := t.rank(0), t.rank(1)
	l := t.link(framework.KindPort, a, b)
	p := a.proxied(16)
	c := p.channelTo(l, 0, 4096, &numbers{})
	c.putSignal(0, 0, 8)
	c.flush()
	for id := range b.ids.all() {
		b.release(id)
	}
	t.survives(c)
}

func testPeerKilled(t *T) {
	a, b := t.rank(0), t.rank(1)
	l := t.link(framework.KindPort, a, b)
	c := a.proxied(16).channelTo(l, 0, 4096, &numbers{})
	c.putSignal(0, 0, 8)
	c.flush()
	t.kill(b)
	t.survives(c)
	if _, err := a.Describe(t.ctx); err != nil {
		t.Errorf("the plugin of the survivor: %v", err)
	}
}

// testNoticed measures how soon the host knows of the death. The quickest of a few
// counts: a busy machine delays some, a host that looks too seldom is late always.
func testNoticed(t *T) {
	best := t.o.CallLimit
	for i := range 5 {
		best = min(best, t.kill(t.rank(i)))
	}
	if best > goneWithin {
		t.Errorf("the host knew of a dead plugin after %v at best, expected within %v", best.Round(time.Millisecond), goneWithin)
	}
}

// kill ends the plugin of a rank and waits until the host knows.
func (t *T) kill(r *rank) (took time.Duration) {
	p := r.side.Process
	start := time.Now()
	if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil {
		t.Fatalf("kill the plugin of rank %d, process %d: %v", r.n, p.PID, err)
	}
	select {
	case <-p.Gone:
	case <-time.After(t.o.CallLimit):
		t.Fatalf("the plugin of rank %d was killed, and its host does not know after %v", r.n, t.o.CallLimit)
	}
	return time.Since(start)
}

// testPluginKilled makes every call on a plugin that is dead.
func testPluginKilled(t *T) {
	r := t.rank(0)
	b := r.alloc(4096)
	reg := r.registered(b.segment)
	t.kill(r)
	if err := r.side.Process.Err(); !errors.Is(err, framework.ErrPlugin) {
		t.Errorf("the reason is %v: want class plugin gone", err)
	}
	start := time.Now()
	_, err := r.Register(t.ctx, b.segment)
	t.wantClass("register with a dead plugin", err, framework.ErrPlugin)
	_, err = r.Listen(t.ctx, r.linkConfig(t.claims.Channels[0]))
	t.wantClass("listen with a dead plugin", err, framework.ErrPlugin)
	_, err = r.Connect(t.ctx, 1, nil)
	t.wantClass("connect with a dead plugin", err, framework.ErrPlugin)
	_, err = r.Attach(t.ctx, 1, reg.ID, nil)
	t.wantClass("attach with a dead plugin", err, framework.ErrPlugin)
	if t.claims.Proxy == framework.ProxyPlugin {
		_, err = r.NewProxy(t.ctx)
		t.wantClass("new proxy with a dead plugin", err, framework.ErrPlugin)
	}
	if len(t.claims.Images) > 0 {
		_, err = r.Image(t.ctx, t.claims.Images[0].ID)
		t.wantClass("image of a dead plugin", err, framework.ErrPlugin)
	}
	if err := r.Close(t.ctx, reg.ID); err != nil {
		t.wantClass("close with a dead plugin", err, framework.ErrPlugin)
	}
	if took := time.Since(start); took > grace {
		t.Errorf("the calls on a dead plugin took %v", took)
	}
	// A new side works: nothing of the dead one is in the way.
	fresh := t.rank(0)
	fresh.registered(fresh.alloc(4096).segment)
}

// testKilledInCalls kills while calls are under way. Each ends, with a result or
// with ErrPlugin, and none after the death succeeds.
func testKilledInCalls(t *T) {
	r := t.rank(0)
	b := r.alloc(4096)
	started := make(chan struct{}, 4)
	ended := make(chan struct{}, 4)
	for range 4 {
		t.spawn(func() {
			defer func() { ended <- struct{}{} }()
			for n := 0; ; n++ {
				reg, err := r.Register(t.ctx, b.segment)
				if err != nil {
					t.wantClass("a call during which the plugin is killed", err, framework.ErrPlugin)
					return
				}
				_ = reg.Key.Close()
				if n == 2 {
					started <- struct{}{}
				}
				select {
				case <-t.ctx.Done():
					t.Errorf("calls on a killed plugin go on to succeed")
					return
				default:
				}
			}
		})
	}
	for range 4 {
		select {
		case <-started:
		case <-ended:
			t.Fatalf("a call failed while the plugin was alive")
		case <-t.ctx.Done():
			t.Fatalf("the calls did not start")
		}
	}
	t.kill(r)
}

// testKilledWithProxy kills the plugin that drains a ring: Wait, which was waiting
// all along, has to end.
func testKilledWithProxy(t *T) {
	l := t.link(framework.KindPort, t.rank(0), t.rank(1))
	c := l.ranks[0].proxied(16).channelTo(l, 0, 4096, &numbers{})
	c.putSignal(0, 0, 8)
	c.flush()
	cause := make(chan error, 1)
	t.spawn(func() { cause <- c.dies() })
	t.kill(l.ranks[0])
	select {
	case err := <-cause:
		t.wantClass("Wait for the proxy of a killed plugin", err, framework.ErrPlugin)
	case <-time.After(t.o.CallLimit + grace):
		t.Errorf("Wait hangs for the proxy of a killed plugin")
	}
	t.wantClass("Wait once more", c.dies(), framework.ErrPlugin)
}

// testMemorySurvives kills both plugins and goes on using the memory: mappings
// belong to the ranks.
func testMemorySurvives(t *T) {
	l := t.link(framework.KindMemory, t.rank(0), t.rank(1))
	b := l.ranks[1].alloc(1 << 16)
	w := l.reach(0, l.ranks[1].registered(b.segment).Key)
	t.kill(l.ranks[0])
	t.kill(l.ranks[1])
	fill(w.bytes, 5)
	if i, bad := differs(b.bytes, 5); bad {
		t.Errorf("byte %d put after the death of the plugins is wrong", i)
	}
}

// testKilledDescriptors kills plugins that hold much, and counts what the host is
// left with.
func testKilledDescriptors(t *T) {
	t.grows("the death of a plugin", nil, func() {
		side, err := t.o.Open(t.ctx)
		if err != nil {
			t.Fatalf("open a side: %v", err)
		}
		r := t.join(0, side, newIDs())
		mem, err := r.device.Alloc(4096)
		if err != nil {
			t.Fatalf("allocate: %v", err)
		}
		defer mem.Close()
		shares, err := mem.Export()
		if err != nil {
			t.Fatalf("export: %v", err)
		}
		defer framework.Parcel{Shares: shares}.Close()
		reg, err := r.Register(t.ctx, framework.Segment{Device: r.device.Info().Device, Shares: shares, Bytes: 4096})
		if err != nil {
			t.Fatalf("register: %v", err)
		}
		_ = reg.Key.Close()
		t.kill(r)
		if side.Close != nil {
			if err := side.Close(); err != nil && !errors.Is(err, framework.ErrPlugin) {
				t.Errorf("close the side of a killed plugin: %v", err)
			}
		}
	})
}
