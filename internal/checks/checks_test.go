package checks

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/internal/supervise"
)

// tree is a module in a folder of its own, with all classes of inputs.
func tree(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for path, text := range map[string]string{
		"go.mod":            "module example.com/tree\n\ngo 1.26\n",
		"a/a.go":            "package a\n\nimport \"example.com/tree/b\"\n\nvar A = b.B\n",
		"a/a_test.go":       "package a\n",
		"a/testdata/x":      "x",
		"b/b.go":            "package b\n\nvar B = 1\n",
		"b/embed.go":        "package b\n\nimport \"embed\"\n\n//go:embed data\nvar Data embed.FS\n",
		"b/data/sub/x":      "x",
		"b/testdata/x":      "x",
		"b/b_test.go":       "package b\n",
		"c/c.go":            "package c\n",
		"script.sh":         "true\n",
		"headers/sub/one.h": "// one\n",
		"version":           "1\n",
	} {
		change(t, root, path, text)
	}
	return root
}

func change(t *testing.T, root, path, text string) {
	t.Helper()
	path = filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// runs counts how often a stage was executed.
func runs(t *testing.T, root string) int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, "runs"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Count(string(data), "\n")
}

// A stage is skipped only when nothing has changed that decides its outcome: each class of
// inputs makes it run again.
func TestProofs(t *testing.T) {
	root := tree(t)
	host := "host one"
	r := &Runner{Root: root, Out: &bytes.Buffer{}, Proofs: Proofs{Dir: t.TempDir(), Root: root, Host: func() ([]byte, error) { return []byte(host), nil }}}
	s := Stage{Name: "stage", Run: "echo >>runs", Seconds: 1, Bound: time.Minute, Lane: "main", Inputs: &Inputs{
		Packages: []string{"./a"}, Files: []string{"script.sh", "go.*", "headers/"}, Tools: []string{"cat version"},
	}}
	perform := func() Result {
		t.Helper()
		total, err := r.Run(t.Context(), []Stage{s})
		if err != nil || total.Failed > 0 {
			t.Fatalf("%+v, %v\n%s", total, err, r.Out)
		}
		return total
	}
	perform()
	if total := perform(); runs(t, root) != 1 || total.Skipped != 1 {
		t.Fatalf("%d runs, %+v: expected one, and then a proof\n%s", runs(t, root), total, r.Out)
	}
	for name, do := range map[string]func(){
		"source of a named package":     func() { change(t, root, "a/a.go", "package a\n\nimport \"example.com/tree/b\"\n\nvar A = b.B + 1\n") },
		"test of a named package":       func() { change(t, root, "a/a_test.go", "package a\n\n// more\n") },
		"data of tests":                 func() { change(t, root, "a/testdata/x", "y") },
		"new file in a named package":   func() { change(t, root, "a/new.h", "") },
		"source of an imported package": func() { change(t, root, "b/b.go", "package b\n\nvar B = 2\n") },
		"file that it embeds":           func() { change(t, root, "b/data/sub/x", "y") },
		"new file that it embeds":       func() { change(t, root, "b/data/y", "y") },
		"file":                          func() { change(t, root, "script.sh", "false\n") },
		"file of a pattern":             func() { change(t, root, "go.mod", "module example.com/tree\n\ngo 1.26.0\n") },
		"file below a folder":           func() { change(t, root, "headers/sub/one.h", "// two\n") },
		"new file below a folder":       func() { change(t, root, "headers/two.h", "") },
		"version of a tool":             func() { change(t, root, "version", "2\n") },
		"host":                          func() { host = "host two" },
		"definition":                    func() { s.Run += " # again" },
	} {
		before := runs(t, root)
		do()
		if perform(); runs(t, root) != before+1 {
			t.Errorf("%s has changed: the stage did not run", name)
		}
		if perform(); runs(t, root) != before+1 {
			t.Errorf("%s: the stage ran a second time", name)
		}
	}
	for _, path := range []string{"b/b_test.go", "b/testdata/x", "c/c.go", "README.md"} {
		before := runs(t, root)
		change(t, root, path, "package "+path[:1]+"\n\n// more\n")
		if perform(); runs(t, root) != before {
			t.Errorf("%s is no input: expected the proof to hold", path)
		}
	}
}

