package verify_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/plan/verify"
)

// collection is where plans for development lie beside the repository, on machines that have them.
const collection = "../../../shared/plans"

// TestCollection compares the verdict of every plan of the collection with its index.
func TestCollection(t *testing.T) {
	index, err := os.ReadFile(filepath.Join(collection, "INDEX.md"))
	if err != nil {
		t.Skip("this machine has no collection of plans beside the repository")
	}
	n := 0
	for line := range strings.Lines(string(index)) {
		file, expected := row(line)
		if file == "" {
			continue
		}
		n++
		t.Run(file, func(t *testing.T) {
			got := verify.File(filepath.Join(collection, file))
			t.Logf("%s: %s %q", got.Verdict, got.Reason, got.Notes)
			if got.Verdict != expected {
				t.Errorf("got %s, expected %s", got.Verdict, expected)
			}
			if got.Reason == "" || got.Ranks == 0 && got.Verdict != verify.Refused {
				t.Errorf("got %+v, expected a reason, and the ranks", got)
			}
		})
	}
	if n < 97 {
		t.Errorf("the index names %d plans, expected 97 or more", n)
	}
}

// row returns the file of a row of the index, and its verdict in the words of this package.
func row(line string) (file string, expected verify.Verdict) {
	cells := strings.Split(line, "|")
	if len(cells) < 4 || !strings.Contains(cells[1], ".json") {
		return "", ""
	}
	file = strings.TrimSpace(cells[1])
	word := cells[2]
	if len(cells) > 10 {
		word = cells[13]
	}
	switch word = strings.TrimSpace(word); word {
	case "right (vis)", "ends":
		word = "right"
	case "hangs":
		word = "hang"
	case "refused":
		if strings.HasSuffix(file, "switch_reduce_alone-2ranks.json") {
			word = "right" // the index: better implement it, then it is right
		}
	}
	return file, verify.Verdict(word)
}
