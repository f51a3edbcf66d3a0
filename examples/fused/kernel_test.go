package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel/check"
	"github.com/mscclpp-go/mscclpp/framework/kernel/check/checktest"
	"github.com/mscclpp-go/mscclpp/framework/kernel/image"
)

// The kernels with many threads, in all modes of the emulator.
func TestKernelsWithManyThreads(t *testing.T) {
	for _, m := range check.Modes {
		t.Run(m.Name, func(t *testing.T) {
			if r := emulate(t, "fused_check.cc", m); r.Exit != 0 {
				t.Errorf("exit code %d\n%s", r.Exit, r.Output)
			}
		})
	}
}

// The emulator sees when a wait is missing.
func TestMissingWaitsAreFound(t *testing.T) {
	for bug, what := range map[string]string{"1": "C is read before it is whole", "2": "C is overwritten while it is read"} {
		r := emulate(t, "fused_check.cc", check.Seeds, "--test", "launches follow each other", "--bug", bug)
		if r.Exit != check.ExitWrong {
			t.Errorf("%s: exit code %d, expected %d\n%s", what, r.Exit, check.ExitWrong, r.Output)
		}
	}
}

// The tile of tensor cores, with threads that stand for lanes. The other modes find
// nothing there that these two do not, and take minutes.
func TestTensorTile(t *testing.T) {
	for _, m := range []check.Mode{check.Plain, check.Memory} {
		t.Run(m.Name, func(t *testing.T) {
			if r := emulate(t, "tensor_check.cc", m); r.Exit != 0 {
				t.Errorf("exit code %d\n%s", r.Exit, r.Output)
			}
		})
	}
}

