package actor_test

import (
	"os/exec"
	"testing"
)

// The program that tests the primitives on a GPU compiles on a machine that has none: it is
// packed there, and run elsewhere.
func TestDeviceTestCompiles(t *testing.T) {
	cxx, err := exec.LookPath("g++")
	if err != nil {
		t.Skip("no compiler")
	}
	c := exec.CommandContext(t.Context(), cxx, "-std=c++17", "-fsyntax-only", "-I../include", "devicetest/main.cc")
	if text, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}
