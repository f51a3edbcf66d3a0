package torchtest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/collectives/collectivetest"
)

const pythonVariable = "TORCH_TEST_PYTHON"

// python returns the interpreter that has torch.
func python(t *testing.T) string {
	t.Helper()
	path := os.Getenv(pythonVariable)
	if path == "" {
		t.Skip("torch is not installed for tests: make torch-test installs it")
	}
	return path
}

// packages is the folder of what is installed beside the interpreter.
func packages(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(filepath.Dir(python(t)), "../lib/python*/site-packages"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%v, %v: expected one folder of packages", found, err)
	}
	return found[0]
}

// library is libnccl.so.2 of this tree.
func library(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../../bin/lib/libnccl.so.2")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: make build builds it", err)
	}
	return path
}

// run runs the interpreter in an environment in which nothing of the machine decides the outcome.
func run(t *testing.T, variables []string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, python(t), args...)
	c.Env = append([]string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), "PYTHONDONTWRITEBYTECODE=1"}, variables...)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", c.Args, err, out)
	}
	return string(out)
}

// The names in the header and in the library of torch's own NCCL, and those that torch needs, are exported.
func TestNames(t *testing.T) {
	wheel := filepath.Join(packages(t), "nvidia/nccl")
	for _, file := range []string{wheel + "/include/nccl.h", wheel + "/lib/libnccl.so.2", packages(t) + "/torch/lib/libtorch_cuda.so"} {
		out, err := exec.CommandContext(t.Context(), "../../scripts/nccl-names.sh", file).CombinedOutput()
		if err != nil || string(out) != "all there\n" {
			t.Errorf("%s: %v: not exported:\n%s", file, err, out)
		}
	}
}

// All symbols are resolved at once, by ours, and nothing behind it is loaded before a communicator is made.
func TestImport(t *testing.T) {
	lib := library(t)
	out := run(t, []string{"LD_PRELOAD=" + lib, "LD_BIND_NOW=1"}, "testdata/imported.py")
	if want := "torch 2.11.0+cu130 uses 22809 of " + lib + "\n"; out != want {
		t.Errorf("%q: expected %q", out, want)
	}
}

// torchrun with the library preloaded: ranks take it by its bare name, and torch's tensors go through it. torch's own
// backend of this name wants a GPU, so the calls are those that it makes, on the host's memory.
func TestTorchrun(t *testing.T) {
	out := run(t, []string{
		"LD_PRELOAD=" + library(t), "MSCCLPP_DEVICE=host", "MSCCLPP_TRANSPORT__SHM__IMAGES=" + collectivetest.HostImages(t),
		"OMP_NUM_THREADS=1", "MSCCLPP_PLUGINS__DIRS=" + filepath.Join(filepath.Dir(library(t)), "../plugins"),
	}, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "testdata/rank.py")
	if n := strings.Count(out, "of 2 is right\n"); n != 2 {
		t.Errorf("%d ranks are right, expected 2:\n%s", n, out)
	}
}
