package observe

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
)

// skewed is a clock that runs apart from that of rank 0.
type skewed struct {
	offset int64
	drift  float64
}

func (s skewed) show(t int64) int64 { return t + s.offset + int64(s.drift*float64(t)) }

// Clocks that are 5 s apart and drift by 100 ppm are aligned to 2 µs and half the round trip, over minutes, whichever way
// takes longer. Time is simulated, so the test has no luck in it.
func TestClocksAreAligned(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, host := range []skewed{{5e9, 100e-6}, {-5e9, -100e-6}, {5e9, -100e-6}, {0, 0}, {-1, 37e-6}} {
		var a aligner
		now := int64(1e9)
		check := func(what string, at, allowed int64) {
			t.Helper()
			c := a.fit()
			away := c.To(host.show(at)) - at
			if away = max(away, -away); away > allowed {
				t.Errorf("%+v: %s: off by %d ns, expected at most %d (round trip %d)", host, what, away, allowed, c.RTT)
			}
			if c.Error < c.RTT/2 {
				t.Errorf("%+v: an error of %d ns is less than half the round trip of %d", host, c.Error, c.RTT)
			}
		}
		began := now
		for range 200 {
			var pings []ping
			for range burst {
				there, back := 10_000+random.Int64N(5000), 10_000+random.Int64N(5000)
				if random.IntN(3) == 0 { // a processor was busy
					back += random.Int64N(3e6)
				}
				p := ping{sent: host.show(now), answered: now + there, received: host.show(now + there + back)}
				pings = append(pings, p)
				now += there + back
			}
			a.add(pings)
			now += 1e9
		}
		c := a.fit()
		for _, at := range []int64{began, (began + now) / 2, now} {
			check("fit", at, 2000+c.RTT/2)
		}
		if len(a.kept) > mostPings {
			t.Errorf("%d pings are kept", len(a.kept))
		}
	}
}

// The error that a clock states is one: the true time lies within it, also where round trips are of any length, and the answer at
// any point of them.
func TestErrorOfTheClockHolds(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		host := skewed{random.Int64N(10e9) - 5e9, (random.Float64() - 0.5) * 200e-6}
		var a aligner
		now := random.Int64N(1e15)
		var first, last int64
		for n := range 1 + random.IntN(100) {
			there, back := random.Int64N(1e6), random.Int64N(1e6)
			p := ping{sent: host.show(now), answered: now + there, received: host.show(now + there + back)}
			a.add([]ping{p})
			if last = now + there; n == 0 {
				first = last
			}
			now += there + back + random.Int64N(1e9)
		}
		c := a.fit()
		for _, at := range []int64{first, last} {
			away := c.To(host.show(at)) - at
			if away = max(away, -away); away > c.Error+100 { // the drift of half a round trip
				t.Fatalf("%+v: %d pings: off by %d ns, stated %d", host, len(a.kept), away, c.Error)
			}
		}
	}
}

// Ranks on hosts with clocks of their own find out how these go.
func TestAlignOverABootstrap(t *testing.T) {
	hosts := []skewed{{}, {5e9, 100e-6}, {-5e9, -100e-6}}
	boots := bootstrap.InProcess(len(hosts))
	ctx, cancel := context.WithCancel(t.Context())
	m, err := New(len(hosts), true)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var ranks []*Rank
	var starting sync.WaitGroup
	for i, h := range hosts {
		r, err := Open(Facts{Job: "clocks", Rank: i, Size: len(hosts), Local: i, Clock: func() int64 { return h.show(Now()) },
			Getenv: func(string) string { return m.Variable() }})
		if err != nil {
			t.Fatal(err)
		}
		ranks = append(ranks, r)
		starting.Go(func() { r.Align(ctx, boots[i], []int{0, 1, 2}) })
	}
	starting.Wait()
	views := m.Views()
	for i := 1; i < len(hosts); i++ {
		for views[i].Info().Clock.Pings < 4*burst {
			if ctx.Err() != nil {
				t.Fatal("the clocks were not aligned")
			}
		}
		before := Now()
		at := hosts[i].show(Now())
		after := Now()
		c := views[i].Info().Clock
		// Beyond the last ping the drift that is not known yet adds to the error.
		slack := c.Error + int64(float64(at-c.At)*2*mostDrift) + 2000
		if got := c.To(at); got < before-slack || got > after+slack {
			t.Errorf("rank %d: %d lies outside of [%d, %d] by more than %d", i, got, before, after, slack)
		}
	}
	cancel()
	for i, r := range ranks {
		boots[i].Close()
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}
