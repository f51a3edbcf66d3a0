package nccl

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/device/hip"
	runtime "github.com/mscclpp-go/mscclpp/framework/device/hip/emulated"
	"github.com/mscclpp-go/mscclpp/internal/gfx/gpus"
)

// The library for AMD's GPUs has the names of RCCL too, under a SONAME that programs for ROCm look for.
func TestExportsOfRCCL(t *testing.T) {
	exports(t, "librccl.so.1", "names.txt", "rccl-names.txt")
	if text := run(t, exec.Command("readelf", "-d", library(t)+"/librccl.so.1")); !strings.Contains(text, "Library soname: [librccl.so.1]") {
		t.Errorf("%s: expected the SONAME librccl.so.1", text)
	}
}

// The script finds functions of a header of RCCL's that are not exported, and takes those of RCCL alone for missing in a header of NCCL's.
func TestNamesOfRCCL(t *testing.T) {
	const text = "ncclResult_t ncclAllToAllv(const void*);\nncclResult_t  mscclLoadAlgo(int);\nncclResult_t pncclFrob(int);\n"
	for head, want := range map[string]string{"#define RCCL_BFLOAT16 1\n": "ncclFrob\n", "": "mscclLoadAlgo\nncclAllToAllv\nncclFrob\n"} {
		header := filepath.Join(t.TempDir(), "nccl.h")
		if err := os.WriteFile(header, []byte(head+text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), "../scripts/nccl-names.sh", header).CombinedOutput()
		if err == nil || string(out) != want {
			t.Errorf("%q: %v, %q: expected %q", head, err, out, want)
		}
	}
}

// A client of RCCL's runs on emulated GPUs of AMD's: its own names, and refusals with a reason.
func TestRCCL(t *testing.T) {
	t.Parallel()
	program := link(t, "rccl.c", library(t), "-lrccl")
	ranksOf(t, program, 2, onHIP(t, "NCCL_CHECK_POINTERS=1"))
}

// The client's buffers are those of hipMalloc, which caches keep, and the library's scratch is uncached. The committed code objects serve it
// too, which an interpreter executes under the model of the caches.
func TestRCCLExecutesCodeObjects(t *testing.T) {
	t.Parallel()
	program := link(t, "rccl.c", library(t), "-lrccl")
	for _, arch := range []string{"gfx942", "gfx90a"} {
		machine, err := gpus.Start(gpus.Options{GPUs: 2, Shape: gpus.Shape(arch), Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		ranksOf(t, program, 2, onHIP(t, append(runtime.MachineEnv(machine.Path(), arch), "NCCL_CHECK_POINTERS=1")...))
		ran := machine.Kernels()
		if err := machine.Close(); err != nil {
			t.Errorf("%s: %v", arch, err)
		}
		if len(ran) < 3 {
			t.Errorf("%s: %q have run: expected kernels of several collectives", arch, ran)
		}
		t.Log(arch, ran)
	}
}

// A program that brings a librccl.so.1 of its own, as PyTorch for ROCm does, gets this library where it is preloaded: the loader takes
// one library of a SONAME. The other one here has no function of RCCL's, and cannot take part.
func TestRCCLPreloaded(t *testing.T) {
	t.Parallel()
	others := t.TempDir()
	run(t, exec.Command("cc", "-shared", "-fPIC", "-Wl,-soname,librccl.so.1", "-o", others+"/librccl.so.1", "-x", "c", "/dev/null"))
	program := link(t, "rccl.c", others, "-lrccl")
	if out, err := exec.Command(program).CombinedOutput(); err == nil || !strings.Contains(string(out), "undefined symbol: nccl") {
		t.Fatalf("%v: %s: expected that the program takes its own library, which has no functions", err, out)
	}
	ranksOf(t, program, 2, onHIP(t, "NCCL_CHECK_POINTERS=1", "LD_PRELOAD="+library(t)+"/librccl.so.1"))
}

// onHIP is onGPUs for those of AMD's.
func onHIP(t *testing.T, more ...string) []string {
	t.Helper()
	library, _, err := runtime.Libraries(t.Context())
	if errors.Is(err, framework.ErrUnavailable) {
		t.Skipf("no emulated runtime: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	images := emulatedImages(t, runtime.Tree("..", "f32")...)
	return append([]string{
		"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), hip.EnvLibrary + "=" + library, emulated.EnvImages + "=" + images,
		emulated.EnvGPUs + "=2", emulated.EnvMemory + "=1073741824",
	}, more...)
}
