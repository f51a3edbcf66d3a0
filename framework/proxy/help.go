package proxy

import (
	"errors"
	"time"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/ring"
)

// A proxy in the process of the producers is a third party: each message wakes it, or it polls on a
// core that they, or the peer, could use. So they may do its work, between two statements of their
// own. Its thread then sleeps, and looks from time to time whether a thread still does.

const (
	// watch is how long the thread sleeps while others do its work, and longWatch how
	// long once they have done so for a while. An event that no call waits for, such as the failure of a put,
	// is seen as late as that. After each such sleep of more than 10 ms the runtime's monitor looks
	// every 20 µs, for a while, what else there is to take from sleepers.
	watch, longWatch = 5 * time.Millisecond, 640 * time.Millisecond

	// share is how many triggers a waiting thread performs before it looks at what it waits for.
	share = 8

	// offer is how long the thread leaves the turn to a waiting thread: no such thread sleeps for
	// longer between two looks.
	offer = time.Millisecond
)

// Help performs what was pushed, and completes what is done, on the caller's thread,
// unless the proxy's own thread is doing so. A caller that waits, and will be back soon
// (waits), gets the turn from the thread in the middle of its work. A caller that has
// pushed does not, but if it gets the turn it performs everything that is in the ring.
// The handler must not wait: it returns Later, and the thread takes over. Help may be
// called concurrently, and after the end. It reports whether it has left triggers in
// the ring.
//
// The cost of interlocked instructions is a good part of the cost of a message, so Help
// uses few.
func (s *Service) Help(waits bool) (left bool) {
	if !s.turn.TryLock() {
		if waits && !s.wanted.Load() {
			s.wanted.Store(true)
		}
		return false
	}
	pos, took, done := uint64(0), false, 0
	defer func() {
		if p := recover(); p != nil {
			s.fail(panicked(pos, p))
		}
		if left || !waits && done > 1 && s.owes() { // to others, which may not be back
			s.look()
		}
		if took {
			s.helped.Add(1)
		}
		s.lent = false
		s.turn.Unlock()
	}()
	if s.over || s.failed != nil || s.stop.Load() != run {
		return false
	}
	took = true
	if s.left.Load() {
		s.left.Store(false)
	}
	s.woken, s.lent = true, true
	most := s.ring.Slots() // others may push for ever
	if waits {
		most = share
	}
	for n := 0; ; n++ {
		var t kernel.Trigger
		var ok bool
		if t, pos, ok = s.ring.Poll(); !ok {
			break
		}
		if left = n == most; left {
			break
		}
		r := s.handler(t, pos)
		if left = r.later; left {
			break
		}
		if r.err != nil {
			s.fail(rejected(t, pos, r.err))
			return false
		}
		s.ring.Pop()
		done++
		if r.end {
			s.fail(errEnd)
			return false
		}
	}
	if waits && s.o.Progress != nil {
		if _, err := s.o.Progress(); err != nil {
			s.fail(err)
		}
	}
	return left
}

// Return gives back a turn that was borrowed, and says what happened to the trigger:
// whether it was performed, with what error, and what recover returned. An error or a
// panic ends the proxy. It reports whether the trigger needs no push.
func (s *Service) Return(t kernel.Trigger, taken bool, err error, panic any) bool {
	switch {
	case panic != nil:
		s.fail(panicked(s.ring.Tail(), panic))
		taken = true
	case err != nil:
		s.fail(rejected(t, s.ring.Tail(), err))
		taken = true
	}
	if taken {
		s.Took()
	} else {
		s.turn.Unlock()
	}
	return taken
}

// Took is Return of a trigger that was performed without an error.
func (s *Service) Took() {
	n := s.helped.Add(1)
	s.turn.Unlock()
	if n%32 == 0 {
		s.crowd.Share(time.Now()) // as polls do: a thread that only pushes never rests
	}
}

// errEnd is a handler's End.
var errEnd = errors.New("end")

// fail leaves an error to the thread, which ends.
func (s *Service) fail(err error) {
	s.failed = err
	s.look()
}

// look has the thread take the turn.
func (s *Service) look() {
	s.left.Store(true)
	s.ring.Wake()
}

// owes reports whether a thread may wait for what Progress completes.
func (s *Service) owes() bool { return s.o.Owes != nil && s.o.Owes() }

// spare reports whether others have done the thread's work since it has last looked, or want to. It
// returns when they do not any more, or have left something to it.
func (s *Service) spare() bool {
	wanted := s.wanted.Load() && s.wanted.Swap(false)
	if !wanted && s.helped.Load() == s.seen || s.stop.Load() != run {
		return false
	}
	s.turn.Unlock()
	s.rejoin()
	return true
}

// rejoin waits until nobody does the thread's work any more, and takes the turn.
func (s *Service) rejoin() {
	for d := watch; s.stop.Load() == run; d = min(2*d, longWatch) {
		s.seen = s.helped.Load()
		start := time.Now()
		owing := false
		woken := s.ring.ParkFor(func(there bool) time.Duration {
			owing = s.owes()
			switch {
			case s.left.Load() || s.stop.Load() != run || there && !s.taken():
				return 0
			case owing || there: // the thread that has the turn may never see it: nothing else brings this one back to it
				return watch
			}
			return d
		})
		if woken || s.left.Load() {
			break
		}
		if owing && s.complete() {
			return
		}
		early := time.Since(start) < offer // there is a trigger, which another thread performs, or has left
		for n := 0; early && n < 16; n++ {
			ring.Yield()
		}
		if s.helped.Load() == s.seen && s.turn.TryLock() {
			return
		}
		if early {
			ring.Doze(offer)
		}
	}
	s.take()
}

// complete does for others the work that mere producers do not. It reports whether it has failed,
// and then the thread has the turn.
func (s *Service) complete() (failed bool) {
	if !s.turn.TryLock() {
		return false
	}
	if s.failed == nil {
		if _, err := s.o.Progress(); err != nil {
			s.failed = err
		}
	}
	if s.failed != nil {
		return true
	}
	s.turn.Unlock()
	return false
}

// taken reports whether a thread has the turn.
func (s *Service) taken() bool {
	if s.turn.TryLock() {
		s.turn.Unlock()
		return false
	}
	return true
}

// cede gives the turn, in the middle of work, to a waiting thread, which will do the rest of it.
func (s *Service) cede() {
	s.wanted.Store(false)
	s.seen = s.helped.Load()
	s.turn.Unlock()
	ring.Doze(offer)
	if s.helped.Load() != s.seen || !s.turn.TryLock() {
		s.rejoin()
	}
}

// take waits for the turn. Its owner mostly gives it back soon: a sleep would cost a
// goroutine with a thread of its own two changes of threads.
func (s *Service) take() {
	for range 16 {
		if s.turn.TryLock() {
			return
		}
		ring.Yield()
	}
	s.turn.Lock()
}
