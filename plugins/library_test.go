package plugins

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

func TestOpenLibraryCopies(t *testing.T) {
	path := filepath.Join(t.TempDir(), "libx.so")
	if err := os.WriteFile(path, []byte("contents"), 0o644); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte("contents"))
	for _, want := range []string{"", hex.EncodeToString(sum[:]), strings.ToUpper(hex.EncodeToString(sum[:]))} {
		f, err := OpenLibrary(path, want)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := os.WriteFile(path, []byte("contents"), 0o644); err != nil { // the same inode
			t.Fatal(err)
		}
		if got, err := io.ReadAll(f); err != nil || string(got) != "contents" {
			t.Errorf("%q, %v", got, err)
		}
		if w, err := os.OpenFile(descriptorPath(f), os.O_RDWR, 0); err == nil { // root may
			if _, err := w.Write([]byte("other")); err == nil {
				t.Error("the copy can be changed")
			}
			w.Close()
		}
	}
}

func TestOpenLibraryRefuses(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, []byte("x"), 0o600), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := write("good.so", 0o644)
	open := filepath.Join(dir, "open")
	if err := errors.Join(os.Mkdir(open, 0o700), os.WriteFile(filepath.Join(open, "x.so"), []byte("x"), 0o644), os.Chmod(open, 0o777)); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link.so")
	if err := os.Symlink(filepath.Join(open, "x.so"), link); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		path, sum string
		class     error
		want      string
	}{
		"a relative path":                    {"x.so", "", framework.ErrInvalid, "expected an absolute path"},
		"nothing":                            {filepath.Join(dir, "none.so"), "", framework.ErrUnavailable, "no such file"},
		"a folder":                           {dir, "", framework.ErrInvalid, "is a folder"},
		"the root":                           {"/", "", framework.ErrInvalid, "is a folder"},
		"a file that all may write":          {write("wide.so", 0o666), "", framework.ErrInvalid, "every user may write"},
		"a folder that all may write":        {filepath.Join(open, "x.so"), "", framework.ErrInvalid, "every user may write"},
		"a link into such a folder":          {link, "", framework.ErrInvalid, "every user may write"},
		"another checksum":                   {good, strings.Repeat("ab", 32), framework.ErrInvalid, "has sha256"},
		"half a checksum":                    {good, "abcd", framework.ErrInvalid, "64 hexadecimal digits"},
		"such a file with the right sum too": {filepath.Join(open, "x.so"), "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881", framework.ErrInvalid, "every user may write"},
	} {
		f, err := OpenLibrary(c.path, c.sum)
		if err == nil {
			f.Close()
		}
		if !errors.Is(err, c.class) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.path) {
			t.Errorf("%s: %v: expected %v, %q and the path", name, err, c.class, c.want)
		}
	}
}

// A program that has more rights than the user who starts it loads nothing that the user names.
func TestOpenLibraryInARaisedProcess(t *testing.T) {
	if raised() {
		t.Fatal("the test program has more rights than its user")
	}
	before := raised
	raised = func() bool { return true }
	defer func() { raised = before }()
	path := filepath.Join(t.TempDir(), "libx.so")
	if err := os.WriteFile(path, []byte("contents"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenLibrary(path, ""); !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), "more rights than its user") {
		t.Errorf("%v: expected a refusal", err)
	}
}
