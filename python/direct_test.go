package python

import (
	"path/filepath"
	"strings"
	"testing"
)

// Calls that C makes with objects of Python have the results and the errors of those by ctypes, keep nothing, and let other threads run.
func TestDirectCalls(t *testing.T) {
	newest(t, "nothing else", anyPython)
	for _, p := range interpreters() {
		t.Run(p.name(), func(t *testing.T) { direct(t, p) })
	}
}

// The same with tensors of torch, which are there in the tests with torch alone.
func TestTorchDirectCalls(t *testing.T) {
	direct(t, newest(t, "torch 2.11", hasTorch), "torch")
}

func direct(t *testing.T, p interpreter, more ...string) {
	t.Helper()
	env := []string{"DIRECT_GO=" + filepath.Join(t.TempDir(), "go")}
	text, err := run(t, p, 2, env, append([]string{"-W", "ignore", "tests/direct.py", "host"}, more...)...)
	if err != nil || strings.Count(text, " is done\n") != 2 {
		t.Errorf("%v\n%s", err, text)
	}
}

// Arrays on GPUs that stand for those of torch and CuPy go on the current stream of their package, or on that which is given.
func TestDirectCallsOnGPUs(t *testing.T) {
	newest(t, "nothing else", anyPython)
	for _, p := range interpreters() {
		t.Run(p.name(), func(t *testing.T) { onGPUs(t, p, 2, "tests/direct.py", "cuda") })
	}
}
