package collectives

import (
	"sync"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
)

// offering is an engine that offers an algorithm of messages.
type offering struct{ engine.Engine }

func (offering) Offers() engine.Offers {
	return engine.Offers{Algorithms: []*engine.Algorithm{{Collective: SendRecv, ID: 7, Name: "direct"}}}
}

// A watcher of an engine names the algorithm of a call that contradicts its own while calls of this rank ask the engines
// anew: it finds the name whenever it asks, of all collectives that are messages too.
func TestNamesWhileOffersChange(t *testing.T) {
	var x choice
	if got := x.name(SendRecv, 7); got != "" {
		t.Errorf("%q before anything is offered", got)
	}
	engines := []engine.Engine{offering{}}
	x.refresh(engines)
	var watcher sync.WaitGroup
	watcher.Go(func() {
		for range 2000 {
			if a, b, none := x.name(SendRecv, 7), x.name(AllToAllV, 7), x.name(SendRecv, 8); a != "direct" || b != "direct" || none != "" {
				t.Errorf("%q, %q and %q: expected direct twice, and nothing", a, b, none)
				return
			}
		}
	})
	for range 2000 {
		x.refresh(engines)
	}
	watcher.Wait()
}
