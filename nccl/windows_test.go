package nccl

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// windowsOn is the environment of programs whose kernels use windows.
func windowsOn(t *testing.T) []string {
	t.Helper()
	env := onGPUs(t)
	kernel := filepath.Join(t.TempDir(), "kernel.so")
	run(t, exec.Command("cc", "-std=c11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", kernel, "testdata/windows_kernel.c"))
	return append(env, "TEST_KERNEL="+kernel)
}

// Kernels reach the memory of all ranks through windows and meet at barriers, by NCCL's layouts.
func TestWindows(t *testing.T) {
	t.Parallel()
	env := windowsOn(t)
	for _, n := range []int{2, 4} {
		ranksWith(t, "windows.c", n, env)
	}
	ranksWith(t, "windows_one.c", 1, env)
}

// A rank that dies while others register is named to them.
func TestWindowsKilled(t *testing.T) {
	t.Parallel()
	ranksWith(t, "windows_killed.c", 3, windowsOn(t), 2)
}

// Registrations are windows where the program promises that all ranks register together, and nothing otherwise.
func TestRegistered(t *testing.T) {
	t.Parallel()
	for variable, windows := range map[string]int{"MSCCLPP_NCCL_REGISTER=symmetric": 4, "MSCCLPP_NCCL_REGISTER=local": 0, "TEST_NOTHING=": 0} {
		for _, said := range ranksWith(t, "registered.c", 2, onGPUs(t, variable, "NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=REG")) {
			if n := strings.Count(said, ": all ranks are at "); n != windows || strings.Contains(said, " is NULL, which") != (windows > 0) {
				t.Errorf("%s: %d windows, expected %d:\n%s", variable, n, windows, said)
			}
		}
	}
}
