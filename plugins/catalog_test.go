package plugins

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

// folder makes a folder with files of given modes.
func folder(t *testing.T, files map[string]os.FileMode) string {
	t.Helper()
	dir := t.TempDir()
	for name, mode := range files {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/true\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil { // under any umask
			t.Fatal(err)
		}
	}
	return dir
}

func TestCatalogFind(t *testing.T) {
	first := folder(t, map[string]os.FileMode{FilePrefix + "acme": 0o755, FilePrefix + "shm": 0o644})
	second := folder(t, map[string]os.FileMode{FilePrefix + "acme": 0o755, FilePrefix + "shm": 0o755})
	builtIn := folder(t, map[string]os.FileMode{FilePrefix + "shm": 0o755, FilePrefix + "tcp": 0o755, FilePrefix + "open": 0o757, FilePrefix + "tcp90": 0o755})
	named := filepath.Join(folder(t, map[string]os.FileMode{"anything": 0o757}), "anything")
	c := Catalog{
		Paths: map[string]Pinned{"ib-host": {Path: named, SHA256: "abc"}, "gone": {Path: "/nowhere"}, "tcp90": {Path: "/nowhere/tcp", SHA256: "abc"}},
		Dirs:  []string{first, second}, BuiltIn: builtIn,
	}
	for name, want := range map[string]string{
		"acme":    filepath.Join(first, FilePrefix+"acme"),
		"shm":     filepath.Join(second, FilePrefix+"shm"), // the first may not be executed
		"tcp":     filepath.Join(builtIn, FilePrefix+"tcp"),
		"ib-host": named, // a configuration that names a file answers for it
	} {
		path, sum, err := c.Find(name)
		if err != nil || path != want || (sum == "abc") != (name == "ib-host") {
			t.Errorf("%s: got %s %s %v, expected %s", name, path, sum, err, want)
		}
	}
	for name, want := range map[string]struct {
		class error
		text  string
	}{
		"gone":   {framework.ErrUnavailable, "/nowhere"},
		"tcp90":  {framework.ErrUnavailable, "/nowhere/tcp: open /nowhere: no such file"}, // and not the built-in one, unchecked
		"open":   {framework.ErrUnavailable, "every user may write to"},
		"acmee":  {framework.ErrInvalid, `did you mean "acme"?`},
		"xgmi90": {framework.ErrInvalid, "expected a file mscclpp-transport-xgmi90 in " + first},
	} {
		_, _, err := c.Find(name)
		if framework.Class(err) != want.class || !strings.Contains(err.Error(), want.text) {
			t.Errorf("%s: got %v, expected %v with %q", name, err, want.class, want.text)
		}
	}
	if _, _, err := (Catalog{Dirs: []string{first}, BuiltIn: first}).Find("xgmi90"); strings.Count(fmt.Sprint(err), first) != 1 {
		t.Errorf("the built-in folder that is configured as well: got %v, expected it once", err)
	}
	if _, _, err := (Catalog{}).Find("shm"); !errors.Is(err, framework.ErrUnavailable) || !strings.Contains(err.Error(), "MSCCLPP_PLUGINS__DIRS") {
		t.Errorf("empty catalog: got %v", err)
	}
}

