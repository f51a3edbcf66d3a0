package config

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

const page = "../../docs/config.md"

// The reference page in the tree is what the structs say.
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
