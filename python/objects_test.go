package python

import "testing"

// ends returns the oldest and the newest Python.
func ends(t *testing.T) []interpreter {
	t.Helper()
	last := newest(t, "nothing else", anyPython)
	if first := interpreters()[0]; first.Path != last.Path {
		return []interpreter{first, last}
	}
	return []interpreter{last}
}

// Memory, windows, channels and proxies.
func TestObjects(t *testing.T) {
	for _, p := range ends(t) {
		t.Run(p.name(), func(t *testing.T) { done(t, p, 2, "tests/objects.py") })
	}
}

// Execution plans are read, checked and run.
func TestPlans(t *testing.T) {
	for _, p := range ends(t) {
		t.Run(p.name(), func(t *testing.T) { done(t, p, 2, "tests/plans.py") })
	}
}
