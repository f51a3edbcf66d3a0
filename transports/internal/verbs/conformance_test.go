package verbs

import (
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework/transporttest"
)

// The suite on adapters that are not there, which are stricter than real ones: a peer that
// has no room for a signal, or a queue that overflows, is the end.
func TestConformance(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			library := fake(t)
			transporttest.Run(t, func(t testing.TB) *transporttest.Side {
				return transporttest.Embedded(transportOn(t, library, mode))
			})
		})
	}
}

// The same with queues that are nearly always full, and several of them. Under the race
// detector a stop that has thousands of triggers to perform takes seconds of them.
func TestConformanceSmallQueues(t *testing.T) {
	patient := func(o *transporttest.Options) {
		if raceEnabled {
			o.CallLimit, o.TestLimit = 20*time.Second, time.Minute
		}
	}
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			library := fake(t)
			transporttest.Run(t, func(t testing.TB) *transporttest.Side {
				return transporttest.Embedded(transportOn(t, library, mode, func(c *Config) { c.QueueDepth, c.Receives, c.Inline, c.QueuePairs = minDepth, 4, 0, 3 }))
			}, patient)
		})
	}
}
