package collectives

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/observe"
)

// progress has calls performed one at a time, and tells Close whether one is in progress.
//
// One lock does both, since nothing but calls takes it: whether it is held is whether a call is in progress. A call
// holds it from its beginning to its end, also while it waits for peers. It looks at closing behind the lock, and
// Close sets closing before it tries the lock. So a call that has seen no closing still holds the lock when Close
// tries it, or has ended by then; and a call that takes the lock after Close has tried it sees closing, and is
// turned away.
type progress struct {
	turn    sync.Mutex
	board   *observe.Board // for observers, behind the lock
	closing atomic.Bool

	// outside counts calls by algorithms of the program. They run without the lock, since they make calls
	// themselves. It is raised with the lock held, so that what is said above holds for them as well.
	outside atomic.Int32
}

// enter begins a call, behind the one before it. Once Close has begun it is false, and the call must not go on.
func (p *progress) enter() bool {
	p.turn.Lock()
	if !p.closing.Load() {
		return true
	}
	p.turn.Unlock()
	return false
}

func (p *progress) leave() { p.board.End(); p.turn.Unlock() }

// leaveFor ends the turn of a call, and performs the rest of it, which may make calls.
func (p *progress) leaveFor(rest interface{ perform() error }) error {
	p.outside.Add(1)
	p.leave()
	defer p.outside.Add(-1)
	return rest.perform()
}

// close turns later calls away. It reports, the first time, whether a call is in progress.
func (p *progress) close() (busy bool) { return !p.closing.Swap(true) && p.busy() }

// busy reports whether a call is in progress. One that is being turned away has the lock for an
// instant, which is no reason to end the communicator.
func (p *progress) busy() bool {
	for range 10 {
		if p.turn.TryLock() {
			defer p.turn.Unlock()
			return p.outside.Load() > 0
		}
		time.Sleep(100 * time.Microsecond)
	}
	return true
}

func errClosed() error { return fmt.Errorf("collectives: %w", framework.ErrClosed) }
