package nccl

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
)

// standin builds the library that the fallback calls in tests.
func standin(t *testing.T, flags ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "libnccl.so.2")
	library(t) // there is a compiler
	args := []string{"-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-Wl,-soname,libnccl.so.2", "-o", path, "testdata/standin.c", "-ldl", "-lpthread"}
	run(t, exec.Command("cc", append(flags, args...)...))
	return path
}

// other are variables by which operations fall back to a library.
func other(t *testing.T, path, operations string) []string {
	t.Helper()
	return []string{"STANDIN_DIR=" + t.TempDir(), "MSCCLPP_NCCL_LIB_PATH=" + path, "MSCCLPP_FORCE_NCCL_FALLBACK_OPERATION=" + operations}
}

func TestFallback(t *testing.T) {
	t.Parallel()
	path := standin(t, "-DVERSION=22809", "-DLATER")
	ranksWith(t, "fallback.c", 2, environ(t, other(t, path, "allreduce,Broadcast,send")...))
}

// The program has this library instead of the one that it was linked with, which is the one that is called.
func TestFallbackPreloaded(t *testing.T) {
	t.Parallel()
	path := standin(t, "-DVERSION=22809", "-DLATER")
	own := environ(t, append(other(t, path, "allreduce,broadcast,recv"), "LD_PRELOAD="+library(t)+"/libnccl.so.2")...)
	ranksOf(t, compileFor(t, "fallback.c", filepath.Dir(path)), 2, own)
}

// PyTorch opens the library that its wheels bring, for all to see, when it is imported.
func TestFallbackOpenBefore(t *testing.T) {
	t.Parallel()
	path, folder := standin(t, "-DVERSION=22809", "-DLATER"), t.TempDir()
	own := environ(t, append(other(t, path, "allreduce"), "LD_PRELOAD="+library(t)+"/libnccl.so.2:"+path, "TMPDIR="+folder)...)
	for _, line := range ranksWith(t, "refused.c", 2, own) {
		if line != "0 2 \n" {
			t.Errorf("%q: expected a sum of 2", line)
		}
	}
	left, err := filepath.Glob(filepath.Join(folder, "mscclpp-nccl-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("%v %v: expected the copies to be gone", left, err)
	}
}

// Versions before those that made communicators from configurations, and registered memory, do as well.
func TestFallbackToOldVersion(t *testing.T) {
	t.Parallel()
	path := standin(t, "-DVERSION=21003")
	for _, list := range []string{"allreduce", "all"} {
		for _, line := range ranksWith(t, "refused.c", 2, environ(t, other(t, path, list)...)) {
			if line != "0 2 \n" {
				t.Errorf("%s: %q: expected a sum of 2", list, line)
			}
		}
	}
}

func TestFallbackRefused(t *testing.T) {
	t.Parallel()
	path, old := standin(t, "-DVERSION=22809", "-DLATER"), standin(t, "-DVERSION=21003")
	own := library(t) + "/libnccl.so.2"
	with := func(path, list string, more ...string) []string { return append(other(t, path, list), more...) }
	for _, c := range []struct {
		variables []string
		want      string
	}{
		{with("/nonexistent/libnccl.so.2", "all"), "/nonexistent/libnccl.so.2: cannot open"},
		{with("", "all"), "expected MSCCLPP_NCCL_LIB_PATH to name the library"},
		{with(own, "all"), "is this library itself"},
		{with("libnccl.so.2", "all"), "is this library itself"},
		{with("libc.so.6", "all"), "libc.so.6 has no ncclGetVersion"},
		{with(path, "allreduce,allredcue"), `has "allredcue": expected all, or some of allreduce,`},
		{with(path, ","), "expected operations"},
		{with(old, "alltoall"), "which is version 21003, has no ncclAlltoAll"},
		{with(path, "all", "NCCL_COMM_ID=127.0.0.1:1"), "NCCL_COMM_ID are both set"},
		{with(path, "allreduce", "DIFFERENT=MSCCLPP_FORCE_NCCL_FALLBACK_OPERATION=allgather"), "versions differ: rank 0 version 22809 (devel), allreduce by NCCL 22809"},
		{with(path, "allreduce", "DIFFERENT=MSCCLPP_NCCL_LIB_PATH=/nonexistent.so"), "/nonexistent.so: cannot open"},
		{with(path, "allreduce", "DIFFERENT=MSCCLPP_NCCL_LIB_PATH="+old), "allreduce by NCCL 21003"},
	} {
		for rank, line := range ranksWith(t, "refused.c", 2, environ(t, c.variables...)) {
			if !strings.HasPrefix(line, "5 1 ") || !strings.Contains(line, c.want) {
				t.Errorf("rank %d, %v: %s: expected ncclInvalidUsage with %q", rank, c.variables, line, c.want)
			}
		}
	}
	if line := alone(t, "refused.c", "MSCCLPP_NCCL_LIB_PATH=/nonexistent.so"); line != "0 1 \n" {
		t.Errorf("a path without operations: %q: expected no effect", line)
	}
}

// A rank dies while the other library makes its communicator, which that does not know: this library ends the wait of the others.
func TestFallbackRankDies(t *testing.T) {
	t.Parallel()
	path := standin(t, "-DVERSION=22809", "-DLATER")
	said := ranksWith(t, "refused.c", 2, environ(t, append(other(t, path, "all"), "DIFFERENT=STANDIN_DIES=1")...), 1)
	if !strings.Contains(said[0], "6 1 ") || !strings.Contains(said[0], "the fallback's communicator is not made") || !strings.Contains(said[0], "rank 1") {
		t.Errorf("rank 0: %s: expected ncclRemoteError that names rank 1", said[0])
	}
}

// Events order the two libraries where streams do not.
func TestFallbackOrder(t *testing.T) {
	t.Parallel()
	path := standin(t, "-DVERSION=22809", "-DLATER")
	driver := emulated.Build(t)
	kernels := emulatedImages(t, emulated.Source{Spec: "../collectives/image/kernels.json", Types: []string{"f32"}})
	ranksWith(t, "ordered.c", 2, append([]string{
		"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), cuda.EnvLibrary + "=" + driver, "LD_LIBRARY_PATH=" + filepath.Dir(driver),
		emulated.EnvImages + "=" + kernels, emulated.EnvMemory + "=1073741824",
	}, other(t, path, "allreduce")...))
}
