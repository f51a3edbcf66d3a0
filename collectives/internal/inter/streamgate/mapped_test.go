package streamgate

import "testing"

// sometimes is a device of a kind that may lack the wait.
type sometimes struct {
	prompt
	waits bool
}

func (s sometimes) Waits() bool { return s.waits }

// A device counts as one whose streams wait by what it says, where it says something, and not by having the function alone.
func TestDeviceThatMayNotWait(t *testing.T) {
	for _, waits := range []bool{true, false} {
		if d, ok := Of(sometimes{waits: waits}); ok != waits || (d != nil) != waits {
			t.Errorf("waits %v: %v, %v", waits, d, ok)
		}
	}
	if _, ok := Of(prompt{}); !ok {
		t.Error("a device that says nothing has the function, and does not count")
	}
}