// The host is its Go settings too, wherever these are set, and what programs read.
func TestHost(t *testing.T) {
	t.Setenv("GOENV", filepath.Join(t.TempDir(), "env"))
	describe := func() string {
		t.Helper()
		out, err := Host()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	before := describe()
	if again := describe(); again != before {
		t.Fatalf("%s\nand then\n%s\nexpected the same twice", before, again)
	}
	for name, value := range map[string]string{
		"GOEXPERIMENT": "fieldtrack", "CGO_ENABLED": "0", "CGO_CPPFLAGS": "-DX", "GODEBUG": "madvdontneed=1", "GOAMD64": "v3", "CXX": "clang++",
		"MSCCLPP_TRANSPORTS": "tcp", "GOMAXPROCS": "1", "LD_PRELOAD": "", "WORLD_SIZE": "2", "SLURM_JOB_ID": "7",
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, value)
			if describe() == before {
				t.Errorf("%s=%s: expected another host", name, value)
			}
		})
	}
	t.Setenv("EDITOR_OF_MINE", "ed")
	if describe() != before {
		t.Error("expected a variable that nothing reads to be no part of the host")
	}
	if err := os.WriteFile(os.Getenv("GOENV"), []byte("CGO_CFLAGS=-O1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if os.Getenv("CGO_CFLAGS") == "" && describe() == before {
		t.Error("expected another host where go has another file of settings")
	}
}

// A failed stage is not proven, a proof of another machine is none, and inputs that
// cannot be read are a failure and not a reason to skip.
func TestNoProof(t *testing.T) {
	root := tree(t)
	dir := t.TempDir()
	run := func(host, command string, in *Inputs) Result {
		t.Helper()
		r := &Runner{Root: root, Out: &bytes.Buffer{}, Proofs: Proofs{Dir: dir, Root: root, Host: func() ([]byte, error) { return []byte(host), nil }}}
		total, err := r.Run(t.Context(), []Stage{{Name: "stage", Run: command, Seconds: 1, Bound: time.Minute, Lane: "main", Inputs: in}})
		if err != nil {
			t.Fatal(err)
		}
		return total
	}
	in := &Inputs{Files: []string{"script.sh"}}
	fails := "echo >>runs; test -e good"
	for n := 1; n <= 2; n++ {
		if run("one", fails, in).Failed != 1 || runs(t, root) != n {
			t.Errorf("%d runs, expected %d: a failure is no proof", runs(t, root), n)
		}
	}
	change(t, root, "good", "")
	if run("one", fails, in).Passed != 1 || run("one", fails, in).Skipped != 1 || run("two", fails, in).Passed != 1 {
		t.Error("expected a proof on the machine that made it alone")
	}
	if run("three", "echo >>script.sh", in).Passed != 1 || run("three", "true", in).Skipped != 0 {
		t.Error("expected no proof of sources that changed while the stage ran")
	}
	for name, in := range map[string]*Inputs{
		"no such file":    {Files: []string{"missing"}},
		"no such package": {Packages: []string{"./missing"}},
		"a tool fails":    {Tools: []string{"false"}},
	} {
		if run("one", "true", in).Failed != 1 {
			t.Errorf("%s: expected a failure", name)
		}
	}
}

