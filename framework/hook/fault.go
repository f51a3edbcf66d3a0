package hook

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Rule makes calls fail. The zero values of its fields mean: every operation, every
// call, before it reaches the transport, ErrUnavailable.
type Rule struct {
	Op    string        // of the calls concerned: "attach"; "" for all
	Nth   int           // only the n-th of them, from 1; 0 for all
	After bool          // the transport does its work, and the answer is lost
	Delay time.Duration // before the call; its context cuts it short
	Hang  bool          // the call ends only with its context
	Err   error         // the result of the call; with Delay alone it may succeed
}

// Fault applies rules, the first that fits each call.
func Fault(rules ...Rule) Layer {
	var mu sync.Mutex
	seen := make([]int, len(rules))
	match := func(op string) *Rule {
		mu.Lock()
		defer mu.Unlock()
		var hit *Rule
		for i := range rules {
			r := &rules[i]
			if r.Op != "" && r.Op != op {
				continue
			}
			seen[i]++ // every rule counts every call of its operation
			if hit == nil && (r.Nth == 0 || r.Nth == seen[i]) {
				hit = r
			}
		}
		return hit
	}
	return func(ctx context.Context, c *Call, next func(context.Context) error) error {
		r := match(c.Op)
		if r == nil {
			return next(ctx)
		}
		return r.apply(ctx, c, next)
	}
}

func (r *Rule) apply(ctx context.Context, c *Call, next func(context.Context) error) error {
	if r.Delay > 0 {
		timer := time.NewTimer(r.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return r.failure(c, ctx.Err())
		}
	}
	switch {
	case r.Hang:
		<-ctx.Done()
		return r.failure(c, ctx.Err())
	case r.After:
		if err := next(ctx); err != nil {
			return err
		}
	case r.Delay > 0 && r.Err == nil:
		return next(ctx)
	}
	return r.failure(c, nil)
}

// failure is the injected error: of the rule's class, and plainly injected.
func (r *Rule) failure(c *Call, cause error) error {
	class := r.Err
	if class == nil {
		class = framework.ErrUnavailable
	}
	err := fmt.Errorf("injected fault: %w", class)
	if cause != nil {
		err = fmt.Errorf("injected fault: %w: %w", class, cause)
	}
	return &framework.Error{Op: c.Op, Peer: framework.PeerOf(r.Err), Err: err}
}
