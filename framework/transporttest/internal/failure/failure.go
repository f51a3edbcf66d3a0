package failure

import (
	"context"
	"errors"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/internal/harness"
)

// The failure tier. Nothing here may hang, whatever dies; and what is reported is
// typed, so that a communicator can tell its program what has happened.
var failureTests = []harness.Test{
	{
		Name: "failure/peer-leaves", Rule: "A put to a peer that has left succeeds or fails as the peer's failure, within a bound.",
		When: harness.PortClaimed, Body: testPeerLeaves,
	},
	{
		Name: "failure/peer-killed", Rule: "A put to a peer whose plugin was killed succeeds or fails as the peer's failure, within a bound.",
		When: harness.IsProcessWithPort, Body: testPeerKilled,
	},
	{
		Name: "failure/plugin-killed", Rule: "Every call on a dead plugin fails with plugin gone, at once.",
		When: harness.IsProcess, Body: testPluginKilled,
	},
	{
		Name: "failure/plugin-killed-noticed", Rule: "The host knows of a plugin's death within 100 ms.",
		Bare: true, When: harness.IsProcess, Body: testNoticed,
	},
	{
		Name: "failure/plugin-killed-in-calls", Rule: "Calls during which the plugin is killed end.",
		When: harness.IsProcess, Body: testKilledInCalls,
	},
	{
		Name: "failure/plugin-killed-with-proxy", Rule: "WaitProxy ends when the plugin is killed.",
		When: harness.IsProcessWithPort, Body: testKilledWithProxy,
	},
	{
		Name: "failure/memory-survives", Rule: "Mappings belong to the ranks and survive the plugins.",
		When: func(c harness.Claims) bool { return c.Process && harness.MemoryClaimed(c) }, Body: testMemorySurvives,
	},
	{
		Name: "failure/plugin-killed-descriptors", Rule: "The death of a plugin leaves no descriptor at its host.",
		When: harness.IsProcess, Body: testKilledDescriptors,
	},
}

// endsWithin is the promise: the host knows of a dead plugin within 100 ms.
const endsWithin = 100 * time.Millisecond

// survives uses a channel whose peer has gone. Where the peer's memory outlives it
// the puts succeed; elsewhere the proxy ends with a typed error. Either way the
// rank knows within the limit, and its own side can still be closed.
func survives(t *harness.T, c *harness.Channel) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*t.Options.CallLimit)
	defer cancel()
	var err error
	for range 20 {
		var pos uint64
		kind := uint64(kernel.TriggerData | kernel.TriggerSignal | kernel.TriggerFlush)
		if pos, err = c.Ring.PushContext(ctx, c.Trigger(kind, 0, 0, 8)); err == nil {
			err = c.Ring.WaitFlushed(ctx, c.SemSlot, pos)
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
		t.WantClass("wait for a proxy whose peer is gone", c.Dies(), framework.ErrPeer)
	}
}

// testPeerLeaves closes everything that the receiver has made, while the sender is
// connected to it.
func testPeerLeaves(t *harness.T) {
	a, b := t.Rank(0), t.Rank(1)
	l := t.Link(framework.KindPort, a, b)
	p := a.Proxied(16)
	c := p.ChannelTo(l, 0, 4096, &harness.Numbers{})
	c.PutSignal(0, 0, 8)
	c.Flush()
	for id := range b.Ids.All() {
		b.Release(id)
	}
	survives(t, c)
}

func testPeerKilled(t *harness.T) {
	a, b := t.Rank(0), t.Rank(1)
	l := t.Link(framework.KindPort, a, b)
	c := a.Proxied(16).ChannelTo(l, 0, 4096, &harness.Numbers{})
	c.PutSignal(0, 0, 8)
	c.Flush()
	t.Kill(b)
	survives(t, c)
	if _, err := a.Describe(t.Context()); err != nil {
		t.Errorf("the plugin of the survivor: %v", err)
	}
}

// testNoticed measures how soon the host knows of the death. The quickest of a few
// counts: a busy machine delays some, a host that looks too seldom is late always.
func testNoticed(t *harness.T) {
	best := t.Options.CallLimit
	for i := range 5 {
		best = min(best, t.Kill(t.Rank(i)))
	}
	if best > endsWithin {
		t.Errorf("the host knew of a dead plugin after %v at best, expected within %v", best.Round(time.Millisecond), endsWithin)
	}
}

