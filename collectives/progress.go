package collectives

import (
	"fmt"
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/framework"
)

// progress counts the calls in progress, and knows whether Close has begun.
type progress struct{ word atomic.Int64 }

// closing is the bit of the word that Close sets; the rest of it is the count.
const closing = 1 << 62

// enter begins a call. Once Close has begun it is false, and the call must not go on.
func (p *progress) enter() bool {
	if p.word.Add(1)&closing == 0 {
		return true
	}
	p.leave()
	return false
}

func (p *progress) leave() { p.word.Add(-1) }

// close turns later calls away. It reports whether it was the first, and whether a call is in progress.
func (p *progress) close() (first, busy bool) {
	before := p.word.Or(closing)
	return before&closing == 0, before&^closing != 0
}

func errClosed() error { return fmt.Errorf("collectives: %w", framework.ErrClosed) }
