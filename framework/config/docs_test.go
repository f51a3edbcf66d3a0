package config

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

const page = "../../docs/config.md"

// The reference page in the tree is generated from the structs as they are.
func TestDocsAreUpToDate(t *testing.T) {
	var want bytes.Buffer
	if err := WriteDocs(&want); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatalf("%v; run make generate", err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%s differs from framework/config/config.go; run make generate", page)
	}
}

func TestEveryFieldHasACommentThatIsASentence(t *testing.T) {
	comments, err := fieldComments()
	if err != nil {
		t.Fatal(err)
	}
	var check func(n *node)
	check = func(n *node) {
		if n.kind == nodeStruct {
			for _, name := range n.names {
				c := n.children[name]
				if text := comments[c.field]; len(text) < 10 || !strings.HasSuffix(text, ".") {
					t.Errorf("%s: comment %q, expected a sentence", c.key, text)
				}
				check(c)
			}
		}
		if n.elem != nil {
			check(n.elem)
		}
	}
	check(schema())
}

func TestDocsNameEveryKeyAndVariable(t *testing.T) {
	var b bytes.Buffer
	if err := WriteDocs(&b); err != nil {
		t.Fatal(err)
	}
	schema().leaves(func(n *node) {
		if !strings.Contains(b.String(), strings.TrimSuffix(n.key, ".NAME")) {
			t.Errorf("%s is missing", n.key)
		}
	})
	for name := range flatNames {
		if !strings.Contains(b.String(), name) {
			t.Errorf("%s is missing", name)
		}
	}
}

// The page says of a variable that disables what it does to the key.
func TestDocsNameOpposites(t *testing.T) {
	var b bytes.Buffer
	if err := WriteDocs(&b); err != nil {
		t.Fatal(err)
	}
	found := false
	for name, f := range flatNames {
		turned := len(f.keys) > 0 && f.value("true") == "false" && f.value("0") == "true"
		if said := strings.Contains(b.String(), "| `"+name+"` | sets `"+strings.Join(f.keys, "` and `")+"` to the opposite |\n"); said != turned {
			t.Errorf("%s turns its value %v, and the page has it as %v", name, turned, said)
		}
		if turned && f.value("maybe") != "maybe" { // refused where it is used
			t.Errorf("%s makes %q of \"maybe\"", name, f.value("maybe"))
		}
		found = found || turned
	}
	if !found {
		t.Error("no variable is the opposite of a key: MSCCLPP_FORCE_DISABLE_GDR was one")
	}
}