// testPluginKilled makes every call on a plugin that is dead.
func testPluginKilled(t *harness.T) {
	r := t.Rank(0)
	b := r.Alloc(4096)
	reg := r.Registered(b.Segment)
	t.Kill(r)
	if err := r.Side.Process.Err(); !errors.Is(err, framework.ErrPlugin) {
		t.Errorf("the reason is %v: want class plugin gone", err)
	}
	start := time.Now()
	_, err := r.Register(t.Context(), b.Segment)
	t.WantClass("register with a dead plugin", err, framework.ErrPlugin)
	_, err = r.Listen(t.Context(), r.LinkConfig(t.Claims.Channels[0]))
	t.WantClass("listen with a dead plugin", err, framework.ErrPlugin)
	_, err = r.Connect(t.Context(), 1, nil)
	t.WantClass("connect with a dead plugin", err, framework.ErrPlugin)
	_, err = r.Attach(t.Context(), 1, reg.ID, nil)
	t.WantClass("attach with a dead plugin", err, framework.ErrPlugin)
	if t.Claims.Proxy == framework.ProxyPlugin {
		_, err = r.NewProxy(t.Context())
		t.WantClass("new proxy with a dead plugin", err, framework.ErrPlugin)
	}
	if len(t.Claims.Images) > 0 {
		_, err = r.Image(t.Context(), t.Claims.Images[0].ID)
		t.WantClass("image of a dead plugin", err, framework.ErrPlugin)
	}
	if err := r.Close(t.Context(), reg.ID); err != nil {
		t.WantClass("close with a dead plugin", err, framework.ErrPlugin)
	}
	if took := time.Since(start); took > harness.Grace {
		t.Errorf("the calls on a dead plugin took %v", took)
	}
	// A new side works: nothing of the dead one is in the way.
	fresh := t.Rank(0)
	fresh.Registered(fresh.Alloc(4096).Segment)
}

// testKilledInCalls kills while calls are under way. Each ends, with a result or
// with ErrPlugin, and none after the death succeeds.
func testKilledInCalls(t *harness.T) {
	r := t.Rank(0)
	b := r.Alloc(4096)
	started := make(chan struct{}, 4)
	ended := make(chan struct{}, 4)
	for range 4 {
		t.Spawn(func() {
			defer func() { ended <- struct{}{} }()
			for n := 0; ; n++ {
				reg, err := r.Register(t.Context(), b.Segment)
				if err != nil {
					t.WantClass("a call during which the plugin is killed", err, framework.ErrPlugin)
					return
				}
				_ = reg.Key.Close()
				if n == 2 {
					started <- struct{}{}
				}
				select {
				case <-t.Context().Done():
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
		case <-t.Context().Done():
			t.Fatalf("the calls did not start")
		}
	}
	t.Kill(r)
}

// testKilledWithProxy kills the plugin that drains a ring: Wait, which was waiting
// all along, has to end.
func testKilledWithProxy(t *harness.T) {
	l := t.Link(framework.KindPort, t.Rank(0), t.Rank(1))
	c := l.Ranks[0].Proxied(16).ChannelTo(l, 0, 4096, &harness.Numbers{})
	c.PutSignal(0, 0, 8)
	c.Flush()
	cause := make(chan error, 1)
	t.Spawn(func() { cause <- c.Dies() })
	t.Kill(l.Ranks[0])
	select {
	case err := <-cause:
		t.WantClass("Wait for the proxy of a killed plugin", err, framework.ErrPlugin)
	case <-time.After(t.Options.CallLimit + harness.Grace):
		t.Errorf("Wait hangs for the proxy of a killed plugin")
	}
	t.WantClass("Wait once more", c.Dies(), framework.ErrPlugin)
}

// testMemorySurvives kills both plugins and goes on using the memory: mappings
// belong to the ranks.
func testMemorySurvives(t *harness.T) {
	l := t.Link(framework.KindMemory, t.Rank(0), t.Rank(1))
	b := l.Ranks[1].Alloc(1 << 16)
	w := l.Reach(0, l.Ranks[1].Registered(b.Segment).Key)
	t.Kill(l.Ranks[0])
	t.Kill(l.Ranks[1])
	harness.Fill(w.Bytes, 5)
	if i, bad := harness.Differs(b.Bytes, 5); bad {
		t.Errorf("byte %d put after the death of the plugins is wrong", i)
	}
}

// testKilledDescriptors kills plugins that hold much, and counts what the host is
// left with.
func testKilledDescriptors(t *harness.T) {
	dev := t.Device(0) // for all rounds: an open device may hold descriptors of its driver
	t.Grows("the death of a plugin", nil, func() {
		side, err := t.Options.Open(t.Context())
		if err != nil {
			t.Fatalf("open a side: %v", err)
		}
		r := t.JoinOn(dev, 0, side, harness.NewIDs())
		mem, err := r.Device.Alloc(4096)
		if err != nil {
			t.Fatalf("allocate: %v", err)
		}
		defer mem.Close()
		shares, err := mem.Export()
		if err != nil {
			t.Fatalf("export: %v", err)
		}
		defer framework.Parcel{Shares: shares}.Close()
		reg, err := r.Register(t.Context(), framework.Segment{Device: r.Device.Info().Device, Shares: shares, Bytes: 4096})
		if err != nil {
			t.Fatalf("register: %v", err)
		}
		_ = reg.Key.Close()
		t.Kill(r)
		if side.Close != nil {
			if err := side.Close(); err != nil && !errors.Is(err, framework.ErrPlugin) {
				t.Errorf("close the side of a killed plugin: %v", err)
			}
		}
	})
}
