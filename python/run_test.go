package python

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Scripts are started as torchrun does: by their names, with its variables. The package is another name of mscclpp-run.
func TestRun(t *testing.T) {
	p := newest(t, "nothing else", anyPython)
	path := "PATH=" + filepath.Dir(p.Path) + ":" + os.Getenv("PATH")
	for _, module := range []string{"mscclpp", "mscclpp.run"} {
		text, err := run(t, p, 0, []string{path}, "-m", module, "--nproc-per-node", "2", "../examples/python/allreduce.py")
		if err != nil || strings.Count(text, "of 2: 1000 sums are right") != 2 { // -u writes the ends of lines by themselves
			t.Errorf("%s: %v\n%s", module, err, text)
		}
	}
	// The interpreter is the one that runs the module, whatever PATH has; modules are programs, too.
	modules := t.TempDir()
	if err := os.WriteFile(filepath.Join(modules, "bench.py"), []byte("import sys; sys.stdout.write(' '.join([sys.executable, *sys.argv[1:]]) + '\\n')\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	own := []string{"PATH=/bin", "PYTHONPATH=" + filepath.Join(tree(t), "python") + ":" + modules}
	for _, args := range [][]string{{"-m", "bench", "-m", "x"}, {"--module", "--no-python", "bench", "-m", "x"}, {filepath.Join(modules, "bench.py"), "-m", "x"}} {
		text, err := run(t, p, 0, own, append([]string{"-m", "mscclpp.run", "--nproc-per-node", "2"}, args...)...)
		if err != nil || strings.Count(text, p.Path+" -m x") != 2 {
			t.Errorf("%v: %v\n%s", args, err, text)
		}
	}
	names := "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE MASTER_ADDR MASTER_PORT"
	text, err := run(t, p, 0, []string{path}, "-m", "mscclpp", "-n", "2", "--", p.Path, "-c",
		"import os, sys; print(' '.join(n + '=' + os.environ[n] for n in sys.argv[1].split() if os.environ[n]))", names)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		for _, name := range strings.Fields(names) {
			if !strings.Contains(" "+line, " "+name+"=") {
				t.Errorf("%s is missing: %s", name, line)
			}
		}
		if !strings.Contains(line, " WORLD_SIZE=2 ") || !strings.Contains(line, " LOCAL_WORLD_SIZE=2 ") {
			t.Errorf("%s: expected 2 ranks", line)
		}
	}
	text, err = run(t, p, 0, []string{path, "MSCCLPP_HOME=/nonexistent"}, "-m", "mscclpp", "--version")
	if err != nil || text == "" {
		t.Errorf("%v\n%s", err, text)
	}
}
