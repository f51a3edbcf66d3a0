package invariants

import "sync/atomic"

// CloseChecker finds a second Close and use after Close. Its zero value is open.
type CloseChecker struct{ closed atomic.Bool }

// Close panics, in builds with checks, when it is called twice.
func (c *CloseChecker) Close() {
	if Enabled && c.closed.Swap(true) {
		panic("invariant: closed twice")
	}
}

// Open panics, in builds with checks, after Close.
func (c *CloseChecker) Open() {
	if Enabled && c.closed.Load() {
		panic("invariant: used after Close")
	}
}
