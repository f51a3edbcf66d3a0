package notices

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

// The file in the tree is about the modules of go.mod, at their versions.
func TestNoticesAreThoseOfTheModules(t *testing.T) {
	var now strings.Builder
	if err := Write(&now, root); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, File))
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != now.String() {
		t.Errorf("%s is not what the generator writes: run make generate", File)
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(string(text), "====")
	listed := 0
	for line := range strings.Lines(head) {
		if f := strings.Fields(line); len(f) == 3 && strings.HasPrefix(line, "  ") {
			listed++
			if !strings.Contains(string(mod), f[1]+" "+f[2]) {
				t.Errorf("%s %s is not in go.mod", f[1], f[2])
			}
			if f[0] == "MPL-2.0" && !strings.Contains(string(text), "https://proxy.golang.org/"+f[1]+"/@v/"+f[2]+".zip") {
				t.Errorf("%s: nothing says where its source is", f[1])
			}
		}
	}
	if listed < 20 || !strings.Contains(head, "MPL-2.0       github.com/hashicorp/go-plugin ") || strings.Contains(head, "see below") {
		t.Errorf("%d modules, expected all of them with the names of their licenses:\n%s", listed, head)
	}
}

// A module without a license is an error, and not left out.
func TestModuleWithoutLicense(t *testing.T) {
	if _, err := licenses(t.TempDir()); err == nil || !strings.Contains(err.Error(), "expected a file LICENSE") {
		t.Errorf("%v: expected an error about the license", err)
	}
}

func TestKinds(t *testing.T) {
	for text, want := range map[string]string{
		"Mozilla Public License, version 2.0":                                   "MPL-2.0",
		"Permission is hereby granted,\nfree of charge":                         "MIT",
		"Redistributions in binary form\n… used to endorse or promote products": "BSD-3-Clause",
		"do what you like": "see below",
	} {
		if got := kind(text); got != want {
			t.Errorf("%q: %s, expected %s", text, got, want)
		}
	}
	if got := escaped("github.com/Mellanox/rdmamap"); got != "github.com/!mellanox/rdmamap" {
		t.Errorf("%s", got)
	}
}
