package failure

import (
	"errors"
	"runtime"
	"testing"
	"time"
)

func (f *Set) size() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.groups)
}

// A job makes and closes groups without end: nothing is left of those without news, and news wait for whoever makes the
// group later.
func TestStatesOfGroupsEnd(t *testing.T) {
	const many = 1000
	f := NewSet()
	used, broken, late := f.Group(1), errors.New("broken"), errors.New("late")
	f.Fail(2, broken)
	f.Group(3).Depart(7, broken)
	for key := range uint64(many) {
		f.Group(key + 10).departure(1)
	}
	for end := time.Now().Add(time.Minute); f.size() > 3; runtime.GC() { // cleanups run behind the collection
		if time.Now().After(end) {
			t.Fatalf("states of %d groups are left, expected those of 3", f.size())
		}
	}
	if err := f.Group(2).Cause(); !errors.Is(err, broken) {
		t.Errorf("group 2 has ended with %v, expected %v", err, broken)
	}
	if rank, why := f.Group(3).Departed(); rank != 7 || !errors.Is(why, broken) {
		t.Errorf("rank %d has left group 3: %v", rank, why)
	}
	f.Fail(0, late)
	select {
	case <-used.Done():
	default:
		t.Error("the group in use goes on")
	}
	if err := used.Cause(); !errors.Is(err, late) {
		t.Errorf("the group in use has ended with %v", err)
	}
	for _, key := range []uint64{1, 2, 3, 2000} {
		if f.Group(key).Cause() == nil {
			t.Errorf("group %d goes on without the job", key)
		}
	}
}

// A group fails while the job does, and both are known.
func TestGroupAndJobFailAtOnce(t *testing.T) {
	for range 200 {
		f := NewSet()
		g, begin, done := f.Group(1), make(chan struct{}), make(chan bool, 2)
		for _, end := range []func(){func() { g.Fail(errors.New("group")) }, func() { f.Fail(0, errors.New("job")) }} {
			go func() {
				<-begin
				end()
				done <- true
			}()
		}
		close(begin)
		<-done
		<-done
		if g.Cause() == nil || f.Job.Cause() == nil {
			t.Fatalf("the group has ended with %v, the job with %v", g.Cause(), f.Job.Cause())
		}
	}
}
