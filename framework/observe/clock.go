package observe

import (
	"math"
	"sync/atomic"
)

// Clock is how the clock of a rank relates to that of rank 0: at t of the one the other shows t + Offset + Drift·(t - At).
type Clock struct {
	At     int64   // of the rank, in ns
	Offset int64   // in ns
	Drift  float64 // in ns a ns
	Error  int64   // at most, in ns, between the first and the last ping
	RTT    int64   // the shortest round trip, in ns
	Pings  int64   // 0: the clock is that of rank 0
}

// To turns a time of the rank into one of rank 0.
func (c *Clock) To(t int64) int64 {
	if c.Pings == 0 {
		return t
	}
	return t + c.Offset + int64(math.Round(c.Drift*float64(t-c.At)))
}

// From is To backwards.
func (c *Clock) From(t int64) int64 {
	if c.Pings == 0 {
		return t
	}
	return c.At + int64(math.Round(float64(t-c.Offset-c.At)/(1+c.Drift)))
}

// ping is one question for the time of rank 0.
type ping struct {
	sent, received int64 // of the rank
	answered       int64 // of rank 0
}

func (p ping) rtt() int64 { return p.received - p.sent }

// middle is the time of the rank at which rank 0 most likely answered: off by half the round trip at most.
func (p ping) middle() int64 { return p.sent + p.rtt()/2 }

func (p ping) offset() int64 { return p.answered - p.middle() }

// aligner puts pings together. Of each burst the quickest is kept, and of those the youngest.
type aligner struct {
	kept []ping
	all  int64
}

const mostPings = 64

// add takes the pings of one burst.
func (a *aligner) add(burst []ping) {
	if len(burst) == 0 {
		return
	}
	best := burst[0]
	for _, p := range burst[1:] {
		if p.rtt() < best.rtt() {
			best = p
		}
	}
	a.all += int64(len(burst))
	if len(a.kept) == mostPings {
		// Every other one goes: so the first ones stay, from which the drift is seen best.
		for i := 1; i < mostPings/2; i++ {
			a.kept[i] = a.kept[2*i]
		}
		a.kept = a.kept[:mostPings/2]
	}
	a.kept = append(a.kept, best)
}

// leastSpan is how far pings must lie apart for a drift to be seen behind the jitter of round trips.
const leastSpan = 500e6

// mostDrift is more than clocks of machines drift from each other.
const mostDrift = 1e-3

// fit finds the clock. Pings count the more the quicker they were, for a ping errs by half its round trip at most. So the
// true line passes each ping within half its round trip, and the error of the fit at a ping is at most its distance
// from the ping plus that. Two lines are farthest apart at an end.
func (a *aligner) fit() (c Clock) {
	if len(a.kept) == 0 {
		return c
	}
	first, last := a.kept[0], a.kept[len(a.kept)-1]
	c = Clock{At: last.middle(), Pings: a.all, RTT: math.MaxInt64}
	origin := a.kept[0].offset() // differences stay small enough for floating point
	var sum, t, o, tt, to float64
	for _, p := range a.kept {
		c.RTT = min(c.RTT, p.rtt())
		half := float64(p.rtt())/2 + 100
		w := 1 / (half * half)
		x, y := float64(p.middle()-c.At), float64(p.offset()-origin)
		sum, t, o, tt, to = sum+w, t+w*x, o+w*y, tt+w*x*x, to+w*x*y
	}
	intercept := o / sum
	if d := sum*tt - t*t; d > 0 && last.middle()-first.middle() >= leastSpan {
		c.Drift = max(-mostDrift, min(mostDrift, (sum*to-t*o)/d))
		intercept = (o - c.Drift*t) / sum
	}
	c.Offset = origin + int64(math.Round(intercept))
	c.Error = a.bound(&c)
	return c
}

// bound is by how much a clock errs at most between the first and the last ping.
func (a *aligner) bound(c *Clock) int64 {
	slack := func(p ping) int64 {
		away := c.To(p.middle()) - p.answered
		return max(away, -away) + p.rtt()/2
	}
	return max(slack(a.kept[0]), slack(a.kept[len(a.kept)-1])) + 1
}

// setClock publishes a clock.
func (r region) setClock(c Clock) {
	h := r.header()
	atomic.AddUint64(&h.clockTurn, 1)
	h.clock = c
	atomic.AddUint64(&h.clockTurn, 1)
}

// getClock reads the clock that was published last.
func (r region) getClock() (c Clock) {
	h := r.header()
	for range 1000 {
		turn := atomic.LoadUint64(&h.clockTurn)
		c = h.clock
		if turn%2 == 0 && atomic.LoadUint64(&h.clockTurn) == turn {
			return c
		}
	}
	return c
}
