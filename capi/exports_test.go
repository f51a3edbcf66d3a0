package capi

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// A panic that left an exported function would end the program: each such function defers recovered, first of all.
func TestNoPanicCrossesTheBorder(t *testing.T) {
	files, err := filepath.Glob("libmscclpp/*.go")
	if err != nil {
		t.Fatal(err)
	}
	exported := 0
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Doc == nil || !strings.Contains(commentOf(f.Doc), "//export ") {
				continue
			}
			exported++
			if f.Name.Name != "mscclppGoVersion" && !defersRecovered(f.Body) { // that copies a constant, and has no code to return
				t.Errorf("%s: %s does not begin with defer recovered(…)", path, f.Name.Name)
			}
		}
	}
	if exported < 40 {
		t.Errorf("%d exported functions", exported)
	}
}

func commentOf(g *ast.CommentGroup) string {
	var all strings.Builder
	for _, c := range g.List {
		all.WriteString(c.Text + "\n")
	}
	return all.String()
}

func defersRecovered(body *ast.BlockStmt) bool {
	if len(body.List) == 0 {
		return false
	}
	d, ok := body.List[0].(*ast.DeferStmt)
	if !ok {
		return false
	}
	name, ok := d.Call.Fun.(*ast.Ident)
	return ok && name.Name == "recovered"
}
