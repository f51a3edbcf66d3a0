package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/token"
	"regexp"
	"strconv"
	"strings"
)

// maxLines is where a file is to be split.
const maxLines = 600

// Length checks that no file is too long to be read at one sitting. Generated files, and
// files that quote raw results, are excepted.
func Length(files []*File) []Problem {
	var out []Problem
	for _, f := range files {
		exempt := f.Generated() || strings.HasPrefix(f.Path, "docs/results/") || strings.Contains(f.Path, "/image/") && !f.Go() ||
			strings.Contains(f.Path, "/testdata/")
		if n := strings.Count(f.Text, "\n"); n > maxLines && !exempt {
			out = append(out, Problem{f.Path, 0, fmt.Sprintf("has %d lines, expected at most %d", n, maxLines)})
		}
	}
	return out
}

// Format checks that gofmt would change nothing.
func Format(files []*File) []Problem {
	var out []Problem
	for _, f := range files {
		if !f.Go() {
			continue
		}
		want, err := format.Source([]byte(f.Text))
		switch {
		case err != nil:
			out = append(out, Problem{f.Path, 0, err.Error()})
		case !bytes.Equal(want, []byte(f.Text)):
			out = append(out, Problem{f.Path, 0, "is not formatted; run make fmt"})
		}
	}
	return out
}

// PackageComments checks that every package says what it is. External test packages
// are part of the package that they test.
func PackageComments(files []*File) []Problem {
	type state struct {
		first *File
		has   bool
	}
	packages, order := map[string]*state{}, []string{}
	for _, f := range files {
		if f.AST == nil || f.Test() {
			continue
		}
		key := f.Package()
		if packages[key] == nil {
			packages[key] = &state{first: f}
			order = append(order, key)
		}
		packages[key].has = packages[key].has || f.AST.Doc != nil
	}
	var out []Problem
	for _, key := range order {
		if p := packages[key]; !p.has {
			out = append(out, Problem{p.first.Path, 0, "its package has no comment"})
		}
	}
	return out
}

// skipReason is the text of a legal t.Skip: it names what the machine lacks.
var skipReason = regexp.MustCompile(`^(no|not|needs|only|without) | (is not installed|has no |cannot )`)

// Tests checks that tests do not sleep, since a sleep is either too short or too
// long, and that they skip only for want of a capability. A sleep between two looks
// at a word in shared memory is no guess: "for !done() { time.Sleep(…) }" is legal.
func Tests(files []*File) []Problem {
	var out []Problem
	for _, f := range files {
		if f.AST == nil {
			continue
		}
		polls := map[ast.Node]bool{}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			if loop, ok := n.(*ast.ForStmt); ok && loop.Cond != nil {
				for _, s := range append([]ast.Stmt{loop.Post}, loop.Body.List...) {
					if e, ok := s.(*ast.ExprStmt); ok {
						polls[e.X] = true
					}
				}
			}
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			switch sel.Sel.Name {
			case "Sleep":
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == "time" && f.Test() && !polls[call] {
					out = append(out, Problem{f.Path, f.at(call.Pos()), "time.Sleep in a test: wait for the event itself"})
				}
			case "Skip", "Skipf", "SkipNow":
				if isTesting(sel.X) && !namesCapability(call) {
					out = append(out, Problem{f.Path, f.at(call.Pos()), "skips without a capability: say what is missing, as in: no compiler; needs 4 cores; x is not installed"})
				}
			}
			return true
		})
	}
	return out
}

// isTesting distinguishes t.Skip and b.Skip from methods of the same name on other things.
func isTesting(x ast.Expr) bool {
	id, ok := x.(*ast.Ident)
	return ok && (id.Name == "t" || id.Name == "b" || id.Name == "tb" || id.Name == "f")
}

func namesCapability(call *ast.CallExpr) bool {
	if len(call.Args) == 0 {
		return false
	}
	lit, ok := call.Args[0].(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return false
	}
	text, err := strconv.Unquote(lit.Value)
	return err == nil && skipReason.MatchString(text)
}

// Interfaces checks that interfaces of the contract stay small.
func Interfaces(files []*File) []Problem {
	var out []Problem
	for _, f := range files {
		if f.AST == nil || f.Test() || f.Package() != "framework" {
			continue
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if i, ok := spec.Type.(*ast.InterfaceType); ok && i.Methods.NumFields() > 6 {
				out = append(out, Problem{f.Path, f.at(spec.Pos()), fmt.Sprintf("interface %s has %d methods, expected at most 6", spec.Name.Name, i.Methods.NumFields())})
			}
			return true
		})
	}
	return out
}
