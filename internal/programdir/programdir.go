// Package programdir knows the folder of the running program, beside which it finds its
// files.
package programdir

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
)

var given atomic.Pointer[string]

// Set names the folder, for a program that is executed from elsewhere.
func Set(dir string) { given.Store(&dir) }

// Get returns the folder: the one that was set, else that of the program's file.
func Get() (string, error) {
	if dir := given.Load(); dir != nil {
		return *dir, nil
	}
	exe, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("folder of the program: %w", err)
	}
	return filepath.Dir(exe), nil
}

// Name returns the path of a file for messages: where a descriptor at its beginning leads.
func Name(path string) string {
	parts := strings.SplitN(path, "/", 6) // "", proc, self, fd, number, rest
	if len(parts) < 5 || !strings.HasPrefix(path, "/proc/self/fd/") {
		return path
	}
	dir, err := os.Readlink(strings.Join(parts[:5], "/"))
	if err != nil {
		return path
	}
	return filepath.Join(append([]string{dir}, parts[5:]...)...)
}
