package emulated

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

// The interpreter of PTX is compiled once, into objects, for the driver and for the program of its own. Contraction of
// floats would change results.
var objectFlags = []string{"-std=c++17", "-O2", "-g", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off"}

// Interpreter returns the path of the program that executes PTX on seeded schedules: package interpret talks to it. It is
// built when needed. ErrUnavailable: there is no C++ compiler.
func Interpreter(ctx context.Context) (string, error) {
	cxx, err := compiler()
	if err != nil {
		return "", err
	}
	cache, err := folder("interpreter")
	if err != nil {
		return "", err
	}
	sum, err := digestOf(cxx, objectFlags, "ptx", "interpreter")
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, sum)
	unlock, err := lock(path + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	objects, err := objectsOf(ctx, cxx, "ptx")
	if err != nil {
		return "", err
	}
	return path, withSources(func(src string) error {
		units, err := filepath.Glob(filepath.Join(src, "interpreter", "*.cc"))
		if err != nil {
			return fmt.Errorf("emulated driver: %w", err)
		}
		args := append(append([]string{"-Iptx", "-pthread"}, objectFlags...), units...)
		return link(ctx, cxx, src, path, append(append(args, objects...), "-ldl"))
	})
}

// BuildInterpreter returns the path of the program. It skips the test where there is no compiler to build it with.
func BuildInterpreter(t testing.TB) string {
	t.Helper()
	path, err := Interpreter(t.Context())
	if errors.Is(err, framework.ErrUnavailable) {
		t.Skipf("no interpreter: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// objectsOf compiles the sources of a folder, as many files at once as there are processors, and returns the objects.
func objectsOf(ctx context.Context, cxx, sources string) ([]string, error) {
	cache, err := folder("objects")
	if err != nil {
		return nil, err
	}
	sum, err := digestOf(cxx, objectFlags, "ptx", sources)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(cache, sources+"-"+sum)
	unlock, err := lock(dir + ".lock")
	if err != nil {
		return nil, err
	}
	defer unlock()
	if _, err := os.Stat(filepath.Join(dir, "complete")); err == nil {
		return filepath.Glob(filepath.Join(dir, "*.o"))
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("emulated driver: %w", err)
	}
	err = withSources(func(src string) error { return compileObjects(ctx, cxx, src, filepath.Join(src, sources), dir) })
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "complete"), nil, 0o644); err != nil {
		return nil, fmt.Errorf("emulated driver: %w", err)
	}
	return filepath.Glob(filepath.Join(dir, "*.o"))
}

// compileObjects compiles the sources of a folder. src is where all sources are.
func compileObjects(ctx context.Context, cxx, src, from, dir string) error {
	units, err := filepath.Glob(filepath.Join(from, "*.cc"))
	if err != nil {
		return fmt.Errorf("emulated driver: %w", err)
	}
	room, done := make(chan struct{}, runtime.NumCPU()), make(chan error)
	for _, unit := range units {
		go func() {
			room <- struct{}{}
			to := filepath.Join(dir, strings.TrimSuffix(filepath.Base(unit), ".cc")+".o")
			done <- link(ctx, cxx, src, to, append([]string{"-c", unit, "-Idriver", "-Iptx"}, objectFlags...))
			<-room
		}()
	}
	var all error
	for range units {
		all = errors.Join(all, <-done)
	}
	return all
}

// link runs the compiler, and puts what it makes in its place when it is complete.
func link(ctx context.Context, cxx, src, path string, args []string) error {
	cmd := exec.CommandContext(ctx, cxx, append(args, "-o", path+".new")...)
	cmd.Dir = src
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("emulated driver: %s: %w\n%s", cxx, err, text)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("emulated driver: %w", err)
	}
	return nil
}

// withSources calls do with a folder that has all sources, for as long as it takes.
func withSources(do func(src string) error) error {
	src, err := os.MkdirTemp("", "mscclpp-emulated-*")
	if err != nil {
		return fmt.Errorf("emulated driver: %w", err)
	}
	defer os.RemoveAll(src)
	if err := os.CopyFS(src, sources); err != nil {
		return fmt.Errorf("emulated driver: %w", err)
	}
	return do(src)
}

// digestOf names what a build of some folders depends on.
func digestOf(cxx string, flags []string, folders ...string) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, cxx, strings.Join(flags, " "))
	for _, top := range folders {
		err := fs.WalkDir(sources, top, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := sources.ReadFile(path)
			fmt.Fprintln(h, path, len(data))
			h.Write(data)
			return err
		})
		if err != nil {
			return "", fmt.Errorf("emulated driver: %w", err)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}
