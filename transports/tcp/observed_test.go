package tcp

import (
	"fmt"
	"os"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/observe"
)

// While records are wanted, a proxy says what it has handed to the network, to the byte, before the peer's answer, also of puts that go
// in stripes over several streams.
func TestPostedComesBeforeCompleted(t *testing.T) {
	all, err := observe.Find(true)
	if err != nil {
		t.Fatal(err)
	}
	var view *observe.View
	var memory *observe.Memory
	for _, m := range all {
		t.Cleanup(func() { m.Close() })
		for _, v := range m.Views() {
			if v.Info().Job == fmt.Sprint("tcp-", os.Getpid()) {
				view, memory = v, m
			}
		}
	}
	if view == nil {
		t.Fatal("the rank is not seen")
	}
	for name, x := range map[string]struct{ bytes, streams int }{"a small put": {100, 1}, "a large one": {300_000, 1}, "stripes": {4 << 20, 4}} {
		t.Run(name, func(t *testing.T) {
			const bytesOfTarget = 8 << 20
			p := linked(t, bytesOfTarget, two(t, func(c *Config) { c.Streams = x.streams })).open(64)
			var cursor observe.Cursor
			view.Read(&cursor)
			p.check(memory.Switch(true))
			defer func() { p.check(memory.Switch(false)) }()
			const puts = 20
			for range puts {
				_, err := p.push(kernel.TriggerData|kernel.TriggerSignal, 64, 0, uint64(x.bytes))
				p.check(err)
				p.check(p.flush())
			}
			p.stop()
			posted, last, completed, bytes := 0, uint64(0), 0, uint64(0)
			for _, s := range view.Read(&cursor) {
				for _, r := range s.Records {
					switch r.Event {
					case observe.Posted | observe.Instant:
						posted, last, bytes = posted+1, r.Call, bytes+r.Bytes
					case observe.Completed | observe.Instant:
						if completed++; posted == 0 || r.Call > last {
							t.Errorf("flush %d is complete when requests up to %d were posted", r.Call, last)
						}
					}
				}
			}
			if completed != puts || bytes != puts*uint64(x.bytes) {
				t.Errorf("%d completed, %d bytes posted: expected %d and %d", completed, bytes, puts, puts*x.bytes)
			}
		})
	}
}
