package invariants

import (
	"strings"
	"testing"
)

// panics returns what f panics with, or "".
func panics(f func()) (text string) {
	defer func() {
		if r := recover(); r != nil {
			text = r.(string)
		}
	}()
	f()
	return ""
}

func TestChecks(t *testing.T) {
	for name, c := range map[string]struct {
		f    func()
		want string
	}{
		"true":       {func() { Check(true, "no") }, ""},
		"false":      {func() { Check(false, "slot %d", 3) }, "slot 3"},
		"open":       {func() { var c CloseChecker; c.Open(); c.Close() }, ""},
		"twice":      {func() { var c CloseChecker; c.Close(); c.Close() }, "closed twice"},
		"use closed": {func() { var c CloseChecker; c.Close(); c.Open() }, "used after Close"},
	} {
		want := c.want
		if !Enabled {
			want = ""
		}
		if got := panics(c.f); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: panic %q, expected %q", name, got, want)
		}
	}
}

func TestChecksAreFreeWhenOff(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() {
		var c CloseChecker
		c.Open()
		c.Close()
	}); n != 0 && !Enabled {
		t.Errorf("%v allocations", n)
	}
}
