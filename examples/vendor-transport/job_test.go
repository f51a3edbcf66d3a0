package loopnet_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestJob runs a program that does not know loopnet, with job.yaml alone.
func TestJob(t *testing.T) {
	dir := t.TempDir()
	build(t, ".", filepath.Join(dir, "bin")+"/", "./cmd/mscclpp-transport-loopnet")
	tree := tree(t)
	build(t, tree, filepath.Join(dir, "mscclpp-run"), "./cmd/mscclpp-run")
	build(t, tree, filepath.Join(dir, "plugins")+"/", "./transports/shm/cmd/mscclpp-transport-shm")
	build(t, tree, filepath.Join(dir, "pingpong"), "./examples/pingpong")
	config, err := os.ReadFile("job.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "job.yaml"), config, 0o644); err != nil {
		t.Fatal(err)
	}

	text := job(t, dir)
	if n := strings.Count(text, "kind=port transport=loopnet"); n != 2 {
		t.Errorf("%d ranks say that their port channel goes through loopnet, want 2:\n%s", n, text)
	}
	// The options of the file reach the plugin, which is strict about them.
	if err := os.WriteFile(filepath.Join(dir, "job.yaml"), []byte(strings.Replace(string(config), "buffer:", "bufer:", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if text, err := tryJob(t, dir); err == nil || !strings.Contains(text, "bufer") || !strings.Contains(text, "buffer") {
		t.Errorf("a misspelled option: %v; want an error that names it and the nearest one:\n%s", err, text)
	}
}

// tree is where go.mod says that mscclpp-go is: a copy of this folder may be anywhere.
func tree(t *testing.T) string {
	t.Helper()
	text, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/mscclpp-go/mscclpp").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return strings.TrimSpace(string(text))
}

func job(t *testing.T, dir string) string {
	t.Helper()
	text, err := tryJob(t, dir)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return text
}

func tryJob(t *testing.T, dir string) (string, error) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "./mscclpp-run", "--standalone", "--config", "job.yaml", "--log-level", "debug", "-n", "2", "./pingpong")
	c.Dir = dir
	text, err := c.CombinedOutput()
	return string(text), err
}

func build(t *testing.T, module, out, program string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "go", "build", "-o", out, program)
	c.Dir = module
	if text, err := c.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", program, err, text)
	}
}
