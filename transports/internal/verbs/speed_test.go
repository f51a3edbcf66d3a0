package verbs

import (
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework/device"
	frameproxy "github.com/mscclpp-go/mscclpp/framework/proxy"
)

// From push to post: what the proxy adds to the adapter's time for each trigger. The fake
// moves 8 bytes, which is little.
func BenchmarkTrigger(b *testing.B) {
	for name, mode := range modes {
		for what, kind := range map[string]uint64{"put": device.TriggerData, "put+signal": device.TriggerData | device.TriggerSignal} {
			b.Run(name+"/"+what, func(b *testing.B) {
				r := newRig(b, fake(b), mode)
				r.start()
				b.ReportAllocs()
				b.ResetTimer()
				for range b.N - 1 {
					r.push(kind, 8)
				}
				if err := r.flushed(r.push(kind|device.TriggerFlush, 8)); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

// From push to post a trigger takes less than a microsecond: the time of a batch, until the
// proxy has posted all of it, over the triggers in it. What the fake does for each is in it.
// The best of many batches is the one that met no other work on the processors; on a busy
// machine there are more of them.
func TestTriggerTime(t *testing.T) {
	const least, triggers, shortest = 400, 50, 20
	bound := 1000.0
	if raceEnabled {
		bound *= 20
	}
	for _, x := range []struct {
		name string
		mode Mode
		kind uint64
	}{
		{"ib-host, put", Atomic, device.TriggerData},
		{"ib-host, put and signal", Atomic, device.TriggerData | device.TriggerSignal},
		{"ib-nonatomic, put", Immediate, device.TriggerData},
	} {
		r := newRig(t, fake(t), x.mode)
		r.start()
		best, pushed, batches := time.Hour, 0, 0
		for limit := time.Now().Add(10 * time.Second); batches < least || best > triggers*time.Duration(bound) && time.Now().Before(limit); batches++ {
			start := time.Now()
			for range triggers {
				r.push(x.kind, 8)
			}
			for r.ring.Tail() < uint64(pushed+triggers) && time.Since(start) < 20*time.Second {
			}
			took := time.Since(start)
			if pushed += triggers; r.ring.Tail() != uint64(pushed) {
				t.Fatalf("%s: %d of %d triggers were taken within 20 s: %v", x.name, r.ring.Tail(), pushed, r.ring.Err())
			}
			best = min(best, took)
		}
		if err := r.flushed(r.push(x.kind|device.TriggerFlush, 8)); err != nil {
			t.Fatal(err)
		}
		each := float64(best.Nanoseconds()) / triggers
		t.Logf("%s: %.0f ns from push to post in the best of %d batches of %d triggers", x.name, each, batches, triggers)
		if each < shortest || each >= bound {
			t.Errorf("%s: %.0f ns from push to post: expected %d to %.0f", x.name, each, shortest, bound)
		}
	}
}

// The path of a message allocates nothing.
func TestNoAllocations(t *testing.T) {
	for name, mode := range modes {
		r := newRig(t, fake(t), mode)
		p := r.proxy.(*proxy)
		p.ring = r.ring // the handler is called here, not by a thread
		trigger := device.Trigger{Fst: 8, Snd: 1<<41 | (device.TriggerData|device.TriggerSignal|device.TriggerFlush)<<50}
		pos := uint64(0)
		limit := time.Now().Add(20 * time.Second)
		turn := func() {
			if r := p.handle(trigger, pos); r != frameproxy.Continue {
				t.Fatal(r)
			}
			pos++
			for len(p.pending) > 0 && time.Now().Before(limit) {
				if _, err := p.progress(); err != nil {
					t.Fatal(err)
				}
			}
		}
		turn()
		if n := testing.AllocsPerRun(200, turn); n >= 1 {
			t.Errorf("%s: %v allocations for each message", name, n)
		}
	}
}
