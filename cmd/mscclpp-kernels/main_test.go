package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// project writes a spec with one kernel and returns its file.
func project(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("g++"); err != nil {
		t.Skip("no g++")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"clear.cc":     "#include <mscclpp/device.h>\nstruct Args { uint32_t* word; };\nMSCCLPP_KERNEL(clear, Args, a) { *a.word = 0; }\n",
		"kernels.json": `{"name": "mine", "families": [{"name": "clear", "sources": ["clear.cc"]}]}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "kernels.json")
}

func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	c := command()
	c.SetArgs(args)
	c.SetOut(&out)
	c.SetErr(&out)
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

func TestBuildThenCheck(t *testing.T) {
	spec, dir := project(t), t.TempDir()
	out, err := run(t, "build", "--spec", spec, "--target", "x86-64-v2", "--out", dir)
	if err != nil || !strings.Contains(out, "mine: 1 images in ") {
		t.Fatalf("build: %v\n%s", err, out)
	}
	if _, err := os.Stat(filepath.Join(dir, "clear-x86-64-v2.so")); err != nil {
		t.Error(err)
	}
	out, err = run(t, "check", "--spec", spec, "--target", "x86-64-v2", "--out", dir)
	if err != nil || !strings.Contains(out, "mine: 1 images equal a new build") {
		t.Errorf("check: %v\n%s", err, out)
	}
	if err := os.Truncate(filepath.Join(dir, "clear-x86-64-v2.so"), 100); err != nil {
		t.Fatal(err)
	}
	if out, err = run(t, "check", "--spec", spec, "--target", "x86-64-v2", "--out", dir); err == nil {
		t.Errorf("check passed an image that was cut off:\n%s", out)
	}
}

func TestBadArguments(t *testing.T) {
	spec, dir := project(t), t.TempDir()
	for want, args := range map[string][]string{
		"required":     {"build", "--out", dir},
		"no such file": {"build", "--spec", spec + "x", "--out", dir},
		"x86-64-v3":    {"build", "--spec", spec, "--target", "x86-64-v9", "--out", dir},
		"manifest":     {"check", "--spec", spec, "--out", dir},
		"device.h":     {"build", "--spec", spec, "--target", "x86-64-v2", "--include", dir, "--out", dir},
		"unknown":      {"paint"},
	} {
		if out, err := run(t, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, expected an error with %q\n%s", args, err, want, out)
		}
	}
}
