package harness

import (
	"context"
	"sync"
	"time"
)

// Execute runs one test in a goroutine of its own, so that a hung transport costs
// one test and not the suite.
func Execute(ctx context.Context, o Options, sides *Pool, c Claims, x Test) (failure string, failed bool, took time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, o.TestLimit)
	defer cancel()
	t := &T{ctx: ctx, Options: &o, pool: sides, Claims: c}
	start := time.Now()
	var done sync.WaitGroup
	done.Go(func() {
		defer t.cleanup()
		t.guard(func() { x.Body(t) })
	})
	ended := make(chan struct{})
	go func() { done.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(o.TestLimit + 2*Grace):
		t.Errorf("hung: the test did not end within %v", o.TestLimit)
	}
	return t.text(), t.Failed(), time.Since(start)
}