func emulate(t *testing.T, source string, m check.Mode, arguments ...string) check.Result {
	t.Helper()
	bin := checktest.Build(t, check.Program{Source: "kernel/" + source}, m)
	r, err := check.Run(t.Context(), bin, m, arguments...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The PTX in the program is that of the source, by the compiler that made it.
func TestPTXIsThatOfTheSource(t *testing.T) {
	dir := t.TempDir()
	spec, err := image.ReadSpec("kernel/kernels.json")
	if err != nil {
		t.Fatal(err)
	}
	target, err := image.FindTarget("sm_80")
	if err != nil {
		t.Fatal(err)
	}
	made, err := image.Build(t.Context(), spec, dir, image.Options{Targets: []image.Target{target}})
	if errors.Is(err, framework.ErrUnavailable) {
		t.Skipf("needs clang-19: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	var kept image.Manifest
	if text, err := os.ReadFile("image/" + image.ManifestFile); err != nil {
		t.Fatal(err)
	} else if err := json.Unmarshal(text, &kept); err != nil {
		t.Fatal(err)
	}
	if len(kept.Images) != 1 || len(made.Images) != 1 {
		t.Fatalf("%d images are kept and %d were made, expected one and one", len(kept.Images), len(made.Images))
	}
	have, now := kept.Images[0], made.Images[0]
	if fmt.Sprint(have.Symbols) != "[fused_gemm fused_wait]" || have.Arch != "sm_80" {
		t.Errorf("kept: kernels %v for %s, expected fused_gemm and fused_wait for sm_80", have.Symbols, have.Arch)
	}
	if have.Compiler != now.Compiler {
		t.Skipf("needs %s to compare bytes: this is %s", have.Compiler, now.Compiler)
	}
	if have.SHA256 != now.SHA256 {
		t.Error("the source gives other PTX; in this folder: mscclpp-kernels build --spec kernel/kernels.json --target sm_80 --out image")
	}
}

// The tile is multiplied by tensor cores, fed by asynchronous copies, in registers.
func TestPTXUsesTensorCores(t *testing.T) {
	ptx, err := options{}.image([]string{"sm_80"})
	if err != nil {
		t.Fatal(err)
	}
	for instruction, least := range map[string]int{
		"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32": 32, // 16 for each half of a step
		"ldmatrix.sync.aligned.m8n8.x4":                     12,
		"cp.async.cg.shared.global":                         4,
		"st.global.v4.u32":                                  2, // to the own C, and to those of peers
	} {
		if n := bytes.Count(ptx, []byte(instruction)); n < least {
			t.Errorf("%s is there %d times, expected at least %d", instruction, n, least)
		}
	}
	if bytes.Contains(ptx, []byte(".local")) {
		t.Error("the kernel uses local memory")
	}
}

// The commands of the README make PTX that the program can take.
func TestCommandsOfTheREADME(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	headers, err := image.FindHeaders()
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] != "clang++-19" && words[0] != "nvcc" {
			continue
		}
		found++
		t.Run(words[0], func(t *testing.T) {
			if _, err := exec.LookPath(words[0]); err != nil {
				t.Skipf("%s is not installed", words[0])
			}
			out := filepath.Join(t.TempDir(), "fused.ptx")
			for i, w := range words {
				switch w {
				case "-I/usr/local/include":
					words[i] = "-I" + headers
				case "fused.ptx":
					words[i] = out
				}
			}
			if said, err := exec.CommandContext(t.Context(), words[0], words[1:]...).CombinedOutput(); err != nil {
				t.Fatalf("%q: %v\n%s", words, err, said)
			}
			ptx, err := options{ptx: out}.image(nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{".entry fused_gemm(", ".entry fused_wait(", "mscclpp_abi = 1;", ".target sm_80"} {
				if !bytes.Contains(ptx, []byte(want)) {
					t.Errorf("the PTX has no %q", want)
				}
			}
		})
	}
	if found != 2 {
		t.Errorf("%d commands, expected one of clang and one of nvcc", found)
	}
}

// args is laid out as FusedArgs.
func TestArgumentsAreTwins(t *testing.T) {
	cxx := "g++"
	if _, err := exec.LookPath(cxx); err != nil {
		cxx = "clang++-19"
	}
	if _, err := exec.LookPath(cxx); err != nil {
		t.Skip("needs a C++ compiler")
	}
	headers, err := image.FindHeaders()
	if err != nil {
		t.Fatal(err)
	}
	var a args
	source := "#include \"kernel/fused.h\"\n#include <stddef.h>\n"
	for field, offset := range map[string]uintptr{
		"a": unsafe.Offsetof(a.A), "b": unsafe.Offsetof(a.B), "c": unsafe.Offsetof(a.C), "done": unsafe.Offsetof(a.Done),
		"first": unsafe.Offsetof(a.First), "rows": unsafe.Offsetof(a.Rows), "n": unsafe.Offsetof(a.N), "k": unsafe.Offsetof(a.K),
		"peers": unsafe.Offsetof(a.Peers), "tiles": unsafe.Offsetof(a.Tiles), "ready": unsafe.Offsetof(a.Ready),
	} {
		source += fmt.Sprintf("static_assert(offsetof(FusedArgs, %s) == %d, \"%s\");\n", field, offset, field)
	}
	source += fmt.Sprintf("static_assert(sizeof(FusedArgs) == %d, \"size\");\n", unsafe.Sizeof(a))
	source += fmt.Sprintf("static_assert(FUSED_PEERS == %d, \"peers\");\n", maxPeers)
	if said, err := compile(t.Context(), cxx, headers, source); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
	if _, err := compile(t.Context(), cxx, headers, source+"static_assert(sizeof(FusedArgs) == 1, \"\");\n"); err == nil {
		t.Error("a wrong size compiles as well")
	}
}

func compile(ctx context.Context, cxx, headers, source string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, cxx, "-std=c++17", "-fsyntax-only", "-I.", "-I"+headers, "-x", "c++", "-")
	cmd.Stdin = strings.NewReader(source)
	return cmd.CombinedOutput()
}
