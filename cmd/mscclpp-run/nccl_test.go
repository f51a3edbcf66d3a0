package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNCCLLibrary(t *testing.T) {
	code, _, errs := runs(command(t, "nccl"))
	if code != 1 || !strings.Contains(errs, "no libnccl.so.2") {
		t.Errorf("without the library: code %d, %q", code, errs)
	}
	code, _, errs = runs(command(t, "-n", "1", "--nccl", "true"))
	if code != 1 || !strings.Contains(errs, "no libnccl.so.2") {
		t.Errorf("a job without the library: code %d, %q", code, errs)
	}

	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(filepath.Dir(self), "lib")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "libnccl.so.2")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if code, out, errs := runs(command(t, "nccl")); code != 0 || out != path+"\n" {
		t.Errorf("code %d, %q, %s, expected %s", code, out, errs, path)
	}
	c := command(t, "-n", "2", "--nccl", "sh", "-c", "echo $LD_PRELOAD")
	c.Env = append(c.Env, "LD_PRELOAD=/other.so")
	// The loader says that neither is a library; the shell runs nevertheless.
	if code, out, errs := runs(c); code != 0 || !strings.Contains(out, path+":/other.so\n"+path+":/other.so\n") {
		t.Errorf("code %d, %q, %s, expected LD_PRELOAD=%s:/other.so", code, out, errs, path)
	}
}
