package emulated_test

import (
	"context"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
)

var symbol = regexp.MustCompile(`(?m)^CUDA_(?:LATER_)?SYMBOL\((\w+),`)

var called = regexp.MustCompile(`(?:symbol\(lib, "|CUDA\(|dlsym\(driver, ")(cu[A-Z][A-Za-z0-9_]+)`)

// The library has the functions that package cuda and the NCCL-compatible library look up, and no others.
func TestSymbols(t *testing.T) {
	have := exports(t, emulated.Build(t))
	var want []string
	text, err := os.ReadFile("../symbols.h")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range symbol.FindAllSubmatch(text, -1) {
		want = append(want, string(m[1]))
	}
	if len(want) < 50 {
		t.Fatalf("symbols.h lists %d functions, expected at least 50", len(want))
	}
	for _, file := range []string{"src/cuda.c", "testdata/device.c", "testdata/green.c"} { // the NCCL-compatible library, and its programs for tests
		text, err := os.ReadFile(filepath.Join("../../../../nccl", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range called.FindAllSubmatch(text, -1) {
			want = append(want, string(m[1]))
		}
	}
	for _, name := range want {
		if !slices.Contains(have, name) {
			t.Errorf("the library has no %s", name)
		}
	}
	for _, name := range have {
		if !slices.Contains(want, name) {
			t.Errorf("the library has %s, which is never called", name)
		}
	}
}

// exports lists the functions of a library.
func exports(t *testing.T, path string) []string {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range all {
		if s.Section != elf.SHN_UNDEF {
			names = append(names, s.Name)
		}
	}
	return names
}

// standIn is the CPU program for the kernels of selftest/kernels.cc.
const standIn = `#include <sched.h>
#include <stdint.h>
extern "C" void copies_word(const void* p, const void*) {
  struct Args { uint64_t *to, *from, add; };
  const Args* a = static_cast<const Args*>(p);
  __atomic_store_n(a->to, *a->from + a->add, __ATOMIC_RELEASE);
}
extern "C" void spins(const void* p, const void*) {
  struct Args { uint64_t* word; uint32_t until; };
  const Args* a = static_cast<const Args*>(p);
  while (__atomic_load_n(a->word, __ATOMIC_ACQUIRE) < a->until) sched_yield();
}
`

// selftest builds the program of tests, and the images that it loads.
func selftest(t *testing.T) (program string, env []string) {
	t.Helper()
	library := emulated.Build(t)
	program = filepath.Join(t.TempDir(), "selftest")
	units, err := filepath.Glob("selftest/*.cc")
	if err != nil || len(units) == 0 {
		t.Fatalf("no selftest: %v", err)
	}
	cxx := "g++"
	if _, err := exec.LookPath(cxx); err != nil {
		cxx = "clang++"
	}
	args := append([]string{"-std=c++17", "-O0", "-g", "-pthread", "-Wall", "-Wextra", "-Werror", "-I.."}, units...)
	cmd := exec.CommandContext(t.Context(), cxx, append(args, library, "-Wl,-rpath,"+filepath.Dir(library), "-o", program)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile("selftest/kernels.cc")
	if err != nil {
		t.Fatal(err)
	}
	_, ptx, _ := strings.Cut(string(text), `kPtx[] = R"(`)
	ptx, _, found := strings.Cut(ptx, `)";`)
	if !found {
		t.Fatal("selftest/kernels.cc: no PTX")
	}
	images := t.TempDir()
	emulated.Stand(t, images, []byte(ptx), standIn)
	return program, append(os.Environ(), emulated.EnvImages+"="+images, emulated.EnvMemory+"=67108864", emulated.EnvGPUs+"=4",
		emulated.EnvWithout+"=", "CUDA_VISIBLE_DEVICES=0,1,2,3")
}

func run(t *testing.T, program string, env []string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestDriver(t *testing.T) {
	program, env := selftest(t)
	list, err := run(t, program, env)
	if err != nil {
		t.Fatal(err)
	}
	names := strings.Fields(list)
	if len(names) < 30 {
		t.Fatalf("%d tests, expected at least 30", len(names))
	}
	for _, name := range names {
		env := env
		if lacks, ok := strings.CutPrefix(name, "without_"); ok {
			env = append(slices.Clone(env), emulated.EnvWithout+"="+lacks)
		}
		if list, ok := strings.CutPrefix(name, "visible_"); ok {
			env = append(slices.Clone(env), "CUDA_VISIBLE_DEVICES="+strings.ReplaceAll(list, "_", ","))
		}
		if name == "faults_multicast" {
			env = append(slices.Clone(env), emulated.EnvFaults+"="+strings.Join([]string{"cuMulticastAddDevice@0:101x1", "cuMulticastBindMem@0:802x2~5",
				"cuMulticastBindMem@0:47x1", "cuMemMap@0:401x1"}, ","))
		}
		t.Run(name, func(t *testing.T) {
			if out, err := run(t, program, env, name); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
