package kernel_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// compiled runs a compiler over testdata/records.cc.
func compiled(t *testing.T, compiler string, args ...string) []byte {
	t.Helper()
	path, err := exec.LookPath(compiler)
	if err != nil {
		t.Skipf("no compiler %s", compiler)
	}
	out := filepath.Join(t.TempDir(), "out")
	args = append(args, "-std=c++17", "-O3", "-Iinclude", "testdata/records.cc", "-o", out)
	if text, err := exec.Command(path, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// hot counts the instructions that a function executes while records are off: it has no loop, and what is seldom taken
// stands behind its last return.
func hot(assembly []byte, function string) int {
	_, body, _ := bytes.Cut(assembly, []byte("\n"+function+":\n"))
	n := 0
	for line := range strings.Lines(string(body)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, ".") || strings.HasPrefix(line, "#") || strings.HasSuffix(line, ":") {
			continue
		}
		n++
		if line == "ret" {
			return n
		}
	}
	return -1
}

// While no records are wanted a put, a signal and a wait cost at most two instructions more than without them.
func TestRecordsThatAreOffCostTwoInstructions(t *testing.T) {
	flags := []string{"-S", "-fPIC", "-fno-asynchronous-unwind-tables", "-fcf-protection=none"}
	with := compiled(t, "g++", flags...)
	without := compiled(t, "g++", append(flags, "-DMSCCLPP_RECORDS=0")...)
	for _, function := range []string{"put", "get", "signal", "relaxed_signal", "wait", "relaxed_wait"} {
		a, b := hot(with, function), hot(without, function)
		if b <= 1 || a < b || a > b+2 {
			t.Errorf("%s: %d instructions with records, %d without: expected at most two more", function, a, b)
		}
	}
}

// Compilers for GPUs see no records in the headers, so images are the same as without.
func TestGPUsSeeNoRecords(t *testing.T) {
	for _, flags := range [][]string{
		{"-x", "cuda", "--cuda-device-only", "-nocudainc", "-nocudalib", "--cuda-gpu-arch=sm_80"},
		{"-x", "hip", "--cuda-device-only", "-nogpuinc", "-nogpulib", "--offload-arch=gfx942"},
	} {
		flags = append(flags, "-E", "-P")
		text := compiled(t, "clang++-19", flags...)
		if found := regexp.MustCompile(`(?i)\w*record\w*`).FindAll(text, 3); found != nil {
			t.Errorf("%s: a compiler sees %q", flags[1], found)
		}
		if !bytes.Contains(text, []byte("wait_until")) {
			t.Errorf("%s: the output has no waits", flags[1])
		}
	}
}
