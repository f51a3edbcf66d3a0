// Package emulated is AMD's HIP runtime without a GPU, for tests: libamdhip64 with the binary interface of 5.7 to 7, over the
// emulated driver of package cuda/emulated, whose devices, memory, streams and graphs it uses. Kernels run on the CPU: an image
// for the CPU stands for each code object, or an interpreter executes it as it is (see MachineEnv).
//
// Emulated are the traps of the real library: an own end of lists of parameters, flags and numbers that changed with 6.0, two
// layouts of properties, an attribute as wide as an address, uncached memory that older libraries refuse.
package emulated

import (
	"context"
	"embed"
	"errors"
	"io/fs"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
)

// The environment of the library, beside that of package cuda/emulated.
const (
	EnvVersion  = "HIP_EMULATED_VERSION"  // of HIP: "6.4" unless it is set
	EnvArch     = "HIP_EMULATED_ARCH"     // "gfx942:sramecc+:xnack-" unless it is set
	EnvMachine  = "HIP_EMULATED_MACHINE"  // the socket of a machine that executes code objects as they are: images for the CPU stand for none
	EnvUnits    = "HIP_EMULATED_UNITS"    // compute units of a GPU: as many as the real ones have unless it is set
	EnvPatience = "HIP_EMULATED_PATIENCE" // milliseconds that the machine may be silent while the library waits for it: 180000 unless it is set
	EnvWithout  = "HIP_EMULATED_WITHOUT"  // the abilities that it lacks, a list: uncached, dmabuf, flush
)

//go:embed driver
var sources embed.FS

// Names of the libraries. The older one has not what came with 6.0 and later.
const (
	name      = "libamdhip64.so.6"
	olderName = "libamdhip64.so.5"
)

// Libraries returns the paths of the library, and of one as it was at 5.7, in the user's cache. They are built there unless they
// are up to date. ErrUnavailable: there is no C++ compiler.
func Libraries(ctx context.Context) (path, older string, err error) {
	dir, err := fs.Sub(sources, "driver")
	if err != nil {
		return "", "", err
	}
	at, err := emulated.Derive(ctx, emulated.Derived{Sources: dir, Libraries: map[string]string{name: "exports.map", olderName: "older.map"}})
	if err != nil {
		return "", "", err
	}
	return filepath.Join(at, name), filepath.Join(at, olderName), nil
}

// Build is Libraries for tests. It skips the test where there is no compiler to build them with.
func Build(t testing.TB) (path, older string) {
	t.Helper()
	path, older, err := Libraries(t.Context())
	if errors.Is(err, framework.ErrUnavailable) {
		t.Skipf("no emulated runtime: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path, older
}

// Plans are the code objects of execution plans of the source tree at root, for emulated.Prepare, for some element types; none: all.
func Plans(root string, types ...string) emulated.Source {
	return emulated.Source{Spec: filepath.Join(root, "plan/image/kernels.json"), Types: types, AMD: true}
}

// Words is the code objects of the device itself, for emulated.Prepare.
func Words(root string) emulated.Source {
	const own = "framework/device/hip"
	return emulated.Source{Spec: filepath.Join(root, own, "kernels/kernels.json"), Images: filepath.Join(root, own, "image"), AMD: true}
}

// Inference lists the code objects of operators for inference and of experts, which have few types, for emulated.Prepare.
func Inference(root string) []emulated.Source {
	return []emulated.Source{
		{Spec: filepath.Join(root, "inference/image/kernels.json"), AMD: true},
		{Spec: filepath.Join(root, "inference/moe/image/kernels.json"), AMD: true},
	}
}

// Tree lists the other code objects of the source tree at root, for emulated.Prepare, for some element types; none: all.
func Tree(root string, types ...string) []emulated.Source {
	sources := append(emulated.Tree(root), Words(root))
	for i := range sources {
		sources[i].Types, sources[i].AMD = types, true
	}
	return sources
}

// MachineEnv makes the library of a process use the machine of package internal/gfx/gpus that listens at a path. Its GPUs have so few
// units that kernels have few blocks: they take turns.
func MachineEnv(path, arch string) []string {
	return []string{EnvMachine + "=" + path, EnvArch + "=" + arch, EnvUnits + "=" + strconv.Itoa(machineUnits)}
}

const machineUnits = 4
