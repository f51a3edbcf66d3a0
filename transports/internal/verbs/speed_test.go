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
