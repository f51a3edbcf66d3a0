package plans

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// script writes a program that a shell runs.
func script(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(name, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestCompileProgram expects the plan that a program prints, with its arguments, in a file.
func TestCompileProgram(t *testing.T) {
	file := filepath.Join(t.TempDir(), "plan.json.gz")
	if out, code := run(t, "compile", script(t, `cat "$1"`), data+"right/pipeline.json", "--output", file); code != 0 || out != "" {
		t.Fatalf("exit code %d, %s", code, out)
	}
	got, err := schema.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want, err := schema.ReadFile(data + "right/pipeline.json")
	if err != nil {
		t.Fatal(err)
	}
	if string(got.Encode(2)) != string(want.Encode(2)) {
		t.Error("the plan is another one than the program printed")
	}
}

// TestCompileLibrary expects plans of the library by their names.
func TestCompileLibrary(t *testing.T) {
	out, code := run(t, "compile", "alltoall", "--ranks", "4", "--per-host", "2", "--blocks", "1", "--in-place")
	plan, err := schema.Parse([]byte(out))
	if code != 0 || err != nil {
		t.Fatalf("exit code %d, %v", code, err)
	}
	if plan.Name != "alltoall-2x2-1blocks-inplace" || len(plan.GPUs) != 4 || !plan.InPlace {
		t.Errorf("got %s for %d ranks, in place %v", plan.Name, len(plan.GPUs), plan.InPlace)
	}
}

// TestCompileMistakes leaves no file behind.
func TestCompileMistakes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "plan.json")
	for _, x := range []struct {
		args []string
		want string
		code int
	}{
		{nil, "expected a program", 2},
		{[]string{"absent.go"}, "absent.go: no such file or directory; it is no plan of the library either", 1},
		{[]string{script(t, "echo no plan; exit 3")}, "ended with exit status 3", 1},
		{[]string{script(t, "echo no plan")}, "line 1: this is no JSON", 1},
		{[]string{script(t, "exit 0")}, "printed nothing: expected a plan", 1},
		{[]string{"allreduce-1pa"}, "allreduce-1pa for 0 ranks, 0 of each host: expected at least 2 ranks", 1},
		{[]string{"allreduce-1pa", "extra"}, `takes no argument "extra"`, 2},
	} {
		out, code := run(t, append([]string{"compile", "--output", file}, x.args...)...)
		if code != x.code || !strings.Contains(out, x.want) {
			t.Errorf("plan compile %s: exit code %d, %q; expected %d and %q", x.args, code, out, x.code, x.want)
		}
		if _, err := os.Stat(file); err == nil {
			t.Errorf("plan compile %s wrote a file", x.args)
		}
	}
}

// TestRunner expects a program by the end of its name.
func TestRunner(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{"a.go", "a.py", "a"} {
		if err := os.WriteFile(filepath.Join(folder, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"a.go": "go run " + folder + "/a.go x", "a.py": "python3 " + folder + "/a.py x", "a": folder + "/a x", ".": "go run " + folder + " x"} {
		got, err := runner([]string{filepath.Join(folder, name), "x"})
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: got %q, %v, expected %q", name, got, err, want)
		}
	}
}
