package launch

import (
	"os"
	"path/filepath"
	"testing"
)

func TestLookPath(t *testing.T) {
	dir := t.TempDir()
	good, plain := filepath.Join(dir, "good"), filepath.Join(dir, "plain")
	for path, mode := range map[string]os.FileMode{good: 0o700, plain: 0o600} {
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{"PATH=/nonexistent", "PATH=/nonexistent:" + dir}
	for _, c := range []struct {
		program, dir, want string
		code               int
	}{
		{"good", "", good, 0},
		{good, "", good, 0},
		{"./good", dir, "./good", 0},
		{"plain", "", "", 126},
		{plain, "", "", 126},
		{dir, "", "", 126},
		{"missing", "", "", 127},
		{"./good", "/", "", 127},
	} {
		got, err := LookPath(c.program, c.dir, env)
		if got != c.want || err == nil && c.code != 0 || err != nil && StartCode(err) != c.code {
			t.Errorf("%s in %q: %q, %v; expected %q, code %d", c.program, c.dir, got, err, c.want, c.code)
		}
	}
}
