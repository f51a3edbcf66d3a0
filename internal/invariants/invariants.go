// Package invariants has checks that cost too much for a release. They compile to
// nothing unless the build tag invariants or the race detector is on.
package invariants

import "fmt"

// Check panics unless ok, in builds with checks. Arguments are evaluated in any
// case: guard what is expensive with Enabled.
func Check(ok bool, format string, args ...any) {
	if Enabled && !ok {
		panic("invariant: " + fmt.Sprintf(format, args...))
	}
}
