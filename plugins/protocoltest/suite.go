package protocoltest

import (
	"sync"
	"time"

	"github.com/mscclpp-go/mscclpp/framework/transporttest"
)

// Bounds of the page, and what a busy machine may take beyond them.
const (
	startBound = 10 * time.Second
	exitBound  = 100 * time.Millisecond
	killBound  = 500 * time.Millisecond
	settle     = 20 * time.Millisecond // how long a test looks for what must not happen
	together   = 4                     // plugins of one test that run at once
)

// suite has the tests, and launcher what they start.
type (
	suite    struct{ *launcher }
	launcher struct{ program Program }
)

// each runs f for the numbers below n, a few at once: each starts a plugin.
func each(t transporttest.TB, n int, f func(t transporttest.TB, i int)) {
	var group sync.WaitGroup
	tokens := make(chan struct{}, together)
	for i := range n {
		group.Go(func() {
			tokens <- struct{}{}
			defer func() { <-tokens }()
			f(t, i)
		})
	}
	group.Wait()
}
