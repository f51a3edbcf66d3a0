package stream

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The engine alone, under sanitizers: a peer that sends arbitrary frames, and two that
// send sensible ones (testdata/hammer.c).
func TestUnderSanitizers(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("a C compiler is not installed")
	}
	dir := t.TempDir()
	build := func(what string, sources ...string) (string, error) {
		program := filepath.Join(dir, what)
		args := append([]string{"-O1", "-g", "-std=gnu11", "-I../kernel/include", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-o", program}, sources...)
		out, err := exec.CommandContext(t.Context(), cc, append(args, "-lpthread")...).CombinedOutput()
		if err != nil {
			err = errors.New(string(out))
		}
		return program, err
	}
	if _, err := build("empty", "testdata/empty.c"); err != nil {
		t.Skipf("no sanitizers with this compiler: %v", err)
	}
	hammer, err := build("hammer", "testdata/hammer.c", "engine.c", "in.c", "out.c", "link.c")
	if err != nil {
		t.Fatal(err)
	}
	rounds := "40"
	if testing.Short() {
		rounds = "5"
	}
	for _, seed := range []string{"1", "2", "3"} {
		if out, err := exec.CommandContext(t.Context(), hammer, seed, rounds).CombinedOutput(); err != nil {
			t.Errorf("seed %s: %v\n%s", seed, err, strings.TrimSpace(string(out)))
		}
	}
}
