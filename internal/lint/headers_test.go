package lint

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var includeLine = regexp.MustCompile(`(?m)^[ \t]*(?://)?[ \t]*#[ \t]*include[ \t]+["<]([^">]+)[">]`)

// listed is what go list knows of a package.
type listed struct {
	Dir, ImportPath                               string
	CgoFiles, CFiles, HFiles, EmbedFiles, Imports []string
	CgoCFLAGS                                     []string
}

// list asks go list.
func list(t *testing.T, dir string, args ...string) map[string]listed {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=Dir,ImportPath,CgoFiles,CFiles,HFiles,EmbedFiles,Imports,CgoCFLAGS"}, args...)...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	all := map[string]listed{}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all[p.ImportPath] = p
	}
}

// foreignHeaders are the headers of other packages that C of a package includes, by path.
func foreignHeaders(p listed) ([]string, error) {
	folders := []string{}
	for _, flag := range p.CgoCFLAGS {
		if dir, ok := strings.CutPrefix(flag, "-I"); ok {
			folders = append(folders, dir)
		}
	}
	var out []string
	seen := map[string]bool{}
	var read func(path string) error
	read = func(path string) error {
		if seen[path] {
			return nil
		}
		seen[path] = true
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if filepath.Dir(path) != p.Dir {
			out = append(out, path)
		}
		for _, m := range includeLine.FindAllStringSubmatch(string(text), -1) {
			for _, dir := range append([]string{filepath.Dir(path)}, folders...) {
				at := filepath.Join(dir, m[1])
				if _, err := os.Stat(at); err == nil {
					if err := read(at); err != nil {
						return err
					}
					break
				}
			}
		}
		return nil
	}
	for _, name := range slices.Concat(p.CgoFiles, p.CFiles, p.HFiles) {
		if err := read(filepath.Join(p.Dir, name)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// staleHeaders are those of other packages that none of the imports embeds: a build would not
// notice that one of them has changed, and take the object that it has.
func staleHeaders(all map[string]listed, p listed) ([]string, error) {
	headers, err := foreignHeaders(p)
	return slices.DeleteFunc(headers, func(path string) bool {
		return slices.ContainsFunc(p.Imports, func(name string) bool {
			from, ok := all[name]
			rel, err := filepath.Rel(from.Dir, path)
			return ok && err == nil && slices.Contains(from.EmbedFiles, rel)
		})
	}), err
}

// A package whose C includes a header of another package imports that one, which embeds it.
func TestHeadersOfOtherPackages(t *testing.T) {
	all := list(t, "../..", "./...")
	found := 0
	for _, p := range all {
		if len(p.CgoFiles) == 0 {
			continue
		}
		headers, err := foreignHeaders(p)
		if err != nil {
			t.Fatal(err)
		}
		found += len(headers)
		stale, err := staleHeaders(all, p)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range stale {
			t.Errorf("%s includes %s: expected it to import the package that embeds that, or builds do not notice that it has changed", p.ImportPath, path)
		}
	}
	if found < 4 { // ring.h and trigger.h, each twice
		t.Errorf("%d headers of other packages, expected at least 4: the search finds nothing", found)
	}
}

// The builds of Go keep to this: a package is built again where a header has changed that one
// of its imports embeds. Of one that nobody embeds they keep what they have built.
func TestBuildsNoticeEmbeddedHeaders(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	number := func() string {
		t.Helper()
		cmd := exec.Command("go", "run", "./c")
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v:\n%s", err, out)
		}
		return strings.TrimSpace(string(out))
	}
	write("go.mod", "module m\n\ngo 1.26\n")
	write("h/h.go", "package h\n\nimport _ \"embed\"\n\n//go:embed x.h\nvar header string\n")
	write("c/c.go", "package main\n\n// #include \"../h/x.h\"\n// static int x(void) { return X; }\nimport \"C\"\n\nimport _ \"m/h\"\n\nfunc main() { println(C.x()) }\n")
	for _, want := range []string{"1", "2"} {
		write("h/x.h", "#define X "+want+"\n")
		if got := number(); got != want {
			t.Errorf("built with %s, expected %s", got, want)
		}
	}
	all := list(t, dir, "./...")
	if stale, err := staleHeaders(all, all["m/c"]); err != nil || len(stale) > 0 {
		t.Errorf("%v, %v: expected no header that builds do not notice", stale, err)
	}
	write("h/h.go", "package h\n")
	all = list(t, dir, "./...")
	if stale, err := staleHeaders(all, all["m/c"]); err != nil || len(stale) != 1 {
		t.Errorf("%v, %v: expected x.h, which nobody embeds", stale, err)
	}
}
