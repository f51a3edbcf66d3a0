package lint

import (
	"go/ast"
	"strings"
)

// Created checks that files are made by packages that do not follow another user's link.
func Created(files []*File) []Problem {
	var out []Problem
	for _, f := range files {
		if f.AST == nil || f.Test() || strings.HasPrefix(f.Path, "internal/ownfile/") {
			continue
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			name := osFunction(call.Fun)
			if name == "Create" || name == "OpenFile" && len(call.Args) > 1 && creates(call.Args[1]) {
				out = append(out, Problem{f.Path, f.at(call.Pos()), "makes a file by os." + name + ": expected ownfile.Open, which follows no link of another user, or atomicfile"})
			}
			return true
		})
	}
	return out
}

// osFunction returns which function of package os is called, "" for none.
func osFunction(e ast.Expr) string {
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if p, ok := s.X.(*ast.Ident); !ok || p.Name != "os" {
		return ""
	}
	return s.Sel.Name
}

// creates reports whether flags contain O_CREATE.
func creates(flags ast.Expr) bool {
	found := false
	ast.Inspect(flags, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && (s.Sel.Name == "O_CREATE" || s.Sel.Name == "O_CREAT") {
			found = true
		}
		return true
	})
	return found
}
