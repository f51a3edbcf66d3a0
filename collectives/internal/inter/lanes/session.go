package lanes

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lifetime"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework"
)

// Session has a rank perform one collective at a time over lanes, in whatever engine. The first call that needs
// these parts sets them up, so that a program without collectives does not pay for them.
type Session struct {
	*Lanes
	open func(ctx context.Context) (joined bool, err error)

	mu     sync.Mutex
	calls  uint64 // collectives so far
	failed error  // of the set-up
	ready  bool
}

// NewSession begins one. open makes, together with the other ranks, what all calls need; it says whether the ranks
// were joined by then: else all of them know that nothing joins them, and may go on with less.
func NewSession(l *Lanes, open func(ctx context.Context) (joined bool, err error)) *Session {
	return &Session{Lanes: l, open: open}
}

// Do runs f while no other call is under way.
func (s *Session) Do(f func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return f()
}

// Collective performs one call of all ranks.
func (s *Session) Collective(c *engine.Call, algorithm string, f func(ctx context.Context) error) error {
	return s.Do(func() error {
		s.Lanes.Call = s.Signature(c, algorithm)
		s.calls++
		return s.Run(f)
	})
}

// Messages performs a group of messages.
func (s *Session) Messages(f func(ctx context.Context) error) error {
	return s.Do(func() error {
		s.Lanes.Call = OfMessages()
		return s.Run(f)
	})
}

// Signature is what pieces of the next call say that it is.
func (s *Session) Signature(c *engine.Call, algorithm string) kernelargs.Signature {
	return kernelargs.Signature{
		Sequence: s.calls + 1, Count: c.Count, Collective: uint32(c.Collective), Algorithm: kernelargs.NameID(algorithm),
		Type: uint32(c.Type), Op: uint32(c.Announced()), Root: uint32(c.Root),
	}
}

// Calls is how many collectives have begun.
func (s *Session) Calls() uint64 { return s.calls }

// Counted counts a collective that begins.
func (s *Session) Counted() { s.calls++ }

// Run makes the channels before the first call; within Do.
func (s *Session) Run(f func(ctx context.Context) error) error {
	if err := s.SetUp(); err != nil {
		return err
	}
	// A wait ends with the communicator, like that of a kernel.
	return lifetime.Settle(s.Comm, f(context.Background()))
}

// Ready reports whether everything is set up, or why it cannot be; within Do.
func (s *Session) Ready() (bool, error) { return s.ready, s.failed }

// SetUp makes what all calls need, once; within Do. Collective.
func (s *Session) SetUp() error {
	if s.failed != nil || s.ready {
		return s.failed
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.patience())
	defer cancel()
	joined, err := s.open(ctx)
	if err == nil {
		s.ready = true
		return nil
	}
	s.failed = fmt.Errorf("channels for collectives: %w", err)
	if joined {
		s.Comm.Abort(s.failed) // others may be in a part that this rank never comes to
	}
	return s.failed
}

// patience bounds SetUp. All ranks of this host make their lanes at once, on the processors that it has.
func (s *Session) patience() time.Duration {
	here, lanes := 0, 0
	for r := range s.Comm.Size() {
		if s.Comm.HostOf(r) == s.Comm.HostOf(s.Comm.Rank()) {
			here++
		}
		if s.First == nil || s.First(r) {
			lanes++
		}
	}
	return patience(s.Comm.Size(), here, lanes, runtime.NumCPU())
}

// laneTime is what a lane takes of a processor, at most, and mostLaneTime what all lanes may take.
const (
	laneTime     = 50 * time.Millisecond
	mostLaneTime = 10 * time.Minute
)

// patience is for so many ranks in all and here, each with so many lanes.
func patience(ranks, here, lanes, processors int) time.Duration {
	return engine.PreparePatience*time.Duration(1+ranks/64) + min(mostLaneTime, time.Duration(here*lanes/processors)*laneTime)
}

// End refuses calls from now on; within Do.
func (s *Session) End() { s.failed = fmt.Errorf("collectives: %w", framework.ErrClosed) }
