package collectives

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
)

// Every algorithm that a configuration may name has a section in docs/algorithms.md, and no
// section is about one that does not exist.
func TestAlgorithmsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/algorithms.md")
	if err != nil {
		t.Fatal(err)
	}
	var described, known []string
	for _, heading := range regexp.MustCompile(`(?m)^### (.*)$`).FindAllStringSubmatch(string(text), -1) {
		described = append(described, strings.Split(heading[1], ", ")...)
	}
	for k := AllReduce; k < collectives; k++ {
		known = append(known, choose.Existing(k)...)
	}
	for _, name := range known {
		if !slices.Contains(described, name) {
			t.Errorf("algorithm %s has no section in docs/algorithms.md", name)
		}
	}
	for _, name := range described {
		if !slices.Contains(known, name) {
			t.Errorf("docs/algorithms.md describes %s, which no configuration accepts", name)
		}
	}
}
