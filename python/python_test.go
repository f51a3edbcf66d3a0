package python

import (
	"context"
	"debug/elf"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// An interpreter is a Python that the package is for.
type interpreter struct {
	Path    string
	Version []int
	NumPy   bool
	Torch   string // its version, where it is there
}

func (p interpreter) name() string { return fmt.Sprintf("%d.%d", p.Version[0], p.Version[1]) }

// describe is a program that prints an interpreter, without loading what is large.
const describe = `import importlib.metadata as m, importlib.util as u, json, sys
def version(name):
    try: return m.version(name)
    except Exception: return ""
print(json.dumps({"Path": sys.executable, "Version": sys.version_info[:2], "NumPy": u.find_spec("numpy") is not None, "Torch": version("torch")}))`

// interpreters returns one for each version, in rising order. The variable MSCCLPP_TEST_PYTHON, a list of paths as in PATH,
// comes first: of two with one version the earlier counts.
var interpreters = sync.OnceValue(func() []interpreter {
	candidates := filepath.SplitList(os.Getenv("MSCCLPP_TEST_PYTHON"))
	for _, name := range []string{"python3", "python3.10", "python3.11", "python3.12", "python3.13", "python3.14"} {
		if path, err := exec.LookPath(name); err == nil {
			candidates = append(candidates, path)
		}
	}
	if home, err := os.UserHomeDir(); err == nil { // pyenv offers one of them in PATH
		more, _ := filepath.Glob(filepath.Join(home, ".pyenv/versions/3.1*/bin/python3")) // the pattern is right
		candidates = append(candidates, more...)
	}
	var found []interpreter
	for _, path := range candidates {
		text, err := exec.Command(path, "-c", describe).Output()
		if err != nil {
			continue // a shim of what is not there
		}
		var p interpreter
		if json.Unmarshal(text, &p) != nil || p.Version[0] != 3 || p.Version[1] < 10 {
			continue
		}
		if !slices.ContainsFunc(found, func(q interpreter) bool { return q.Version[1] == p.Version[1] }) {
			found = append(found, p)
		}
	}
	slices.SortFunc(found, func(p, q interpreter) int { return p.Version[1] - q.Version[1] })
	return found
})

// without returns how a test ends on a machine that has not what it needs: it is skipped, or fails where the variable MSCCLPP_TEST_PYTHON names a Python, so
// that nothing is left out unseen.
func without(t *testing.T) func(format string, args ...any) {
	t.Helper()
	if os.Getenv("MSCCLPP_TEST_PYTHON") != "" {
		return t.Fatalf
	}
	return t.Skipf
}

// newest returns the newest interpreter that has what a test needs.
func newest(t *testing.T, what string, has func(interpreter) bool) interpreter {
	t.Helper()
	all := interpreters()
	for i := len(all) - 1; i >= 0; i-- {
		if has(all[i]) {
			return all[i]
		}
	}
	without(t)("no Python from 3.10 on with %s", what)
	return interpreter{}
}

// tree returns the folder of the source tree, which has to be built, and looks at all files of the package: results of tests
// are kept only as long as they are the same.
func tree(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"bin/mscclpp-run", "bin/lib/libmscclpp.so.1", "bin/plugins/mscclpp-transport-shm", "bin/plugins/mscclpp-transport-shm.kernels/manifest.json"} {
		if _, err := os.Stat(filepath.Join(root, file)); err != nil {
			without(t)("not built: %v: make build kernels", err)
		}
	}
	for _, folder := range []string{"mscclpp", "tests", "backend", "../examples/python"} {
		err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".py") {
				_, err = os.ReadFile(path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// limit ends a program that hangs.
const limit = 6 * time.Minute

// environment returns the variables of a program, in which nothing of the machine decides the outcome. Nothing ends that a busy machine makes slow: ranks
// start far apart, and those behind a failure or a signal are yet to report.
func environment(t *testing.T, root string, more ...string) []string {
	t.Helper()
	return append([]string{
		"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), "PYTHONPATH=" + filepath.Join(root, "python"),
		"PYTHONDONTWRITEBYTECODE=1", "OMP_NUM_THREADS=1", "MSCCLPP_LOG__LEVEL=error",
		"MSCCLPP_BOOTSTRAP__TIMEOUT=5m", "MSCCLPP_PLUGINS__START_TIMEOUT=5m", "MSCCLPP_LAUNCH__LINGER=5m", "MSCCLPP_LAUNCH__GRACE=5m",
	}, more...)
}

// run runs a program of Python, as so many ranks, or by itself for 0. It returns its output and whether it has succeeded.
func run(t *testing.T, p interpreter, ranks int, env []string, args ...string) (string, error) {
	t.Helper()
	root := tree(t)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	command := append([]string{p.Path}, args...)
	if ranks > 0 {
		command = append([]string{filepath.Join(root, "bin/mscclpp-run"), "-n", fmt.Sprint(ranks), "--"}, command...)
	}
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	c.Env = environment(t, root, env...)
	text, err := c.CombinedOutput()
	return string(text), err
}

// done runs a program, each rank of which ends with the line "rank N is done".
func done(t *testing.T, p interpreter, ranks int, args ...string) {
	t.Helper()
	text, err := run(t, p, ranks, nil, args...)
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, text)
	}
	for r := range ranks {
		if !strings.Contains(text, fmt.Sprintf("rank %d is done\n", r)) {
			t.Errorf("%v: rank %d has not said that it is done:\n%s", args, r, text)
		}
	}
}

func anyPython(interpreter) bool { return true }

// On every Python the collectives give what they promise, over Python's own arrays.
func TestCollectives(t *testing.T) {
	newest(t, "nothing else", anyPython)
	for _, p := range interpreters() {
		t.Run(p.name(), func(t *testing.T) { done(t, p, 3, "tests/collectives.py") })
	}
}

// Errors, bad input and ends that one process can see, on every Python.
func TestAlone(t *testing.T) {
	newest(t, "nothing else", anyPython)
	for _, p := range interpreters() {
		t.Run(p.name(), func(t *testing.T) {
			if text, err := run(t, p, 0, nil, "-X", "dev", "-W", "error", "tests/alone.py"); err != nil {
				t.Errorf("%v\n%s", err, text)
			}
		})
	}
}

// An import takes 50 ms of a processor, with bytecode, as an installed package has it: the least of some processes, for others share the processor.
func TestImportTime(t *testing.T) {
	newest(t, "nothing else", anyPython)
	for _, p := range interpreters() {
		t.Run(p.name(), func(t *testing.T) {
			env := []string{"PYTHONDONTWRITEBYTECODE=", "PYTHONPYCACHEPREFIX=" + t.TempDir()}
			least := time.Hour
			for range 5 {
				text, err := run(t, p, 0, env, "-c", "import time; begun = time.process_time_ns(); import mscclpp; print(time.process_time_ns() - begun)")
				took, failed := time.ParseDuration(strings.TrimSpace(text) + "ns")
				if err != nil || failed != nil {
					t.Fatalf("%v, %v\n%s", err, failed, text)
				}
				least = min(least, took)
			}
			if least > 50*time.Millisecond {
				t.Errorf("it takes %v", least)
			}
		})
	}
}

// The example that people copy.
func TestExample(t *testing.T) {
	p := newest(t, "nothing else", anyPython)
	text, err := run(t, p, 4, nil, "../examples/python/allreduce.py")
	if err != nil || strings.Count(text, "of 4: 1000 sums are right\n") != 4 {
		t.Errorf("%v\n%s", err, text)
	}
}

// The package declares every function of the library, and knows its constants.
func TestInterface(t *testing.T) {
	p := newest(t, "nothing else", anyPython)
	exports, err := os.ReadFile("../capi/libmscclpp/exports.map")
	if err != nil {
		t.Fatal(err)
	}
	var functions []string
	for _, m := range regexp.MustCompile(`(?m)^ +mscclpp_([a-z_0-9]+);$`).FindAllStringSubmatch(string(exports), -1) {
		functions = append(functions, m[1])
	}
	slices.Sort(functions)
	header, err := os.ReadFile("../capi/mscclpp.h")
	if err != nil {
		t.Fatal(err)
	}
	var constants []string
	for _, m := range regexp.MustCompile(`(?m)^  MSCCLPP_([A-Z_0-9]+) = (\d+)`).FindAllStringSubmatch(string(header), -1) {
		constants = append(constants, m[1]+"="+m[2])
	}
	slices.Sort(constants)
	abi := regexp.MustCompile(`#define MSCCLPP_ABI_VERSION (\d+)`).FindSubmatch(header)
	text, err := run(t, p, 0, nil, "-c", `
import mscclpp, re
from mscclpp import _library
print(*sorted([*_library.FUNCTIONS, *_library._OTHERS, *_library._UNDER_THE_LOCK]))
names = {"InvalidUsage": "INVALID"}
upper = lambda n: names.get(n) or re.sub("(?<=[a-z])(?=[A-Z])", "_", n).upper().removesuffix("FN")
print(*sorted(f"{upper(e.name)}={int(e)}" for c in (mscclpp.ErrorCode, mscclpp.DataType, mscclpp.ReduceOp) for e in c))
print(_library.ABI)`)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	constants = slices.DeleteFunc(constants, func(c string) bool { return strings.HasPrefix(c, "LOG_") || c == "SUCCESS=0" })
	want := strings.Join(functions, " ") + "\n" + strings.Join(constants, " ") + "\n" + string(abi[1]) + "\n"
	if text != want || len(functions) < 50 {
		t.Errorf("the package has\n%sexpected\n%s", text, want)
	}
}

// The glibc that the wheel's tag names is what the binaries need.
func TestGlibcNeeded(t *testing.T) {
	p := newest(t, "nothing else", anyPython)
	root := tree(t)
	files := []string{"bin/mscclpp-run", "bin/lib/libmscclpp.so.1", "bin/plugins/mscclpp-transport-shm", "Makefile"}
	script := "import sys; sys.path.insert(0, 'backend'); import mscclpp_backend as b\nfor f in sys.argv[1:]: print(*b.glibc_needed(f))"
	var want strings.Builder
	args := []string{"-c", script}
	for _, file := range files {
		args = append(args, filepath.Join(root, file))
		fmt.Fprintln(&want, glibc(t, filepath.Join(root, file)))
	}
	if text, err := run(t, p, 0, nil, args...); err != nil || text != want.String() {
		t.Errorf("%v\n%sexpected\n%s", err, text, want.String())
	}
}

// glibc returns the newest version of glibc that a file asks for, as two numbers.
func glibc(t *testing.T, path string) string {
	t.Helper()
	newest := [2]int{}
	f, err := elf.Open(path)
	if err != nil {
		return "0 0" // no program
	}
	defer f.Close()
	symbols, err := f.ImportedSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		var v [2]int
		if n, _ := fmt.Sscanf(s.Version, "GLIBC_%d.%d", &v[0], &v[1]); n == 2 && slices.Compare(v[:], newest[:]) > 0 {
			newest = v
		}
	}
	return fmt.Sprint(newest[0], newest[1])
}
