package kernel_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// The headers are for users of nvcc as well: the kernels of the actor use every
// function that they have.
func TestHeadersCompileUnderNVCC(t *testing.T) {
	nvcc, err := exec.LookPath("nvcc")
	if err != nil {
		t.Skip("nvcc is not installed")
	}
	for _, c := range []struct{ source, typ string }{
		{"actor.cc", ""},
		{"reduce.cc", kernel.Float32.String()},
		{"reduce.cc", kernel.Float16.String()},
		{"reduce.cc", kernel.Float64.String()},
		{"reduce.cc", kernel.Float8E4M3.String()},
		{"reduce.cc", kernel.Float8E4M3B15.String()},
	} {
		t.Run(c.source+" "+c.typ, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "kernels.ptx")
			arguments := []string{"-ptx", "-std=c++17", "-arch=sm_90", "-Werror=all-warnings", "-Iinclude", "-DMSCCLPP_PTX=82", "-include=mscclpp/device.h"}
			if c.typ != "" {
				typ, err := kernel.ParseDataType(c.typ)
				if err != nil {
					t.Fatal(err)
				}
				arguments = append(arguments, fmt.Sprintf("-DMSCCLPP_TYPE=%d", typ))
			}
			arguments = append(arguments, "-x", "cu", "actor/kernels/"+c.source, "-o", out)
			if said, err := exec.CommandContext(t.Context(), nvcc, arguments...).CombinedOutput(); err != nil {
				t.Fatalf("nvcc %q: %v\n%s", arguments, err, said)
			}
			if info, err := os.Stat(out); err != nil || info.Size() == 0 {
				t.Errorf("nvcc wrote nothing: %v", err)
			}
		})
	}
}
