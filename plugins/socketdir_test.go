package plugins

import (
	"os"
	"strings"
	"testing"
)

// In a runtime folder with the longest path that is taken, a plugin starts, however
// many digits go-plugin's random names have.
func TestLongestSocketPath(t *testing.T) {
	base, err := os.MkdirTemp("/tmp", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	longest := base + "/" + strings.Repeat("x", maxSocketBase-len(base)-1)
	if err := os.Mkdir(longest, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", longest)
	if got := socketBase(); got != longest {
		t.Fatalf("sockets are made in %s, expected %s", got, longest)
	}
	d, err := newSocketDir()
	if err != nil {
		t.Fatal(err)
	}
	defer d.remove()
	const room = len("/plugin-dir4294967295/plugin4294967295")
	if n := len(d.path) + room; n > 107 {
		t.Errorf("the path of a socket may have %d bytes, expected at most 107", n)
	}
	t.Setenv("XDG_RUNTIME_DIR", longest+"x")
	if err := os.Mkdir(longest+"x", 0o700); err != nil {
		t.Fatal(err)
	}
	if got := socketBase(); got == longest+"x" {
		t.Errorf("sockets are made in a folder of %d bytes", len(got))
	}
	t.Setenv("XDG_RUNTIME_DIR", longest)
	for range 3 {
		c, err := Open(t.Context(), self(t, "mirror"))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Shutdown(); err != nil {
			t.Error(err)
		}
	}
}
