package capi

import (
	"context"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/collectives/collectivetest"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/launch"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if dir := built.dir; dir != "" {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// built is an installation: lib has the library, and the plugins beside it.
var built struct {
	sync.Once
	dir string
	err error
}

// installed returns the folder of an installation, which the first test makes.
func installed(t *testing.T) string {
	t.Helper()
	compiler(t, "cc")
	built.Do(func() { built.err = install(t.Context()) })
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.dir
}

func install(ctx context.Context) (err error) {
	if built.dir, err = os.MkdirTemp("", "mscclpp-capi-test-*"); err != nil {
		return err
	}
	lib := filepath.Join(built.dir, "lib")
	for _, command := range [][]string{
		{"../scripts/capi.sh", lib},
		{"go", "build", "-o", lib + "/mscclpp/plugins/", "../transports/shm/cmd/mscclpp-transport-shm", "../transports/cudaipc/cmd/mscclpp-transport-cudaipc"},
	} {
		if text, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w\n%s", command, err, text)
		}
	}
	return nil
}

func compiler(t *testing.T, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("no compiler: %v", err)
	}
}

// compile makes a program of files in C, linked with the library.
func compile(t *testing.T, files ...string) string {
	t.Helper()
	lib := filepath.Join(installed(t), "lib")
	out := filepath.Join(t.TempDir(), "program")
	args := append([]string{"-std=c11", "-Wall", "-Wextra", "-Werror", "-pthread", "-I.", "-o", out}, files...)
	if text, err := exec.Command("cc", append(args, "-L"+lib, "-lmscclpp", "-lm", "-Wl,-rpath,"+lib)...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return out
}

// limit is how long a program may run, which takes seconds unless the machine is very busy.
const limit = 10 * time.Minute

// job runs a program as ranks, and returns their output.
func job(t *testing.T, ranks int, program string, args ...string) string {
	t.Helper()
	return jobWith(t, []string{"MSCCLPP_TRANSPORT__SHM__IMAGES=" + collectivetest.HostImages(t)}, ranks, program, args...)
}

// jobWith is job with variables.
func jobWith(t *testing.T, env []string, ranks int, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	out := &output{}
	l, id, err := bootstrap.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	plan := launch.Job{Place: launch.Place{Local: ranks, World: ranks, Nodes: 1, MasterAddr: "127.0.0.1"}, UniqueID: id.String(), Grace: time.Second, Linger: time.Second}
	if plan.Listener, err = l.File(); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	plan.Path, plan.Args, plan.Stdout, plan.Stderr = program, append([]string{program}, args...), out, out
	plan.Env = append([]string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}, env...)
	result, err := launch.Run(ctx, plan)
	if err != nil || result.Code != 0 {
		t.Fatalf("%s: code %d, %v\n%s", program, result.Code, err, out.String())
	}
	return out.String()
}

// output collects the output of all ranks.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// alone runs a program that is no rank of a launcher.
func alone(t *testing.T, program string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	c := exec.CommandContext(ctx, program, args...)
	c.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), "MSCCLPP_TRANSPORT__SHM__IMAGES=" + collectivetest.HostImages(t)}
	if text, err := c.CombinedOutput(); err != nil || !strings.HasSuffix(string(text), " is done\n") {
		t.Errorf("%v: %v\n%s", args, err, text)
	}
}

// headers returns the names of the headers.
func headers(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*.h")
	if err != nil || !slices.Contains(files, "mscclpp.h") {
		t.Fatalf("%v, %v: expected mscclpp.h among the headers", files, err)
	}
	return files
}

// Each header is C99 and C++17 to strict compilers, included first and without another.
func TestHeader(t *testing.T) {
	for _, x := range []struct{ compiler, language, standard string }{{"cc", "c", "c99"}, {"c++", "c++", "c++17"}} {
		compiler(t, x.compiler)
		for _, header := range headers(t) {
			c := exec.Command(x.compiler, "-x", x.language, "-std="+x.standard, "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", "-I.", "-")
			c.Stdin = strings.NewReader("#include <" + header + ">\nint main(void) {\n" +
				"mscclpp_comm_options_t o = MSCCLPP_COMM_OPTIONS_INIT; mscclpp_launch_options_t l = MSCCLPP_LAUNCH_OPTIONS_INIT;\n" +
				"mscclpp_execute_options_t e = MSCCLPP_EXECUTE_OPTIONS_INIT;\n" +
				"return o.size == sizeof(o) && l.size == sizeof(l) && e.size == sizeof(e) ? MSCCLPP_SUCCESS : MSCCLPP_FAILED; }\n")
			if text, err := c.CombinedOutput(); err != nil {
				t.Errorf("%s, %s: %v\n%s", header, x.standard, err, text)
			}
		}
	}
}

var (
	declared = regexp.MustCompile(`(?m)^(?:[a-z_0-9]+ )+\*?(mscclpp_[a-z_0-9]+)\(`)
	listed   = regexp.MustCompile(`(?m)^ +(mscclpp_[a-z_0-9]+);$`)
)

func namesIn(t *testing.T, file string, pattern *regexp.Regexp) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range pattern.FindAllStringSubmatch(string(text), -1) {
		names = append(names, m[1])
	}
	slices.Sort(names)
	return names
}

