package python

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
)

// onGPUs runs a program as so many ranks on emulated GPUs, each of which says that it is done.
func onGPUs(t *testing.T, p interpreter, ranks int, args ...string) {
	t.Helper()
	tree(t)
	driver := emulated.Build(t)
	kernels := emulated.Images(t, emulated.Source{Spec: "../collectives/image/kernels.json", Types: []string{"f32"}},
		emulated.Source{Spec: "../collectives/internal/scaling/kernels/kernels.json", Images: "../collectives/internal/scaling/image", Types: []string{"f32"}})
	env := []string{
		cuda.EnvLibrary + "=" + driver, "LD_LIBRARY_PATH=" + filepath.Dir(driver), emulated.EnvImages + "=" + kernels, emulated.EnvMemory + "=1073741824",
	}
	text, err := run(t, p, ranks, env, args...)
	if err != nil || strings.Count(text, " is done\n") != ranks {
		t.Errorf("%v\n%s", err, text)
	}
}

// Memory of GPUs is used by the protocols of other packages, in the order of their streams.
func TestGPUObjects(t *testing.T) {
	onGPUs(t, newest(t, "nothing else", anyPython), 2, "tests/cuda_objects.py")
}

// The process group puts operations on the streams of torch, of which there is a stand-in.
func TestTorchStreams(t *testing.T) {
	for _, backend := range []string{"mscclpp", "cpu:gloo,cuda:mscclpp"} {
		t.Run(backend, func(t *testing.T) {
			onGPUs(t, newest(t, "torch 2.11", hasTorch), 2, "-W", "ignore", "tests/torch_cuda.py", backend)
		})
	}
}

// Messages around a ring do not wait for each other, though every rank sends first.
func TestTorchRing(t *testing.T) {
	onGPUs(t, newest(t, "torch 2.11", hasTorch), 3, "-W", "ignore", "tests/torch_ring.py")
}

// The example of a kernel is compiled by NVRTC, and runs on GPUs that interpret its PTX.
func TestNVRTC(t *testing.T) {
	p, driver := newest(t, "nothing else", anyPython), emulated.Build(t)
	env := []string{cuda.EnvLibrary + "=" + driver, emulated.EnvRun + "=ptx", emulated.EnvShape + "=1x256", emulated.EnvMemory + "=1073741824",
		"MSCCLPP_NVRTC_LIBRARY=" + nvrtc(t)}
	text, err := run(t, p, 2, env, "tests/nvrtc.py")
	if err != nil || strings.Count(text, "1000 sums are right\n") != 2 || strings.Count(text, " is done\n") != 2 {
		t.Errorf("%v\n%s", err, text)
	}
}

// nvrtc returns the path of the compiler, which scripts/nvrtc.sh has fetched.
func nvrtc(t *testing.T) string {
	t.Helper()
	path := os.Getenv("NVRTC_LIBRARY")
	if path == "" {
		without(t)("no NVRTC_LIBRARY, which scripts/torch-test.sh sets to what scripts/nvrtc.sh prints")
	}
	return path
}
