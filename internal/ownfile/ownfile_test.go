package ownfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const another = 12345 // a user

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may give files away")
	}
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(
		os.Mkdir(path("sub"), 0o755),
		os.WriteFile(path("sub/target"), nil, 0o600),
		os.Symlink("sub/target", path("relative")),
		os.Symlink(path("sub/target"), path("absolute")),
		os.Symlink("../relative", path("sub/twice")),
		os.Symlink("nowhere", path("dangling")),
		os.Symlink("loop", path("loop")),
	); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sub/target", "relative", "absolute", "sub/twice"} {
		f, err := Open(path(name), os.O_WRONLY|os.O_TRUNC, 0)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		_, err = f.WriteString(name)
		f.Close()
		if got, _ := os.ReadFile(path("sub/target")); err != nil || string(got) != name {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	f, err := Open(path("dangling"), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if info, err := os.Stat(path("nowhere")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("a link to a new file: %v, %v", info, err)
	}
	for name, want := range map[string]string{"loop": "too many levels", "sub/none": "no such file", "none/x": "no such file"} {
		if _, err := Open(path(name), os.O_WRONLY, 0); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path(name)) {
			t.Errorf("%s: %v, expected %q", name, err, want)
		}
	}
	if _, err := Open(path("none/x"), os.O_WRONLY, 0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v: expected that it does not exist", err)
	}
}

func TestOpenAnothersLink(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	mine, link, chain := filepath.Join(dir, "mine"), filepath.Join(dir, "link"), filepath.Join(dir, "chain")
	if err := errors.Join(os.WriteFile(mine, []byte("mine"), 0o600), os.Symlink(mine, link), os.Symlink(link, chain), os.Lchown(link, another, another)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, chain} {
		_, err := Open(path, os.O_WRONLY|os.O_TRUNC|os.O_CREATE, 0o600)
		if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "link of user 12345") {
			t.Errorf("%s: %v, expected that it is another user's", path, err)
		}
	}
	if got, _ := os.ReadFile(mine); string(got) != "mine" {
		t.Errorf("the file is now %q", got)
	}
}

func TestCache(t *testing.T) {
	base := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", base)
	dir, err := Cache("a", "b")
	if err != nil || dir != filepath.Join(base, "mscclpp-go", "a", "b") {
		t.Fatal(dir, err)
	}
	if again, err := Cache("a", "b"); err != nil || again != dir {
		t.Error(again, err)
	}
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	t.Setenv("TMPDIR", base)
	dir, err = Cache("a")
	if err != nil || !strings.HasPrefix(dir, base+"/mscclpp-go-") {
		t.Error(dir, err)
	}
}

func TestFolderOfAnother(t *testing.T) {
	for name, c := range map[string]struct {
		root   bool
		before func(dir string) error
	}{
		"everybody's": {false, func(dir string) error { return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o777)) }},
		"link":        {false, func(dir string) error { return errors.Join(os.Mkdir(dir+"2", 0o700), os.Symlink(dir+"2", dir)) }},
		"file":        {false, func(dir string) error { return os.WriteFile(dir, nil, 0o600) }},
		"another's":   {true, func(dir string) error { return errors.Join(os.Mkdir(dir, 0o755), os.Chown(dir, another, -1)) }},
		"group's": {true, func(dir string) error {
			return errors.Join(os.Mkdir(dir, 0o755), os.Chown(dir, -1, 4321), os.Chmod(dir, 0o775))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.root {
				needRoot(t)
			}
			base := t.TempDir()
			t.Setenv("XDG_CACHE_HOME", base)
			dir := filepath.Join(base, "mscclpp-go")
			if err := c.before(dir); err != nil {
				t.Fatal(err)
			}
			if got, err := Cache("x"); err == nil || !strings.Contains(err.Error(), dir) {
				t.Errorf("got %s, %v: expected an error that names %s", got, err, dir)
			}
			if err := Folder(dir); err == nil {
				t.Error("Folder: no error")
			}
		})
	}
}

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	second := make(chan func())
	go func() {
		unlock, err := Lock(path)
		if err != nil {
			t.Error(err)
		}
		second <- unlock
	}()
	unlock()
	(<-second)()
}
