package launch

import (
	"os"
	"path/filepath"
	"slices"
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

// A script in Python is run by python3, unless it is a program itself.
func TestCommandOfScripts(t *testing.T) {
	dir, empty := t.TempDir(), t.TempDir()
	python := filepath.Join(dir, "python3")
	for name, mode := range map[string]os.FileMode{"python3": 0o700, "plain.py": 0o600, "program.py": 0o700, "plain": 0o600} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "folder.py"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		program, dir, search, want string
		args                       []string
		code                       int
	}{
		{"plain.py", dir, dir, python, []string{"python3", "-u", "plain.py", "x"}, 0},
		{filepath.Join(dir, "plain.py"), "", dir, python, []string{"python3", "-u", filepath.Join(dir, "plain.py"), "x"}, 0},
		{"./program.py", dir, dir, "./program.py", []string{"./program.py", "x"}, 0},
		{"plain.py", dir, empty, "", []string{"plain.py", "x"}, 127},
		{"missing.py", dir, dir, "", []string{"missing.py", "x"}, 127},
		{"./folder.py", dir, dir, "", []string{"./folder.py", "x"}, 126},
		{"./plain", dir, dir, "", []string{"./plain", "x"}, 126},
	} {
		path, args, err := Command(c.program, []string{c.program, "x"}, c.dir, []string{"PATH=" + c.search})
		if path != c.want || !slices.Equal(args, c.args) || (err == nil) != (c.code == 0) || err != nil && StartCode(err) != c.code {
			t.Errorf("%s in %q: %q, %q, %v; expected %q, %q, code %d", c.program, c.dir, path, args, err, c.want, c.args, c.code)
		}
	}
	env := []string{"PYTHON_EXEC=" + python, "PATH=" + empty}
	if path, args, err := Command("plain.py", []string{"plain.py", "x"}, dir, env); err != nil || path != python || !slices.Equal(args, []string{python, "-u", "plain.py", "x"}) {
		t.Errorf("PYTHON_EXEC: %q, %q, %v", path, args, err)
	}
}
