package ring

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// looks gets polls that take each so long, and returns how many it took to be crowded,
// or 0.
func looks(c *Crowd, now *time.Time, each ...time.Duration) int {
	for n := range 1000 {
		last := *now
		*now = last.Add(each[n%len(each)])
		if c.Look(last, *now) {
			return n + 1
		}
	}
	return 0
}

// A poller that is stopped now and then, by an interrupt or another program, goes on polling;
// one that is stopped for as long as it runs does not.
func TestCrowd(t *testing.T) {
	now := time.Now()
	for what, x := range map[string]struct {
		each    []time.Duration
		crowded bool
	}{
		"alone":             {[]time.Duration{5 * time.Microsecond}, false},
		"slow looks":        {[]time.Duration{400 * time.Microsecond}, false},
		"a stop in a while": {append([]time.Duration{3 * time.Millisecond}, slices.Repeat([]time.Duration{400 * time.Microsecond}, 25)...), false},
		"every other slice": {[]time.Duration{3 * time.Millisecond, 400 * time.Microsecond, 400 * time.Microsecond}, true},
	} {
		c := new(Crowd)
		if n := looks(c, &now, x.each...); (n > 0) != x.crowded {
			t.Errorf("%s: crowded after %d looks: expected %v", what, n, x.crowded)
		}
	}
	var none *Crowd
	if none.Look(now, now.Add(time.Hour)) {
		t.Error("nobody is a crowd")
	}
}

// A crowd is believed in for a while, for longer each time that it is still there, and not
// longer than 640 ms; once it has gone the next one is a new one.
func TestCrowdIsTriedAgain(t *testing.T) {
	c, now := new(Crowd), time.Now()
	asleep := func() time.Duration {
		start := now
		for c.Look(now, now) {
			now = now.Add(time.Millisecond)
		}
		return now.Sub(start)
	}
	for _, want := range []int{20, 40, 80, 160, 320, 640, 640} {
		if looks(c, &now, 3*time.Millisecond) == 0 {
			t.Fatal("a crowd is not noticed")
		}
		if got := asleep().Milliseconds(); got != int64(want) {
			t.Errorf("believed in for %d ms: expected %d", got, want)
		}
	}
	if looks(c, &now, 100*time.Microsecond) != 0 {
		t.Fatal("a crowd has not gone")
	}
	if looks(c, &now, 3*time.Millisecond); asleep() != 20*time.Millisecond {
		t.Error("a new crowd is not a new one")
	}
}

// A wait sleeps after a millisecond, and as finely as the system can: the runtime's timers
// would make each sleep one of a millisecond.
func TestPaceSleepsFinely(t *testing.T) {
	p := Begin(new(Crowd), false)
	p.start = p.start.Add(-2 * time.Millisecond) // it has waited for as long
	best := time.Hour
	for range 20 { // some are late on a busy machine
		start := time.Now()
		p.start = start.Add(-2 * time.Millisecond)
		p.Rest()
		best = min(best, time.Since(start))
	}
	if best < 50*time.Microsecond || best > 900*time.Microsecond {
		t.Errorf("a rest after 2 ms takes %v: expected a sleep of 125 µs, about", best)
	}
	p.start = time.Now().Add(-time.Second)
	start := time.Now()
	if p.Rest(); time.Since(start) < longNap {
		t.Errorf("a rest after a second takes %v: expected 1 ms or more", time.Since(start))
	}
}

// In a crowd a wait sleeps at once, where the awaited thread needs a core of its own. Signals end
// some sleeps early, and some yields take long.
func TestPaceInACrowd(t *testing.T) {
	for _, apart := range []bool{true, false} {
		c := &Crowd{until: time.Now().Add(time.Hour), every: time.Hour, shared: time.Now()}
		took := make([]time.Duration, 200)
		for i := range took {
			p := Begin(c, apart)
			p.start = p.start.Add(-30 * time.Microsecond)
			start := time.Now()
			p.Rest()
			took[i] = time.Since(start)
		}
		slices.Sort(took)
		if best, median := took[0], took[len(took)/2]; apart && median < shortNap || !apart && best >= shortNap {
			t.Errorf("apart %v: of 200 rests the shortest took %v, and the median %v", apart, best, median)
		}
	}
}

