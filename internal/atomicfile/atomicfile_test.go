package atomicfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func writes(text string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	}
}

// A write that fails leaves the file as it was, or none, and nothing beside it.
func TestFileThatFails(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "table.yaml")
	full := errors.New("no space left")
	fails := func(w io.Writer) error { return errors.Join(writes("half of")(w), full) }
	if err := File(file, fails); !errors.Is(err, full) {
		t.Errorf("%v, expected the error of the write", err)
	}
	left(t, folder)
	if err := File(file, func(w io.Writer) error {
		entries, err := os.ReadDir(folder)
		if len(entries) != 1 || !strings.HasPrefix(entries[0].Name(), ".table.yaml.") {
			t.Errorf("meanwhile the folder has %v: expected nothing that ends in .yaml, or is shown", entries)
		}
		return errors.Join(err, writes("all")(w))
	}); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("%v, %v: expected a file that everybody may read", info.Mode(), err)
	}
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := File(file, fails); !errors.Is(err, full) || read(t, file) != "all" {
		t.Errorf("%v, and the file has %q, expected what it had before", err, read(t, file))
	}
	left(t, folder, "table.yaml")
	if err := Bytes(file, []byte("anew")); err != nil || read(t, file) != "anew" {
		t.Errorf("%v, and the file has %q", err, read(t, file))
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: expected the mode to stay", info.Mode(), err)
	}
	if err := File(filepath.Join(folder, "none", "x"), writes("all")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
}

// A link, a pipe and the like stay what they are.
func TestFileIntoWhatIsNoFile(t *testing.T) {
	folder := t.TempDir()
	file, link, pipe := filepath.Join(folder, "file"), filepath.Join(folder, "link"), filepath.Join(folder, "pipe")
	if err := errors.Join(os.WriteFile(file, []byte("longer than all"), 0o644), os.Symlink(file, link), syscall.Mkfifo(pipe, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := File(pipe, writes("all")); !errors.Is(err, syscall.ENXIO) {
		t.Errorf("a pipe without a reader: %v", err)
	}
	reader, err := os.OpenFile(pipe, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for name, mode := range map[string]os.FileMode{link: os.ModeSymlink, pipe: os.ModeNamedPipe} {
		if err := File(name, writes("all")); err != nil {
			t.Error(err)
		}
		if info, err := os.Lstat(name); err != nil || info.Mode().Type() != mode {
			t.Errorf("%s: %v, %v: expected it to stay a %v", name, info.Mode(), err, mode)
		}
	}
	if got := read(t, file); got != "all" {
		t.Errorf("behind the link is %q", got)
	}
	if got, err := io.ReadAll(reader); err != nil || string(got) != "all" {
		t.Errorf("the pipe got %q, %v", got, err)
	}
	left(t, folder, "file", "link", "pipe")
}

func left(t *testing.T, folder string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != len(want) {
		t.Fatalf("the folder has %v, expected %v", entries, want)
	}
	for i, e := range entries {
		if e.Name() != want[i] {
			t.Errorf("the folder has %s, expected %s", e.Name(), want[i])
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A link that another user has put in the place of the file is not written through.
func TestFileBehindAnothersLink(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may give files away")
	}
	folder := t.TempDir()
	mine, link := filepath.Join(folder, "mine"), filepath.Join(folder, "table.yaml")
	if err := errors.Join(os.WriteFile(mine, []byte("mine"), 0o600), os.Symlink(mine, link), os.Lchown(link, 12345, 12345)); err != nil {
		t.Fatal(err)
	}
	if err := Bytes(link, []byte("new")); !errors.Is(err, os.ErrPermission) {
		t.Errorf("%v, expected that it is another user's", err)
	}
	if got, err := os.ReadFile(mine); err != nil || string(got) != "mine" {
		t.Errorf("the file is now %q, %v", got, err)
	}
}
