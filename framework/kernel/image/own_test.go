package image

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

const ownSpec = `{
  "name": "acme",
  "own_targets": [{"arch": "acme1", "compiler": "g++", "language": "c++", "extension": ".acme", "flags": ["-std=c++17", "-fPIC", "-shared", "-fvisibility=hidden", "-DACME=3"]}],
  "families": [{"name": "one", "sources": ["one.cc"], "targets": ["acme1"]}]
}`

func writeSpec(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	source := "#if ACME == 3\nextern \"C\" __attribute__((visibility(\"default\"))) void acme_kernel(const void*, const void*) {}\n#endif\n"
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "kernels.json"), []byte(text), 0o644), os.WriteFile(filepath.Join(dir, "one.cc"), []byte(source), 0o644)); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "kernels.json")
}

// A spec says how kernels are compiled for a device that is not known here.
func TestOwnTargets(t *testing.T) {
	if _, err := exec.LookPath("g++"); err != nil {
		t.Skip("needs g++")
	}
	s, err := ReadSpec(writeSpec(t, ownSpec))
	if err != nil {
		t.Fatal(err)
	}
	targets, err := s.ParseTargets("acme1")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for range 2 { // the second time it is up to date
		if _, err := Build(t.Context(), s, dir, Options{Targets: targets}); err != nil {
			t.Fatal(err)
		}
	}
	set, err := Open(os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	infos := set.Infos()
	if len(infos) != 1 || infos[0].Arch != "acme1" || infos[0].ID != "one-acme1" || strings.Join(set.Symbols("one-acme1"), " ") != "acme_kernel" {
		t.Errorf("images %+v with symbols %v", infos, set.Symbols("one-acme1"))
	}
	if _, err := os.Stat(filepath.Join(dir, "one-acme1.acme")); err != nil {
		t.Error(err)
	}
	if both, err := s.ParseTargets("acme1,sm_90"); err != nil || len(both) != 2 {
		t.Errorf("acme1,sm_90: %v, %v", both, err)
	}
}

func TestOwnTargetsThatAreRefused(t *testing.T) {
	for was, is := range map[string]string{
		`"arch": "acme1"`:      `"arch": "sm_90"`,
		`"compiler": "g++"`:    `"compiler": ""`,
		`"extension": ".acme"`: `"extension": "acme"`,
		`"language": "c++"`:    `"language": ""`,
		`"flags": [`:           `"flag": [`,
		`"targets": ["acme1"]`: `"targets": ["acme2"]`,
	} {
		if _, err := ReadSpec(writeSpec(t, strings.Replace(ownSpec, was, is, 1))); !errors.Is(err, framework.ErrInvalid) {
			t.Errorf("%s: %v: expected ErrInvalid", is, err)
		}
	}
}
