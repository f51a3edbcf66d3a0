package plugins

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pinnedCopy is a copy of this program in a folder of its own, with its checksum.
func pinnedCopy(t *testing.T, role string) Spec {
	t.Helper()
	spec := self(t, role)
	data, err := os.ReadFile(spec.Path)
	if err != nil {
		t.Fatal(err)
	}
	return pinnedFile(t, spec, data)
}

// pinnedFile puts a program into a folder of its own, beside a file "kernels".
func pinnedFile(t *testing.T, spec Spec, data []byte) Spec {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "dir")
	spec.Path = filepath.Join(dir, "plugin")
	err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(spec.Path, data, 0o755), os.WriteFile(filepath.Join(dir, "kernels"), []byte("ours"), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	spec.SHA256 = hex.EncodeToString(sum[:])
	return spec
}

// TestExchangedAfterTheHash: a plugin is what was hashed, and finds the files beside it that
// were there then, whatever is done to the file or its folder before it is executed.
func TestExchangedAfterTheHash(t *testing.T) {
	const evil = "#!/bin/sh\necho evil >&2\nexit 66\n"
	for name, exchange := range map[string]func(path string) error{
		"nothing": func(string) error { return nil },
		"folder": func(path string) error {
			dir := filepath.Dir(path)
			return errors.Join(os.Rename(dir, dir+"2"), os.Mkdir(dir, 0o755),
				os.WriteFile(path, []byte(evil), 0o755), os.WriteFile(filepath.Join(dir, "kernels"), []byte("evil"), 0o644))
		},
		"file": func(path string) error {
			return errors.Join(os.WriteFile(path+"2", []byte(evil), 0o755), os.Rename(path+"2", path))
		},
		"contents": func(path string) error { return os.WriteFile(path, []byte(evil), 0o755) },
	} {
		t.Run(name, func(t *testing.T) {
			noneLeft(t)
			spec, log := pinnedCopy(t, "reports"), &buffer{}
			spec.Log = logTo(log)
			c := opened(t, spec, exchange)
			defer c.Shutdown()
			if err := c.wire.Configure(t.Context(), []byte("{}"), nil); err != nil {
				t.Fatal(err)
			}
			for deadline := time.Now().Add(hang); !strings.Contains(log.String(), "kernels="); runtime.Gosched() {
				if time.Now().After(deadline) {
					t.Fatalf("the plugin has not reported: %s", log)
				}
			}
			if text := log.String(); !strings.Contains(text, "kernels=ours") {
				t.Errorf("the plugin did not find the file beside it: %s", text)
			}
			if comm, err := os.ReadFile("/proc/" + c.proc.ID() + "/comm"); err != nil || strings.TrimSpace(string(comm)) != "plugin" {
				t.Errorf("the process is called %q, %v: expected plugin", comm, err)
			}
		})
	}
}

// opened starts a plugin, and does something between the look at its file and its
// execution.
func opened(t *testing.T, spec Spec, between func(path string) error) *Client {
	t.Helper()
	file, err := openProgram(spec)
	if err != nil {
		t.Fatal(err)
	}
	defer file.close()
	if err := between(spec.Path); err != nil {
		t.Fatal(err)
	}
	spec.StartTimeout = DefaultStartTimeout
	c := &Client{spec: spec, gone: make(chan struct{})}
	c.startCtx, c.cancelStart = context.WithTimeout(t.Context(), hang)
	t.Cleanup(c.cancelStart)
	if err := c.start(file); err != nil {
		t.Fatal(c.startFailed(t.Context(), err))
	}
	return c
}

// A pinned script is executed as what was hashed, too.
func TestPinnedScript(t *testing.T) {
	noneLeft(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	spec := pinnedFile(t, Spec{Env: []string{roleKey + "=mirror", raceExit}, Log: testLog(t)}, []byte("#!/bin/sh\nexec "+self+"\n"))
	c := opened(t, spec, func(path string) error { return os.Remove(path) })
	c.Shutdown()
}

// The copy of a pinned program can be changed by nobody.
func TestSealedCopy(t *testing.T) {
	p, err := openProgram(pinnedCopy(t, "mirror"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	if f, err := os.OpenFile(descriptorPath(p.sealed), os.O_RDWR, 0); err == nil {
		if _, err := f.WriteAt([]byte("x"), 0); !errors.Is(err, unix.EPERM) {
			t.Errorf("write: %v, expected that it is not permitted", err)
		}
		if err := f.Truncate(0); !errors.Is(err, unix.EPERM) {
			t.Errorf("truncate: %v, expected that it is not permitted", err)
		}
		f.Close()
	}
}
