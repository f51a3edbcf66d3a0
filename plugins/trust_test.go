package plugins

import (
	"crypto/sha256"
	"encoding/hex"
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

// TestFoldersOfLinks: a folder that holds a link on the path of a plugin counts as well.
func TestFoldersOfLinks(t *testing.T) {
	for name, c := range map[string]struct {
		change func(hop, link string) error
		root   bool
		want   string // "" for no objection
	}{
		"nothing":   {change: func(hop, _ string) error { return os.Chmod(hop, 0o755) }},
		"everybody": {change: func(hop, _ string) error { return os.Chmod(hop, 0o777) }, want: "every user may write to"},
		"sticky":    {change: func(hop, _ string) error { return os.Chmod(hop, os.ModeSticky|0o777) }},
		"sticky, link of another": {root: true, want: "belongs to user 12345", change: func(hop, link string) error {
			return errors.Join(os.Chmod(hop, os.ModeSticky|0o777), os.Lchown(link, 12345, -1))
		}},
		"of another": {root: true, want: "belongs to user 12345", change: func(hop, _ string) error { return os.Chown(hop, 12345, -1) }},
	} {
		t.Run(name, func(t *testing.T) {
			if c.root && os.Geteuid() != 0 {
				t.Skip("only root may give files away")
			}
			base := t.TempDir()
			dir, hop, links := filepath.Join(base, "a", "b"), filepath.Join(base, "hop"), filepath.Join(base, "links")
			file, link := filepath.Join(dir, FilePrefix+"x"), filepath.Join(hop, "link")
			text := []byte("#!/bin/true\n")
			err := errors.Join(os.MkdirAll(dir, 0o755), os.Mkdir(hop, 0o755), os.Mkdir(links, 0o755), os.WriteFile(file, text, 0o755),
				os.Symlink("../a/./b", link), os.Symlink(filepath.Join(link, FilePrefix+"x"), filepath.Join(links, FilePrefix+"x")),
				os.Symlink("hop/link/..", filepath.Join(base, "above")), c.change(hop, link))
			if err != nil {
				t.Fatal(err)
			}
			objected := func(path string, err error) {
				t.Helper()
				switch {
				case c.want == "" && err != nil:
					t.Errorf("%s: %v, expected no objection", path, err)
				case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), hop)):
					t.Errorf("%s: %v, expected %q of %s", path, err, c.want, hop)
				}
			}
			for path, catalog := range map[string]Catalog{
				"link to the folder": {Dirs: []string{link}}, "link to a file behind it": {Dirs: []string{links}}, "built-in": {BuiltIn: link},
				"two links, and up": {Dirs: []string{filepath.Join(base, "above", "b")}},
			} {
				_, _, err := catalog.Find("x")
				objected(path, err)
			}
			sum := sha256.Sum256(text)
			for path, spec := range map[string]Spec{
				"pinned": {SHA256: hex.EncodeToString(sum[:])}, "named": {},
			} {
				spec.Path = filepath.Join(link, FilePrefix+"x")
				p, err := openProgram(spec)
				if err == nil {
					p.close()
				}
				if path == "pinned" { // its kernels are beside it, and no checksum covers them
					objected(path, err)
				} else if err != nil {
					t.Errorf("%s: %v", path, err)
				}
			}
		})
	}
}

// TestLinksWithoutEnd: a link that leads to itself is an error, and not followed for ever.
func TestLinksWithoutEnd(t *testing.T) {
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(link, link); err != nil {
		t.Fatal(err)
	}
	if _, err := follow(link); !errors.Is(err, unix.ELOOP) {
		t.Errorf("%v, expected %v", err, unix.ELOOP)
	}
	if d, err := follow("/"); err != nil || d.path != "/" {
		t.Errorf("/: %+v, %v", d, err)
	} else {
		d.close()
	}
}

// TestPinnedInAFolderOfOthers: no other user may put kernels beside a pinned plugin.
func TestPinnedInAFolderOfOthers(t *testing.T) {
	dir := t.TempDir()
	text := []byte("#!/bin/true\n")
	path, sum := filepath.Join(dir, FilePrefix+"x"), sha256.Sum256(text)
	if err := errors.Join(os.WriteFile(path, text, 0o755), os.Chmod(dir, os.ModeSticky|0o777)); err != nil {
		t.Fatal(err)
	}
	pinned := Pinned{Path: path, SHA256: hex.EncodeToString(sum[:])}
	if _, _, err := (Catalog{Paths: map[string]Pinned{"x": pinned}}).Find("x"); !errors.Is(err, framework.ErrUnavailable) || !strings.Contains(err.Error(), "kernels beside it") {
		t.Errorf("%v, expected ErrUnavailable for the kernels beside it", err)
	}
	_, err := Open(t.Context(), Spec{Name: "x", Path: path, SHA256: pinned.SHA256})
	var start *StartError
	if !errors.As(err, &start) || start.Reason != Checksum || !strings.Contains(err.Error(), "does not cover the kernels beside it") || !strings.Contains(err.Error(), "every user may write to "+dir) {
		t.Errorf("%v, expected a refusal that names the folder", err)
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
