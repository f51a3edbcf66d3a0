// Package emulated is a driver library for NVIDIA GPUs without a GPU, for tests: it
// has the binary interface of libcuda.so.1, its devices are folders of memory files
// and threads, and kernels run on the CPU. With it package cuda, and all that is
// built on it, runs as it is on any machine. The README says what this shows, and
// what it cannot.
//
// The library is C++ in the folder driver, and is built when it is first asked for.
// With it come the management library, by which package topo finds the GPUs, and that of
// GDRCopy, by which the host stores into their memory.
package emulated

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/internal/ownfile"
)

// The environment of the library, read when it is initialized; that of images, when
// one is loaded. CUDA_VISIBLE_DEVICES means what it does with the real one. Plugins
// get variables of this prefix from their host.
const (
	EnvGPUs    = "CUDA_EMULATED_GPUS"    // how many there are; default 4
	EnvMemory  = "CUDA_EMULATED_MEMORY"  // bytes that a process gets from each; default 4 GiB
	EnvImages  = "CUDA_EMULATED_IMAGES"  // folder that Prepare filled
	EnvWithout = "CUDA_EMULATED_WITHOUT" // abilities they lack, a list: nvlink, peer, vmm, ipc, dmabuf, register, memops, ordered, flush, multicast
	EnvRun     = "CUDA_EMULATED_RUN"     // ptx: kernels are the PTX that is loaded, interpreted; else CPU images stand for it
	EnvFaults  = "CUDA_EMULATED_FAULTS"  // CALL[@GPU]:CODE[xTIMES][~MILLISECONDS], a list: calls that fail; die in place of the code ends the process
	EnvShape   = "CUDA_EMULATED_SHAPE"   // the most blocks and threads of an interpreted launch of a kernel that asks for their number; default 2x64
)

//go:embed driver management gdrcopy ptx interpreter
var sources embed.FS

var flags = []string{"-std=c++17", "-O2", "-g", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread", "-Wall", "-Wextra", "-Werror",
	"-static-libstdc++", "-static-libgcc", "-Idriver", "-Iptx", "-Wl,-z,defs", "-Wl,--version-script=driver/exports.map"}

// The libraries of one build lie in one folder: with it in LD_LIBRARY_PATH, programs
// find all by their own names.
var libraries = []struct{ folder, name string }{
	{"management", "libnvidia-ml.so.1"},
	{"gdrcopy", gdrcopyName},
	{"driver", driverName}, // last: that it is there says that the build is complete
}

const driverName = "libcuda.so.1"

// Build returns the path of the library. It skips the test where there is no
// compiler to build it with.
func Build(t testing.TB) string {
	t.Helper()
	path, err := Library(t.Context())
	if errors.Is(err, framework.ErrUnavailable) {
		t.Skipf("no emulated driver: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Library returns the path of the library, in the user's cache. It is built there
// unless it is up to date. ErrUnavailable: there is no C++ compiler.
func Library(ctx context.Context) (string, error) {
	cxx, err := compiler()
	if err != nil {
		return "", err
	}
	cache, err := folder("driver")
	if err != nil {
		return "", err
	}
	sum, err := digestOf(cxx, append(slices.Clone(flags), objectFlags...), "driver", "management", "gdrcopy", "ptx")
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, sum)
	path := filepath.Join(dir, driverName)
	unlock, err := lock(dir + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	return path, compile(ctx, cxx, dir)
}

func compile(ctx context.Context, cxx, dir string) error {
	objects, err := objectsOf(ctx, cxx, "ptx")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("emulated driver: %w", err)
	}
	return withSources(func(src string) error {
		for _, l := range libraries {
			args, err := filepath.Glob(filepath.Join(src, l.folder, "*.cc"))
			if err != nil {
				return fmt.Errorf("emulated driver: %w", err)
			}
			if l.name == driverName {
				args = append(args, objects...)
			}
			args = append(append(append(args, flags...), "-Wl,-soname,"+l.name), "-ldl")
			if err := link(ctx, cxx, src, filepath.Join(dir, l.name), args); err != nil {
				return err
			}
		}
		return nil
	})
}

// compiler finds a C++17 compiler: $CXX, g++ or clang++.
func compiler() (string, error) {
	for _, name := range []string{os.Getenv("CXX"), "g++", "clang++-19", "clang++"} {
		if name == "" {
			continue
		}
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("emulated driver: %w: no C++17 compiler: install g++ or clang++", framework.ErrUnavailable)
}

// folder returns a folder in the user's cache.
func folder(name string) (string, error) {
	dir, err := ownfile.Cache("emulated", name)
	if err != nil {
		return "", fmt.Errorf("emulated driver: %w", err)
	}
	return dir, nil
}

// lock keeps other processes from building the same.
func lock(path string) (unlock func(), err error) {
	if unlock, err = ownfile.Lock(path); err != nil {
		return nil, fmt.Errorf("emulated driver: %w", err)
	}
	return unlock, nil
}
