package observe

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A counter of 2.7 GHz follows a clock that is slewed by up to 200 ppm, as by NTP: within 100 ns at each tick, and never backwards.
func TestTicksFollowTheClock(t *testing.T) {
	var real, at float64 // ns since the start: of the counter, of the clock
	c := newTickClock(func() uint64 { return 1<<40 + uint64(real*2.7) }, func() int64 { return 5e12 + int64(at) }, true)
	last := int64(0)
	for n := range 2000 {
		slew := 1 + 200e-6*float64(n%200/100*2-1)
		real, at = real+1e7, at+1e7*slew
		if n%10 == 0 {
			c.renew()
		}
		now, ok := c.read()
		if ok != (n >= 10) {
			t.Fatalf("look %d: the counter is used: %v", n, ok)
		}
		if !ok {
			continue
		}
		wrong := now - int64(5e12+at)
		if most := int64(45_000); wrong > most || wrong < -most { // a tick at a rate that is wrong by twice 200 ppm
			t.Fatalf("look %d: %d ns from the clock", n, wrong)
		}
		if n%100 > 30 && (wrong > 100 || wrong < -100) { // the rate is known
			t.Fatalf("look %d: %d ns from a clock whose rate is steady", n, wrong)
		}
		if now < last {
			t.Fatalf("look %d: the time runs back by %d ns", n, last-now)
		}
		last = now
	}
	real, at = real+3e9, at+3e9
	if now, ok := c.read(); ok {
		t.Errorf("%d: the counter is used though nobody has renewed it for long", now)
	}
	at += 1e9 // it was set
	c.renew()
	if _, ok := c.read(); ok {
		t.Error("the counter is used though it is a second from the clock")
	}
	real, at = real+1e8, at+1e8
	c.renew()
	if now, ok := c.read(); !ok || now-int64(5e12+at) > 1 {
		t.Errorf("%d, %v: expected the new time", now, ok)
	}
}

// The clock of records is the system's also while the counter is read.
func TestNowIsTheSystemsClock(t *testing.T) {
	ticks.renew()
	<-time.After(tick)
	ticks.renew()
	for range 1000 {
		var a, b unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &a); err != nil {
			t.Fatal(err)
		}
		now := Now()
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &b); err != nil {
			t.Fatal(err)
		}
		if now < a.Nano()-2000 || now > b.Nano()+2000 {
			t.Fatalf("%d: expected from %d to %d", now, a.Nano(), b.Nano())
		}
	}
}

func BenchmarkNow(b *testing.B) {
	ticks.renew()
	<-time.After(tick)
	ticks.renew()
	if _, ok := ticks.read(); !ok {
		b.Skip("needs a system that takes the time from the time-stamp counter")
	}
	for n := range b.N {
		if n%(1<<20) == 0 {
			ticks.renew()
		}
		_ = Now()
	}
}
