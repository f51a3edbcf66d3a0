package ownkernel

import "sync/atomic"

// Launching keeps whether an owner of kernels is launching one, for its Close. Close waits for the lock of the call, and the call may wait
// for peers: one of the two ends the communicator.
type Launching struct{ running, closing atomic.Bool }

// Begin reports whether a launch may run: Close may have come since the call took the lock.
func (l *Launching) Begin() bool {
	l.running.Store(true)
	if l.closing.Load() {
		l.End()
		return false
	}
	return true
}

// End is behind a launch.
func (l *Launching) End() { l.running.Store(false) }

// Close reports whether a launch is running. None begins from here on.
func (l *Launching) Close() bool {
	l.closing.Store(true)
	return l.running.Load()
}