// Stages wait for those that they name, the last lane for all, and a stage beyond its
// bound is ended with what it has started.
func TestRun(t *testing.T) {
	root := t.TempDir()
	out := &bytes.Buffer{}
	stage := func(name, lane, run string, after ...string) Stage {
		return Stage{Name: name, Run: run, Seconds: 1, Bound: time.Minute, Lane: lane, After: after}
	}
	slow := stage("slow", "b", "mkfifo never; echo $$ >child; read <never")
	slow.Bound = 10 * time.Second // time to begin, also on a busy machine
	r := &Runner{Root: root, Out: out, User: 1000}
	total, err := r.Run(context.Background(), []Stage{
		stage("tidy", last, "echo tidy >>order"),
		stage("one", "a", "until [ -e flag ]; do sleep 0.01; done; echo one >>order"),
		stage("flag", "b", ": >flag"),
		stage("two", "b", "echo two >>order", "one"),
		slow,
		stage("broken", "a", "echo '--- FAIL: TestThing'; seq 200; exit 3"),
		stage("poor", "a", "echo nothing here; exit 77"),
	})
	if err != nil || total != (Result{Passed: 4, Failed: 2, Skipped: 1}) {
		t.Errorf("%+v, %v: expected 4 to pass, 2 to fail, 1 to be skipped\n%s", total, err, out)
	}
	for _, want := range []string{"FAIL: not done after 10s", "FAIL: exit status 3", "    --- FAIL: TestThing", "  nothing here"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	order, err := os.ReadFile(filepath.Join(root, "order"))
	if err != nil || string(order) != "one\ntwo\ntidy\n" {
		t.Errorf("%q, %v: expected one, two, tidy", order, err)
	}
	child, err := os.ReadFile(filepath.Join(root, "child"))
	if err != nil {
		t.Fatal(err)
	}
	// The group has the number of the stage's shell: none of it is left.
	pid, err := strconv.Atoi(strings.TrimSpace(string(child)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(-pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the group of a stage beyond its bound: %v: expected %v", err, syscall.ESRCH)
	}
	r.User = 0
	if total, err := r.Run(context.Background(), []Stage{stage("poor", "a", "exit 77")}); err != nil || total.Failed != 1 {
		t.Errorf("%+v, %v: expected a failure, since root has what stages need", total, err)
	}
}

// Processes that a stage leaves in its group end with it, also where the stage itself has ended well.
func TestLeftInTheGroup(t *testing.T) {
	root := t.TempDir()
	out := &bytes.Buffer{}
	r := &Runner{Root: root, Out: out}
	total, err := r.Run(t.Context(), []Stage{{Name: "leaves", Run: "echo $$ >group; sleep infinity & exit 0", Seconds: 1, Bound: time.Minute, Lane: "main"}})
	if err != nil || total.Passed != 1 {
		t.Fatalf("%+v, %v\n%s", total, err, out)
	}
	text, err := os.ReadFile(filepath.Join(root, "group"))
	if err != nil {
		t.Fatal(err)
	}
	group, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	// It was killed, and ends when the kernel comes to it. The first process of a container may not wait for it.
	lives := func() (found bool) {
		supervise.Each(func(_ int, s supervise.Stat) { found = found || s.Group == group && s.State != 'Z' })
		return found
	}
	for end := time.Now().Add(4 * time.Minute); lives(); {
		if time.Now().After(end) {
			t.Fatal("the process that a stage left is there four minutes after the stage has ended")
		}
		time.Sleep(time.Millisecond)
	}
}

// The list of this tree is read; lists with mistakes are refused.
func TestRead(t *testing.T) {
	list, err := Read("../../.ci/stages.yaml")
	if err != nil || len(list) < 10 {
		t.Fatalf("%d stages, %v", len(list), err)
	}
	if _, err := Select(list, []string{"lint", "tset"}); err == nil || !strings.Contains(err.Error(), `"tset"`) {
		t.Errorf("%v: expected the name that is unknown", err)
	}
	good := "{name: a, run: x, seconds: 1, bound: 1s, lane: main}"
	for text, want := range map[string]string{
		"- {name: a}":               "expected run, seconds, bound and lane",
		"- {label: a}":              "label",
		"- " + good + "\n- " + good: "expected one that no other stage has",
		"- " + good[:len(good)-1] + ", after: [b]}":                                                         "expected a stage further up",
		"- {name: z, run: x, seconds: 1, bound: 1s, lane: last}\n- " + good[:len(good)-1] + ", after: [z]}": "expected none of lane last",
	} {
		path := filepath.Join(t.TempDir(), "stages.yaml")
		change(t, filepath.Dir(path), "stages.yaml", text)
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v: expected %q", text, err, want)
		}
	}
}
