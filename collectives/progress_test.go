package collectives

import (
	"sync"
	"testing"
)

// Calls are performed one at a time, none after Close has had its turn, and Close knows whether one is in progress:
// whichever of the two comes first.
func TestProgress(t *testing.T) {
	for range 200 {
		var p progress
		var calls sync.WaitGroup
		inCall, closed := 0, false // without a lock: for the race detector as well
		for caller := range 4 {
			calls.Go(func() {
				for p.enter() {
					if closed {
						t.Error("a call after Close has had its turn")
					}
					inCall++
					if inCall != 1 {
						t.Errorf("%d calls at a time", inCall)
					}
					inCall--
					if caller > 0 {
						p.leave()
						continue
					}
					_ = p.leaveFor(rest(func() error {
						if !p.busy() {
							t.Error("a call of the program is in progress, and Close would not know")
						}
						return nil
					}))
				}
			})
		}
		p.close()
		p.turn.Lock()
		closed = true
		p.turn.Unlock()
		calls.Wait()
		if p.busy() {
			t.Fatal("no call is in progress")
		}
	}
}

// A call that holds its turn when Close begins is in progress, and so is one that the program performs.
func TestProgressIsBusy(t *testing.T) {
	for _, own := range []bool{false, true} {
		var p progress
		begun, end, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
		wait := func() error {
			close(begun)
			<-end
			return nil
		}
		go func() {
			defer close(ended)
			p.enter()
			if own {
				_ = p.leaveFor(rest(wait))
				return
			}
			_ = wait()
			p.leave()
		}()
		<-begun
		if !p.close() {
			t.Errorf("own %v: no call is in progress, expected one", own)
		}
		if p.close() {
			t.Errorf("own %v: the call is to be interrupted twice", own)
		}
		if !own && p.turn.TryLock() {
			t.Error("the call has lost its turn")
		}
		close(end)
		<-ended
		if p.enter() {
			t.Error("a call was let in behind Close")
		}
	}
}

// rest is a function that a call performs after its turn.
type rest func() error

func (f rest) perform() error { return f() }
