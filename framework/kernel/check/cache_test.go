package check

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Programs are not executed from a cache that other users can write to.
func TestCacheOfOthers(t *testing.T) {
	base := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", base)
	path, unlock, err := cached("x.cc", "sources", nil)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
	if err := os.Chmod(filepath.Join(base, "mscclpp-go"), 0o777); err != nil {
		t.Fatal(err)
	}
	if _, _, err := cached("x.cc", "sources", nil); err == nil || !strings.Contains(err.Error(), "mscclpp-go") {
		t.Errorf("%s: %v: expected that others can write there", path, err)
	}
}