func TestCatalogList(t *testing.T) {
	dir := folder(t, map[string]os.FileMode{
		FilePrefix + "a": 0o755, FilePrefix + "b": 0o644, FilePrefix: 0o755, FilePrefix + "a.kernels": 0o755,
		"README": 0o644, "mscclpp-run": 0o755,
	})
	if err := os.Mkdir(filepath.Join(dir, FilePrefix+"dir"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/nowhere", filepath.Join(dir, FilePrefix+"dangling")); err != nil {
		t.Fatal(err)
	}
	second := folder(t, map[string]os.FileMode{FilePrefix + "a": 0o755})
	shared := folder(t, map[string]os.FileMode{FilePrefix + "c": 0o755})
	if err := os.Chmod(shared, 0o777); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, e := range (Catalog{Dirs: []string{dir, second, shared, "/nowhere/plugins"}, BuiltIn: "/nowhere/builtin"}).List() {
		why := "used"
		if e.Rejected != nil {
			why = e.Rejected.Error()
		}
		got[e.Path] = why
	}
	want := map[string]string{
		filepath.Join(dir, FilePrefix+"a"):        "used",
		filepath.Join(dir, FilePrefix+"b"):        "expected permission to execute",
		filepath.Join(dir, FilePrefix+"dangling"): "no such file",
		filepath.Join(second, FilePrefix+"a"):     "comes first",
		filepath.Join(shared, FilePrefix+"c"):     "every user may write to",
		"/nowhere/plugins":                        "no such file",
	}
	for path, why := range want {
		if !strings.Contains(got[path], why) || got[path] == "" {
			t.Errorf("%s: got %q, expected %q", path, got[path], why)
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %v, expected %v", got, want)
	}
}

// A user who names the built-in folder, or a file in it, gets no warning that it hides itself.
func TestCatalogListsAFileOnce(t *testing.T) {
	dir := folder(t, map[string]os.FileMode{FilePrefix + "a": 0o755, FilePrefix + "b": 0o644})
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	a, b := filepath.Join(dir, FilePrefix+"a"), filepath.Join(dir, FilePrefix+"b")
	for name, c := range map[string]struct {
		catalog Catalog
		sources []string // of a and b
	}{
		"built-in":       {Catalog{Dirs: []string{dir}, BuiltIn: dir}, []string{dir, dir}},
		"twice":          {Catalog{Dirs: []string{dir + "/", dir}}, []string{dir + "/", dir + "/"}},
		"through a link": {Catalog{Dirs: []string{dir, link}, BuiltIn: link}, []string{dir, dir}},
		"a file":         {Catalog{Paths: map[string]Pinned{"a": {Path: a}}, Dirs: []string{dir}}, []string{"path", dir}},
	} {
		got := c.catalog.List()
		if len(got) != 2 || got[0].Path != a || got[0].Rejected != nil || got[1].Path != b || got[1].Rejected == nil ||
			got[0].Source != c.sources[0] || got[1].Source != c.sources[1] {
			t.Errorf("%s: %+v: expected a, which is used, and b, from %v", name, got, c.sources)
		}
	}
}

func TestForeignFile(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may give files away")
	}
	dir := folder(t, map[string]os.FileMode{FilePrefix + "a": 0o755})
	if err := os.Chown(filepath.Join(dir, FilePrefix+"a"), 12345, -1); err != nil {
		t.Fatal(err)
	}
	c := Catalog{Dirs: []string{dir}}
	if _, _, err := c.Find("a"); !errors.Is(err, framework.ErrUnavailable) || !strings.Contains(err.Error(), "belongs to user 12345") {
		t.Errorf("got %v, expected ErrUnavailable that names the owner", err)
	}
}

// TestBuiltInDir: a folder beside the program counts if it has plugins; a user's own of the
// same name does not hide ours. If none counts, the message says where they were sought.
func TestBuiltInDir(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	beside := filepath.Join(filepath.Dir(program), "plugins")
	if err := os.Mkdir(beside, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(beside)
	for _, name := range []string{"vim.lua", FilePrefix + "shm.kernels"} {
		if err := os.WriteFile(filepath.Join(beside, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(beside, FilePrefix+"folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	ours := folder(t, map[string]os.FileMode{FilePrefix + "shm": 0o755})
	t.Setenv(EnvBuiltIn, ours)
	if got := BuiltInDir(); got != ours {
		t.Errorf("got %q, expected %s: the one beside the program has no plugins", got, ours)
	}
	t.Setenv(EnvBuiltIn, "/nowhere/plugins")
	if got := BuiltInDir(); got != "" {
		t.Errorf("got %s, expected none", got)
	}
	_, _, err = Catalog{BuiltIn: BuiltInDir()}.Find("shm")
	for _, want := range []string{beside, "/nowhere/plugins", "lib/mscclpp/plugins", "MSCCLPP_PLUGINS__DIRS"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, expected it to name %s", err, want)
		}
	}
	if err := os.WriteFile(filepath.Join(beside, FilePrefix+"tcp"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := BuiltInDir(); filepath.Base(got) != "plugins" || filepath.Dir(got) != filepath.Dir(beside) {
		t.Errorf("got %s, expected %s", got, beside)
	}
}
