package plugins

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
)

// TestFoldersOfOthers: a plugin is not taken from a folder into which, or in whose place,
// another user may put one.
func TestFoldersOfOthers(t *testing.T) {
	root := os.Geteuid() == 0
	chmod := func(mode os.FileMode) func(string) error {
		return func(path string) error { return os.Chmod(path, mode) }
	}
	chown := func(user, group int) func(string) error {
		return func(path string) error { return os.Chown(path, user, group) }
	}
	both := func(a, b func(string) error) func(string) error {
		return func(path string) error { return errors.Join(a(path), b(path)) }
	}
	sticky := os.ModeSticky | 0o777
	for name, c := range map[string]struct {
		where  string // of a/b/mscclpp-transport-x and a/link -> b/mscclpp-transport-x
		change func(string) error
		root   bool
		want   string // "" for no objection
	}{
		"nothing":                     {where: "a/b", change: chmod(0o755)},
		"everybody":                   {where: "a/b", change: chmod(0o777), want: "every user may write to"},
		"everybody, sticky":           {where: "a/b", change: chmod(sticky), want: "every user may write to"},
		"above, everybody":            {where: "a", change: chmod(0o777), want: "every user may write to"},
		"above, everybody, sticky":    {where: "a", change: chmod(sticky)},
		"own group":                   {where: "a/b", change: both(chown(-1, os.Geteuid()), chmod(0o775)), root: true},
		"group":                       {where: "a/b", change: both(chown(-1, 4321), chmod(0o775)), root: true, want: "group 4321 may write to"},
		"above, group, of root":       {where: "a", change: both(chown(-1, 4321), chmod(0o775)), root: true},
		"folder of another":           {where: "a/b", change: chown(12345, -1), root: true, want: "belongs to user 12345"},
		"above, of another":           {where: "a", change: chown(12345, -1), root: true, want: "belongs to user 12345"},
		"above, of another, sticky":   {where: "a", change: both(chown(12345, -1), chmod(sticky)), root: true, want: "belongs to user 12345"},
		"file of another":             {where: "a/b/" + FilePrefix + "x", change: chown(12345, -1), root: true, want: "belongs to user 12345"},
		"file, group":                 {where: "a/b/" + FilePrefix + "x", change: both(chown(-1, 4321), chmod(0o775)), root: true, want: "group 4321 may write to"},
		"file, everybody, at the end": {where: "a/b/" + FilePrefix + "x", change: chmod(0o757), want: "every user may write to"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.root && !root {
				t.Skip("only root may give files away")
			}
			base := t.TempDir()
			dir := filepath.Join(base, "a", "b")
			links := filepath.Join(base, "links")
			if err := errors.Join(os.MkdirAll(dir, 0o755), os.Mkdir(links, 0o755)); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, FilePrefix+"x")
			if err := os.WriteFile(file, []byte("#!/bin/true\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			toFile, toDir := filepath.Join(links, FilePrefix+"x"), filepath.Join(base, "link")
			if err := errors.Join(os.Symlink(file, toFile), os.Symlink(dir, toDir), c.change(filepath.Join(base, c.where))); err != nil {
				t.Fatal(err)
			}
			for how, catalog := range map[string]Catalog{
				"direct": {Dirs: []string{dir}}, "link to the folder": {Dirs: []string{toDir}}, "link to the file": {Dirs: []string{links}}, "built-in": {BuiltIn: dir},
			} {
				_, _, err := catalog.Find("x")
				switch {
				case c.want == "" && err != nil:
					t.Errorf("%s: %v, expected no objection", how, err)
				case c.want != "" && (!errors.Is(err, framework.ErrUnavailable) || !strings.Contains(err.Error(), c.want)):
					t.Errorf("%s: got %v, expected ErrUnavailable with %q", how, err, c.want)
				}
			}
			if _, _, err := (Catalog{Paths: map[string]Pinned{"x": {Path: file}}}).Find("x"); err != nil {
				t.Errorf("named: %v, expected no objection: whoever names a file answers for it", err)
			}
		})
	}
}

// TestFolderThatIsExchanged: what is looked at is what was opened.
func TestFolderThatIsExchanged(t *testing.T) {
	for what, objects := range map[string]bool{"ours": false, "theirs": true} { // the file is in this folder
		t.Run(what, func(t *testing.T) {
			base := t.TempDir()
			dir, other := filepath.Join(base, "dir"), filepath.Join(base, "other")
			file := filepath.Join(dir, FilePrefix+"x")
			if objects {
				file = filepath.Join(other, FilePrefix+"x")
			}
			if err := errors.Join(os.Mkdir(dir, 0o755), os.Mkdir(other, 0o755), os.WriteFile(file, []byte("#!/bin/true\n"), 0o755)); err != nil {
				t.Fatal(err)
			}
			f, objection, err := trustedFolder(dir)
			if err != nil || objection != nil {
				t.Fatal(err, objection)
			}
			defer f.Close()
			if err := errors.Join(os.Rename(dir, dir+"2"), os.Symlink(other, dir)); err != nil {
				t.Fatal(err)
			}
			err = unusable(filepath.Join(dir, FilePrefix+"x"), f)
			if objects && !errors.Is(err, os.ErrNotExist) || !objects && err != nil {
				t.Errorf("got %v, expected what is in the folder that was opened", err)
			}
		})
	}
}

// TestNoexec: a program on a file system from which nothing may be executed has the right
// mode, and the message says what is wrong.
func TestNoexec(t *testing.T) {
	dir := t.TempDir()
	err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOEXEC|unix.MS_NOSUID|unix.MS_NODEV, "size=64k")
	if err == nil {
		t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	} else {
		before := mountedNoexec
		mountedNoexec = func(f *os.File) string {
			return noexecText
		}
		t.Cleanup(func() { mountedNoexec = before })
		t.Logf("mount: %v: a mount option is pretended", err)
	}
	path := filepath.Join(dir, FilePrefix+"x")
	if err := os.WriteFile(path, []byte("#!/bin/true\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, _, found := Catalog{Dirs: []string{dir}}.Find("x")
	_, _, named := Catalog{Paths: map[string]Pinned{"x": {Path: path}}}.Find("x")
	_, opened := Open(t.Context(), Spec{Name: "x", Path: path})
	for what, err := range map[string]error{"found": found, "named": named, "opened": opened} {
		if !errors.Is(err, framework.ErrUnavailable) || !strings.Contains(err.Error(), "mounted noexec") || strings.Contains(err.Error(), "mode 0") {
			t.Errorf("%s: got %v, expected that the mount is noexec", what, err)
		}
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := (Catalog{Dirs: []string{dir}}).Find("x"); err == nil || !strings.Contains(err.Error(), "mode 0644") {
		t.Errorf("got %v, expected the mode", err)
	}
}
