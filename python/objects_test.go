package python

import "testing"

// Memory, windows, channels and proxies.
func TestObjects(t *testing.T) {
	p := newest(t, "nothing else", anyPython)
	done(t, p, 2, "tests/objects.py")
}

// Execution plans are read, checked and run.
func TestPlans(t *testing.T) {
	p := newest(t, "nothing else", anyPython)
	done(t, p, 2, "tests/plans.py")
}
