package hip

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device/conformance"
	cuda "github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/device/hip/emulated"
	"github.com/mscclpp-go/mscclpp/framework/device/native"
	"github.com/mscclpp-go/mscclpp/framework/kernel/image"
)

// There is no hardware to test on: all tests run over the emulated library. Some run in a process of their own, because the
// library reads its environment once.

const envRole = "HIP_TEST_ROLE" // of a process that a test starts

func TestMain(m *testing.M) {
	var err error
	switch role := os.Getenv(envRole); {
	case conformance.IsChild():
		var back *native.Backend
		if back, err = Backend(); err == nil {
			err = conformance.Child(back)
		}
	case role != "":
		err = roles[role]()
	default:
		made, err = os.MkdirTemp("", "mscclpp-hip-")
		if err == nil {
			code := m.Run()
			os.RemoveAll(made)
			os.Exit(code)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// made is a folder for what the compilers make, once for all tests of the process.
var made string

// suite is the suite's code object for gfx942, for which an image for the CPU stands, as for the kernel that stores words.
var suite = sync.OnceValues(func() ([]byte, error) {
	ctx, spec := testContext(), "../conformance/kernels/kernels.json"
	for _, program := range []string{"clang++-19", "ld.lld-19"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("%w: %s", framework.ErrUnavailable, program)
		}
	}
	targets, err := image.ParseTargets("gfx942")
	if err != nil {
		return nil, err
	}
	read, err := image.ReadSpec(spec)
	if err != nil {
		return nil, err
	}
	folder := filepath.Join(made, "suite")
	m, err := image.Build(ctx, read, folder, image.Options{Targets: targets})
	if err != nil {
		return nil, err
	}
	images := filepath.Join(made, "images")
	if err := os.MkdirAll(images, 0o700); err != nil {
		return nil, err
	}
	err = cuda.Prepare(ctx, images,
		cuda.Source{Spec: spec, Images: folder, AMD: true},
		cuda.Source{Spec: "kernels/kernels.json", Images: "image", AMD: true})
	if err != nil {
		return nil, err
	}
	set, err := image.Open(os.DirFS(folder))
	if err != nil {
		return nil, err
	}
	return set.Read(m.Images[0].ID)
})

// emulate points this process, and those that it starts, to the emulated library. It skips the test where it cannot be made.
func emulate(t *testing.T) (code []byte) {
	t.Helper()
	code, err := suite()
	if errors.Is(err, framework.ErrUnavailable) {
		t.Skipf("no code objects: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	path, _ := emulated.Build(t)
	for name, value := range map[string]string{EnvLibrary: path, cuda.EnvImages: filepath.Join(made, "images"), cuda.EnvGPUs: "2", cuda.EnvMemory: "268435456"} {
		t.Setenv(name, value)
	}
	return code
}