// The library exports the functions of the list, and the headers declare the same.
func TestSymbols(t *testing.T) {
	golden := namesIn(t, "libmscclpp/exports.map", listed)
	var header []string
	for _, file := range headers(t) {
		header = append(header, namesIn(t, file, declared)...)
	}
	slices.Sort(header)
	if !slices.Equal(header, golden) || len(golden) < 30 {
		t.Errorf("the headers declare\n%v\nexpected\n%v", header, golden)
	}
	f, err := elf.Open(filepath.Join(installed(t), "lib", "libmscclpp.so.1"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	var exported []string
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF {
			exported = append(exported, s.Name)
		}
	}
	slices.Sort(exported)
	if !slices.Equal(exported, golden) {
		t.Errorf("the library exports\n%v\nexpected\n%v", exported, golden)
	}
	if name, err := f.DynString(elf.DT_SONAME); err != nil || !slices.Equal(name, []string{"libmscclpp.so.1"}) {
		t.Errorf("SONAME %v, %v", name, err)
	}
	if flags, err := f.DynValue(elf.DT_FLAGS_1); err != nil || len(flags) != 1 || flags[0]&uint64(elf.DF_1_NODELETE) == 0 {
		t.Errorf("flags %x, %v: expected NODELETE", flags, err)
	}
}

func TestExample(t *testing.T) {
	out := job(t, 2, compile(t, "example/allreduce.c"))
	for _, want := range []string{"rank 0 of 2: 1000 sums are right\n", "rank 1 of 2: 1000 sums are right\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q: expected %q", out, want)
		}
	}
}

// image compiles the kernel of the example.
func image(t *testing.T, command ...string) string {
	t.Helper()
	compiler(t, command[0])
	out := filepath.Join(t.TempDir(), "image")
	args := append(command[1:], "-std=c++17", "-O2", "-I../framework/kernel/include", "example/exchange.cc", "-o", out)
	if text, err := exec.Command(command[0], args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return out
}

func hostImage(t *testing.T) string { return image(t, "c++", "-shared", "-fPIC") }

// A program brings its own kernel.
func TestExampleWithAKernel(t *testing.T) {
	out := jobWith(t, nil, 2, compile(t, "example/exchange.c"), hostImage(t))
	for _, want := range []string{"rank 0: 1000 numbers of the peer are right\n", "rank 1: 1000 numbers of the peer are right\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q: expected %q", out, want)
		}
	}
}

// The same on the host and on emulated GPUs, which interpret the kernel's PTX; what is refused, and that none is
// launched after a failure.
func TestKernels(t *testing.T) {
	client := client(t)
	t.Run("host", func(t *testing.T) {
		if out := jobWith(t, []string{"IMAGE=" + hostImage(t)}, 2, client, "kernels"); strings.Count(out, "kernels is done\n") != 2 {
			t.Errorf("%q: expected two ranks to be done", out)
		}
	})
	t.Run("cuda", func(t *testing.T) {
		driver := emulated.Build(t)
		ptx := image(t, "clang++-19", "-x", "cuda", "-fno-exceptions", "-fno-rtti", "--cuda-device-only", "-nocudainc", "-nocudalib", "--cuda-gpu-arch=sm_80",
			"--cuda-feature=+ptx70", "-DMSCCLPP_PTX=70", "-DMSCCLPP_MAX_THREADS=512", "-S")
		env := []string{cuda.EnvLibrary + "=" + driver, "LD_LIBRARY_PATH=" + filepath.Dir(driver), emulated.EnvRun + "=ptx", emulated.EnvMemory + "=1073741824", "IMAGE=" + ptx}
		if out := jobWith(t, env, 2, client, "kernels"); strings.Count(out, "kernels is done\n") != 2 {
			t.Errorf("%q: expected two ranks to be done", out)
		}
	})
}

func client(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.c")
	if err != nil {
		t.Fatal(err)
	}
	return compile(t, files...)
}

func TestClient(t *testing.T) {
	client := client(t)
	for _, part := range []string{"handles", "versions", "forks", "threads", "aborts", "proxies", "plans"} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			alone(t, client, part)
		})
	}
	plan, err := filepath.Abs("../plan/verify/testdata/right/allreduce_packets.json")
	if err != nil {
		t.Fatal(err)
	}
	for part, ranks := range map[string]int{"collectives": 3, "channels": 2, "executors": 2, "registered": 2, "rows": 3} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			env := []string{"MSCCLPP_TRANSPORT__SHM__IMAGES=" + collectivetest.HostImages(t), "PLAN=" + plan}
			if out := jobWith(t, env, ranks, client, part); strings.Count(out, part+" is done\n") != ranks {
				t.Errorf("%q: expected %d ranks to be done", out, ranks)
			}
		})
	}
}

// A client on emulated GPUs has its own streams and memory, and captures a call into a graph; it repeats calls, which the library makes
// without Go then.
func TestDevice(t *testing.T) {
	driver := emulated.Build(t)
	kernels := emulated.Images(t, emulated.Source{Spec: "../collectives/image/kernels.json", Types: []string{"f32"}},
		emulated.Source{Spec: "../collectives/internal/scaling/kernels/kernels.json", Images: "../collectives/internal/scaling/image", Types: []string{"f32"}})
	client := client(t)
	env := []string{
		cuda.EnvLibrary + "=" + driver, "LD_LIBRARY_PATH=" + filepath.Dir(driver), emulated.EnvImages + "=" + kernels, emulated.EnvMemory + "=1073741824",
	}
	for _, part := range []string{"device", "spinning", "repeated", "interrupted"} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			if out := jobWith(t, env, 2, client, part); strings.Count(out, part+" is done\n") != 2 {
				t.Errorf("%q: expected two ranks to be done", out)
			}
		})
	}
}
