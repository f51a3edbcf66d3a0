package conformance_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/device/conformance"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/native"
	"github.com/mscclpp-go/mscclpp/framework/kernel/image"
)

const (
	envToy   = "CONFORMANCE_TOY" // the shared object, for other processes
	toyFiles = "../../../examples/vendor-device/device"
)

func TestMain(m *testing.M) {
	if conformance.IsChild() {
		if err := child(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	var err error
	if made, err = os.MkdirTemp("", "mscclpp-conformance-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(made)
	os.Exit(code)
}

// matching is the filter for tests; nil for all of them.
func matching(text string) *regexp.Regexp {
	if text == "" {
		return nil
	}
	return regexp.MustCompile(text)
}

// made is a folder for what the compilers make, once for all tests of the process.
var made string

func child() error {
	if os.Getenv(envToy) == "" {
		b, err := cuda.Backend()
		if err != nil {
			return err
		}
		return conformance.Child(b)
	}
	b, err := load(os.Getenv(envToy))
	if err != nil {
		return err
	}
	return conformance.Child(b)
}

func load(path string) (*native.Backend, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return native.Load(f, path)
}

// compiled is the toy as a shared object.
func compiled(t *testing.T) string {
	t.Helper()
	out := filepath.Join(made, "libtoy.so")
	if _, err := os.Stat(out); err == nil {
		return out
	}
	cxx := os.Getenv("CXX")
	if cxx == "" {
		cxx = "g++"
	}
	if _, err := exec.LookPath(cxx); err != nil || runtime.GOARCH != "amd64" {
		t.Skip("needs a C++ compiler, and amd64")
	}
	sources, err := filepath.Glob(filepath.Join(toyFiles, "*.cc"))
	if err != nil || len(sources) == 0 {
		t.Fatalf("sources of the toy: %v, %v", sources, err)
	}
	args := []string{"-std=c++17", "-O0", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread", "-I../native/include", "-o", out}
	if text, err := exec.CommandContext(t.Context(), cxx, append(args, sources...)...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cxx, err, text)
	}
	return out
}

// kernels is the suite's image for the toy, which takes those of this processor.
func kernels(t *testing.T) []byte {
	t.Helper()
	targets, err := image.ParseTargets("x86-64-v2")
	if err != nil {
		t.Fatal(err)
	}
	spec, err := image.ReadSpec("kernels/kernels.json")
	if err != nil {
		t.Fatal(err)
	}
	m, err := image.Build(t.Context(), spec, made, image.Options{Targets: targets})
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(made, m.Images[0].File))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func options(t *testing.T, path string) conformance.Options {
	t.Helper()
	b, err := load(path)
	if err != nil {
		t.Fatal(err)
	}
	return conformance.Options{
		Backend: b, Index: 1, Options: "memory=67108864\n", Image: kernels(t),
		Child: &conformance.Command{Path: "/proc/self/exe", Env: []string{envToy + "=" + path}},
	}
}

// The toy keeps every rule. Tests of abilities that it lacks are skipped, and known here.
func TestToyConforms(t *testing.T) {
	o := options(t, compiled(t))
	o.Progress = func(r conformance.Result) { t.Log(r) }
	report, err := conformance.Suite(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, r := range report.Results {
		if r.Error != "" {
			t.Error(r)
		}
		if r.Lacks != "" {
			left = append(left, r.Name)
		}
	}
	if got, want := strings.Join(left, " "), "memory/placed memory/view stream/numbers event/all graph/times "+
		"multicast/window multicast/ranges multicast/again multicast/other-process multicast/garbage multicast/strangers"; got != want {
		t.Errorf("not run: %s: expected %s", got, want)
	}
	t.Log(report.Summary())
}
