package image

import (
	"bytes"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

func personality(t *testing.T, text []byte) uint64 {
	t.Helper()
	p, err := strconv.ParseUint(strings.TrimSpace(string(text)), 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A compiler has its memory where it had it before, and nobody else is changed.
func TestCompilersStartAtFixedAddresses(t *testing.T) {
	if err := exec.Command("setarch", "-R", "true").Run(); err != nil {
		t.Skipf("needs a system that lets programs fix their addresses: %v", err)
	}
	var out bytes.Buffer
	cmd := exec.Command("cat", "/proc/self/personality")
	cmd.Stdout = &out
	if err := start(cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if p := personality(t, out.Bytes()); p&addrNoRandomize == 0 {
		t.Errorf("a compiler has personality %#x, expected %#x in it", p, addrNoRandomize)
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		text, err := os.ReadFile("/proc/self/task/" + thread.Name() + "/personality")
		if err != nil {
			continue // it has ended
		}
		if p := personality(t, text); p&addrNoRandomize != 0 {
			t.Errorf("a thread of this program has personality %#x", p)
		}
	}
}
