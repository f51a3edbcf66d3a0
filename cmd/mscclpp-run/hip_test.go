package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/device/hip"
	runtime "github.com/mscclpp-go/mscclpp/framework/device/hip/emulated"
	"github.com/mscclpp-go/mscclpp/plugins"
)

// onHIP is the program on AMD's GPUs, which are emulated: images for the CPU stand for the code objects.
func onHIP(t *testing.T) func(args ...string) *exec.Cmd {
	t.Helper()
	library, _, err := runtime.Libraries(t.Context())
	if errors.Is(err, framework.ErrUnavailable) {
		t.Skipf("no emulated runtime: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	images := emulated.Images(t, runtime.Tree("../..", "f32")...)
	dir := t.TempDir()
	if err := os.Rename(plugin(t, "xgmi"), filepath.Join(dir, plugins.FilePrefix+"xgmi")); err != nil {
		t.Fatal(err)
	}
	return func(args ...string) *exec.Cmd {
		c := command(t, append([]string{"--set", "plugins.dirs=" + dir}, args...)...)
		c.Env = append(c.Env, hip.EnvLibrary+"="+library, cuda.EnvLibrary+"=/nonexistent/libcuda.so.1", emulated.EnvImages+"="+images, emulated.EnvGPUs+"=2")
		return c
	}
}

// A check of collectives runs on AMD's GPUs, over xgmi, where it is asked for, and where they are what auto finds.
func TestCheckOnHIP(t *testing.T) {
	program := onHIP(t)
	cases := []string{
		"allreduce,f32,sum,4097,algorithm=allpair_ll8", "allreduce,f32,sum,33333,in-place,algorithm=twophase_chunk", "allreduce,f32,avg,16667,algorithm=twophase_ll8",
		"allreduce,f32,max,125,in-place,registered,offset=1,algorithm=zerocopy", "allreduce,f32,premulsum,1025,algorithm=oneshot_ll8",
		"allreduce,f32,min,100000,registered,algorithm=copy", "allreduce,f32,prod,30000,algorithm=copy_staged",
		"reducescatter,f32,sum,4167,algorithm=ll8", "reducescatter,f32,sum,16667,offset=1,algorithm=chunk", "reduce,f32,sum,2049,root=1,algorithm=chunk",
		"allgather,f32,15,algorithm=ll8", "allgather,f32,33333,algorithm=chunk", "alltoall,f32,2049,algorithm=chunk", "broadcast,f32,5000,root=1,algorithm=chunk",
	}
	checked(t, program, "hip", cases...)
	checked(t, program, "auto", cases[0])
}

// checked runs cases with two ranks, and expects that they pass.
func checked(t *testing.T, program func(args ...string) *exec.Cmd, device string, cases ...string) {
	t.Helper()
	args := []string{"-n", "2", "check", "--device", device}
	for _, c := range cases {
		args = append(args, "--case", c)
	}
	code, out, errs := runs(program(args...))
	if want := fmt.Sprintf("%d passed, 0 failed", len(cases)); code != 0 || !strings.Contains(out, want) {
		t.Errorf("%s: code %d, %s, %s: expected %s", device, code, out, errs, want)
	}
}

// A type without kernels for AMD's GPUs is refused by name: nothing goes through the host, for which their streams cannot wait.
func TestTypeWithoutKernelsOnHIP(t *testing.T) {
	code, out, _ := runs(onHIP(t)("-n", "2", "check", "--device", "hip", "--case", "allreduce,e5m2,sum,100"))
	if code != 1 || !strings.Contains(out, "no kernel for allreduce of e5m2: expected one of bf16 e4m3 f16 f32 f64 i32 u8") {
		t.Errorf("code %d, %s", code, out)
	}
}
