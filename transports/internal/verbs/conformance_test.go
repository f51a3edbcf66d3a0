package verbs

import (
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework/transporttest"
)

// patient gives calls the time they need under the race detector: a stop performs thousands
// of triggers, while the thread that counts them polls as well. On two busy processors that
// took more than the five seconds of a call.
func patient(o *transporttest.Options) {
	if raceEnabled {
		o.CallLimit, o.TestLimit = 2*time.Minute, 8*time.Minute
	}
}

// The suite on adapters that are not there, which are stricter than real ones: a peer that
// has no room for a signal, or a queue that overflows, is the end.
func TestConformance(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			library := fake(t)
			transporttest.Run(t, func(t testing.TB) *transporttest.Side {
				return transporttest.Embedded(transportOn(t, library, mode))
			}, patient)
		})
	}
}

// The same with queues that are nearly always full, and several of them.
func TestConformanceSmallQueues(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			library := fake(t)
			transporttest.Run(t, func(t testing.TB) *transporttest.Side {
				return transporttest.Embedded(transportOn(t, library, mode, func(c *Config) { c.QueueDepth, c.Receives, c.Inline, c.QueuePairs = minDepth, 4, 0, 3 }))
			}, patient)
		})
	}
}
