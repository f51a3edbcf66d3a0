package plugins

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/internal/socketdir"
)

// withoutServe has all plugins of a test taken for ones that do not call Serve.
func withoutServe(t *testing.T) {
	before := callsServe
	callsServe = func(io.ReaderAt) bool { return false }
	t.Cleanup(func() { callsServe = before })
}

// In a runtime folder with the longest path that is taken, a plugin starts, however
// many digits go-plugin's random names have.
func TestLongestSocketPath(t *testing.T) {
	base, err := os.MkdirTemp("/tmp", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	longest := base + "/" + strings.Repeat("x", socketdir.MaxBase-len(base)-1)
	if err := os.Mkdir(longest, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", longest)
	if got := socketdir.Base(); got != longest {
		t.Fatalf("sockets are made in %s, expected %s", got, longest)
	}
	d, err := socketdir.Make()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Remove()
	const room = len("/plugin4294967295")
	if n := len(d.Path) + room; n > 107 {
		t.Errorf("the path of a socket may have %d bytes, expected at most 107", n)
	}
	t.Setenv("XDG_RUNTIME_DIR", longest+"x")
	if err := os.Mkdir(longest+"x", 0o700); err != nil {
		t.Fatal(err)
	}
	if got := socketdir.Base(); got == longest+"x" {
		t.Errorf("sockets are made in a folder of %d bytes", len(got))
	}
	t.Setenv("XDG_RUNTIME_DIR", longest)
	withoutServe(t)
	for range 3 {
		c, err := Open(t.Context(), self(t, "listens"))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Shutdown(); err != nil {
			t.Error(err)
		}
	}
}
