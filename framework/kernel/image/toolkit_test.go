package image

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

// A toolkit of the vendor's on the path, newer than the compiler knows, changes nothing:
// not whether PTX is made, and not which.
func TestToolkitOnThePathIsNotUsed(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{
		"kernels.json": `{"name": "k", "families": [{"name": "k", "sources": ["k.cc"]}]}`,
		"k.cc":         "struct Args { int* out; };\nMSCCLPP_KERNEL(k, Args, args) { *args.out = 1; }\n",

		"toolkit/bin/ptxas":        "#!/bin/sh\nexit 0\n",
		"toolkit/include/cuda.h":   "#define CUDA_VERSION 99000\n",
		"toolkit/lib64/nothing":    "",
		"toolkit/nvvm/libdevice/x": "",
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	spec, err := ReadSpec(filepath.Join(dir, "kernels.json"))
	if err != nil {
		t.Fatal(err)
	}
	target, err := FindTarget("sm_80")
	if err != nil {
		t.Fatal(err)
	}
	made := func(out string) string {
		t.Helper()
		m, err := Build(t.Context(), spec, filepath.Join(dir, out), Options{Targets: []Target{target}})
		if errors.Is(err, framework.ErrUnavailable) {
			t.Skipf("needs clang-19: %v", err)
		}
		if err != nil {
			t.Fatal(err)
		}
		return m.Images[0].SHA256
	}
	without := made("without")
	t.Setenv("PATH", filepath.Join(dir, "toolkit/bin")+":"+os.Getenv("PATH"))
	if with := made("with"); with != without {
		t.Errorf("with a toolkit on the path the image is %s, without %s", with, without)
	}
}
