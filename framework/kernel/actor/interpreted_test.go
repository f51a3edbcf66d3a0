package actor_test

import (
	"compress/gzip"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
)

// The committed PTX of reductions, interpreted, gives what the same source gives on the processor, bit by bit: for the types whose
// pairs are compared at once, which NaN, infinities, zeros of both signs, and every kind of tail are among.
func TestReductionsOfTheCommittedPTX(t *testing.T) {
	cxx, err := exec.LookPath("g++")
	if err != nil {
		t.Skip("no compiler")
	}
	driver, dir := emulated.Build(t), t.TempDir()
	build := func(args ...string) {
		t.Helper()
		if text, err := exec.CommandContext(t.Context(), cxx, append([]string{"-std=c++17", "-I../include"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, text)
		}
	}
	build("-O2", "devicetest/main.cc", "-o", dir+"/devicetest", "-ldl")
	for name, number := range map[string]string{"f16": "1", "bf16": "2"} {
		build("-O3", "-march=x86-64-v2", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-shared", "-DMSCCLPP_TYPE="+number,
			"kernels/reduce.cc", "-o", dir+"/reduce-"+name+".so")
	}
	images, err := filepath.Glob("image/actor*-sm_90.ptx.gz")
	if err != nil || len(images) < 14 {
		t.Fatalf("%v, %v", images, err)
	}
	for _, file := range images {
		unzip(t, file, filepath.Join(dir, strings.TrimSuffix(filepath.Base(file), ".gz")))
	}
	c := exec.CommandContext(t.Context(), dir+"/devicetest", dir, "sm_90", dir, "f16,bf16", "reductions")
	c.Env = []string{"LD_LIBRARY_PATH=" + filepath.Dir(driver), emulated.EnvRun + "=ptx", emulated.EnvShape + "=3x96", emulated.EnvMemory + "=1073741824"}
	if text, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}

func unzip(t *testing.T, from, to string) {
	t.Helper()
	f, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err == nil {
		err = os.WriteFile(to, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
