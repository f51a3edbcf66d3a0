package lint

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every file with measured times is named by the README beside it, which says how it was
// made; and of what commit a machine's file says that it was, the README says as well.
func TestResultsAreDescribed(t *testing.T) {
	const root = "../../docs/results"
	folders, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	all, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	for _, folder := range folders {
		if !folder.IsDir() {
			continue
		}
		if !strings.Contains(string(all), "| `"+folder.Name()+"` |") {
			t.Errorf("docs/results/README.md has no line for %s", folder.Name())
		}
		text, err := os.ReadFile(filepath.Join(root, folder.Name(), "README.md"))
		if err != nil {
			t.Errorf("%s: %v: expected a README that says what its files are", folder.Name(), err)
			continue
		}
		inside, err := os.ReadDir(filepath.Join(root, folder.Name()))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range inside {
			if f.Name() == "README.md" {
				continue
			}
			files++
			if !strings.Contains(string(text), f.Name()) {
				t.Errorf("docs/results/%s/README.md does not name %s: expected what it is and how it was made", folder.Name(), f.Name())
			}
			if !strings.HasSuffix(f.Name(), "machine.txt") {
				continue
			}
			machine, err := os.ReadFile(filepath.Join(root, folder.Name(), f.Name()))
			if err != nil {
				t.Fatal(err)
			}
			commit := ""
			for line := range strings.Lines(string(machine)) {
				if words := strings.Fields(line); len(words) == 2 && words[0] == "version" {
					commit = words[1]
				}
			}
			for line := range strings.Lines(string(text)) {
				if commit == "" || strings.HasPrefix(line, "| `"+f.Name()+"`") && !strings.Contains(line, commit) {
					t.Errorf("%s is of commit %q, and docs/results/%s/README.md has %q", f.Name(), commit, folder.Name(), line)
				}
			}
		}
	}
	if files < 20 {
		t.Errorf("%d files with results: expected 20 or more", files)
	}
}
