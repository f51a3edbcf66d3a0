package conformance_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
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
	if _, err := os.Stat(out); err != nil {
		compile(t, "-shared", append([]string{"-o", out}, objects(t)...)...)
	}
	return out
}

// objects are the toy's, one for each of its sources.
func objects(t *testing.T) (all []string) {
	t.Helper()
	sources, err := filepath.Glob(filepath.Join(toyFiles, "*.cc"))
	if err != nil || len(sources) == 0 {
		t.Fatalf("sources of the toy: %v, %v", sources, err)
	}
	for _, source := range sources {
		out := filepath.Join(made, filepath.Base(source)+".o")
		if _, err := os.Stat(out); err != nil {
			compile(t, "-c", "-o", out, source)
		}
		all = append(all, out)
	}
	return all
}

// compile calls the compiler.
func compile(t *testing.T, step string, args ...string) {
	t.Helper()
	cxx := os.Getenv("CXX")
	if cxx == "" {
		cxx = "g++"
	}
	if _, err := exec.LookPath(cxx); err != nil || runtime.GOARCH != "amd64" {
		t.Skip("needs a C++ compiler, and amd64")
	}
	args = append([]string{step, "-std=c++17", "-O0", "-fPIC", "-fvisibility=hidden", "-pthread", "-I../native/include", "-I" + toyFiles}, args...)
	if text, err := exec.CommandContext(t.Context(), cxx, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cxx, err, text)
	}
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

// The suite finds links that cannot be right: one that changes, one that does not lead back, and one to memory that is not
// reached.
func TestLinksThatBreakTheRules(t *testing.T) {
	for name, x := range map[string]struct{ file, was, is, want string }{
		"another count each time": {"table.cc", "l->count = 2", "static int n; l->count = 1 + n++ % 7", "links/same links/both-ways"},
		"a link in one direction": {"table.cc", "if (other == d->index ||", "if (other <= d->index ||", "links/both-ways"},
		"one that is quicker":     {"table.cc", "l->rate = 8000000000", "l->rate = 8000000000 + d->index", "links/both-ways"},
		"one that is not reached": {"memory.cc", "other >= 0 && other < kDevices;", "other == 0;", "links/reached"},
		"devices of one name":     {"table.cc", "name(of(device)->index, i->uuid)", "name(of(device)->index == 0 ? 1 : of(device)->index, i->uuid)", "links/both-ways links/reached"},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(toyFiles, x.file))
			if err != nil || strings.Count(string(text), x.was) != 1 {
				t.Fatalf("%s: %v: expected %q in it once", x.file, err, x.was)
			}
			dir := t.TempDir()
			changed, object, out := filepath.Join(dir, x.file), filepath.Join(dir, x.file+".o"), filepath.Join(dir, "libtoy.so")
			if err := os.WriteFile(changed, []byte(strings.Replace(string(text), x.was, x.is, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			compile(t, "-c", "-o", object, changed)
			parts := objects(t)
			parts[slices.Index(parts, filepath.Join(made, x.file+".o"))] = object
			compile(t, "-shared", append([]string{"-o", out}, parts...)...)
			b, err := load(out)
			if err != nil {
				t.Fatal(err)
			}
			report, err := conformance.Suite(t.Context(), conformance.Options{Backend: b, Index: 1, Options: "memory=67108864\n", Match: matching("^links/")})
			if err != nil {
				t.Fatal(err)
			}
			var failed []string
			for _, r := range report.Results {
				if r.Error != "" {
					failed = append(failed, r.Name)
				}
			}
			if got := strings.Join(failed, " "); got != x.want {
				t.Errorf("found by %q: expected %q: %v", got, x.want, report.Results)
			}
		})
	}
}
