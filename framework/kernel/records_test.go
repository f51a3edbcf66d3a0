package kernel_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
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

// A launch whose pieces are short writes no record of each, and a peer gets one record of several signals that follow closely. Long pieces
// are written, between the launch's begin and its sums.
func TestShortPiecesAreSumsAlone(t *testing.T) {
	path, err := exec.LookPath("g++")
	if err != nil || runtime.GOARCH != "amd64" {
		t.Skip("needs g++ and a time-stamp counter")
	}
	out := filepath.Join(t.TempDir(), "recorder")
	if text, err := exec.Command(path, "-std=c++17", "-O2", "-Iinclude", "testdata/recorder.cc", "-o", out).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	text, err := exec.Command(out).Output()
	if err != nil {
		t.Fatal(err)
	}
	const want = "short: 136.2.1 136.2.2 168.3.1\n" +
		"again: 168.3.1\n" + // 1.7 µs later
		"later: 136.2.1 136.2.2 136.2.1 136.2.2 136.2.1 136.2.2 136.2.1 136.2.2 136.2.1 136.2.2 136.2.1 136.2.2 136.2.1 136.2.2 136.2.1 136.2.2 168.3.1\n" +
		"long: 168.0.-1 140.0.3 140.1.3 148.0.-1 148.1.-1 140.3.3 148.3.-1 144.3.-1 168.1.-1\n"
	if string(text) != want {
		t.Errorf("records of launches, as event, phase and peer:\n%sexpected\n%s", text, want)
	}
}