// A poller lets other goroutines run: often while there are some.
func TestPaceShares(t *testing.T) {
	c, now := new(Crowd), time.Now()
	if !c.Share(now) || c.Share(now) {
		t.Error("expected the first call to let others run, and not the second")
	}
	for range 100 {
		now = now.Add(longShare)
		c.Share(time.Now())
		c.shared = time.Time{}
	}
	if c.every < shortShare || c.every > longShare {
		t.Errorf("others run every %v: expected %v to %v", c.every, shortShare, longShare)
	}
	c.every = longShare
	for range 4 { // it takes a second to come back
		c.shared = time.Time{}
		c.Share(time.Now().Add(-time.Second))
	}
	if c.every != shortShare {
		t.Errorf("others wait, and run every %v: expected %v", c.every, shortShare)
	}
	var none *Crowd
	if !none.Share(now) {
		t.Error("without a record others run each time")
	}
}

// ParkFor sleeps for its argument, also where there is a trigger, and Park does not
// sleep at all then.
func TestParkForOthers(t *testing.T) {
	p, c := pair(t, 4)
	if _, err := p.Push(kernel.Trigger{Fst: 1}); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if c.Park(4*time.Minute) || time.Since(start) > 2*time.Minute {
		t.Error("slept although there is a trigger")
	}
	asked := 0
	none := func(there bool) time.Duration {
		if asked++; !there {
			t.Error("a trigger is there and not seen")
		}
		return 0
	}
	if c.ParkFor(none) || asked != 1 || time.Since(start) > 2*time.Minute {
		t.Errorf("slept although it was told not to, or asked %d times: expected once", asked)
	}
	var wakers sync.WaitGroup
	defer wakers.Wait()
	done := make(chan struct{})
	wakers.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				c.Wake()
				Doze(100 * time.Microsecond)
			}
		}
	})
	defer close(done)
	for limit := time.Now().Add(20 * time.Second); !c.ParkFor(func(bool) time.Duration { return 20 * time.Second }); {
		if time.Now().After(limit) {
			t.Fatal("nobody has ended a sleep beside a trigger within 20 s")
		}
	}
}

// Polls that do not bring what they waited for make the next ones shorter, and those that do
// longer again; now and then one is as long as ever. Polls that were over at once, or took long, say
// nothing.
func TestPollsInVain(t *testing.T) {
	const full = 64 * time.Microsecond
	c, now := new(Crowd), time.Now()
	for _, x := range []struct {
		took  time.Duration
		slept bool
		after time.Duration
		want  time.Duration
	}{
		{2 * time.Millisecond, true, 0, 16 * time.Microsecond},
		{10 * time.Microsecond, false, 0, 16 * time.Microsecond},
		{time.Second, true, 0, 16 * time.Microsecond},
		{2 * time.Millisecond, true, 0, 4 * time.Microsecond},
		{300 * time.Microsecond, false, 0, 16 * time.Microsecond},
		{2 * time.Millisecond, true, 0, 4 * time.Microsecond},
		{2 * time.Millisecond, true, 0, time.Microsecond},
		{2 * time.Millisecond, true, 0, time.Microsecond},
		{2 * time.Millisecond, true, tryAgain, full},
		{2 * time.Millisecond, true, 0, time.Microsecond},
		{300 * time.Microsecond, false, 0, 4 * time.Microsecond},
		{300 * time.Microsecond, false, 0, 16 * time.Microsecond},
		{300 * time.Microsecond, false, 0, full},
		{300 * time.Microsecond, false, 0, full},
	} {
		now = now.Add(x.after)
		c.Ended(x.took, x.slept, now)
		if got := c.Budget(full, now); got != x.want {
			t.Fatalf("after a wait of %v that slept (%v): %v of %v, expected %v", x.took, x.slept, got, full, x.want)
		}
	}
	var none *Crowd
	if none.Ended(time.Millisecond, true, now); none.Budget(full, now) != full {
		t.Error("nobody has polled in vain")
	}
}
