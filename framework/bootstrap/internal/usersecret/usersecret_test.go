package usersecret

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func folder(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "own")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Many processes that start at once read the same secret, and leave one file.
func TestFirstOneCounts(t *testing.T) {
	dir := folder(t)
	var all sync.WaitGroup
	got := make([][]byte, 32)
	for i := range got {
		all.Go(func() {
			var err error
			if got[i], err = At(dir, os.Geteuid()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, secret := range got {
		if len(secret) != size || !bytes.Equal(secret, got[0]) || bytes.Equal(secret, make([]byte, size)) {
			t.Fatalf("%x and %x: expected one secret", secret, got[0])
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != name {
		t.Errorf("%v, %v: expected one file", entries, err)
	}
	if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v: expected mode 0600", info.Mode(), err)
	}
}

func TestFoldersThatOthersReachAreRefused(t *testing.T) {
	secret := bytes.Repeat([]byte{7}, size)
	for text, prepare := range map[string]func(t *testing.T, dir string) (string, int){
		"mode is 0755": func(t *testing.T, dir string) (string, int) { return dir, errNil(t, os.Chmod(dir, 0o755)) },
		"belongs to":   func(_ *testing.T, dir string) (string, int) { return dir, os.Geteuid() + 1 },
		"not a directory": func(t *testing.T, dir string) (string, int) {
			return dir + "-link", errNil(t, os.Symlink(dir, dir+"-link"))
		},
		"mode is 0644": func(t *testing.T, dir string) (string, int) {
			return dir, errNil(t, os.WriteFile(filepath.Join(dir, name), secret, 0o644))
		},
		"symbolic links": func(t *testing.T, dir string) (string, int) {
			elsewhere := filepath.Join(t.TempDir(), "planted")
			errNil(t, os.WriteFile(elsewhere, secret, 0o600))
			return dir, errNil(t, os.Symlink(elsewhere, filepath.Join(dir, name)))
		},
		"it has 3 bytes": func(t *testing.T, dir string) (string, int) {
			return dir, errNil(t, os.WriteFile(filepath.Join(dir, name), []byte("abc"), 0o600))
		},
	} {
		t.Run(text, func(t *testing.T) {
			dir, uid := prepare(t, folder(t))
			if got, err := At(dir, uid); err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%x, %v: expected an error that says %q", got, err, text)
			}
		})
	}
}

// errNil ends the test on an error, and returns this user.
func errNil(t *testing.T, err error) int {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return os.Geteuid()
}

func TestRead(t *testing.T) {
	a, file, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	if b, again, err := Read(); err != nil || again != file || !bytes.Equal(a, b) {
		t.Errorf("%s and %s, %v: expected the same secret twice", file, again, err)
	}
}
