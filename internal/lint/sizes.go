package lint

import (
	"fmt"
	"go/ast"
	"maps"
	"slices"
	"strings"
)

// The most that a package and a type may be, tests and what programs wrote apart. A type with more is several that
// have not been separated; free functions in place of its methods do not make it smaller.
const (
	maxPackage = 4000 // lines
	maxMethods = 40
	maxFields  = 25
)

// faces are packages that pass calls on to others, which do the work, with the lines that are enough for that.
var faces = map[string]int{"collectives": 2000, "framework/comm": 2000}

// Sizes checks that packages and types stay small.
func Sizes(files []*File) []Problem {
	c := take(files)
	var out []Problem
	for _, x := range []struct {
		what   string
		counts map[string]int
		most   int
	}{{"lines", c.lines, maxPackage}, {"methods", c.methods, maxMethods}, {"fields", c.fields, maxFields}} {
		for _, name := range slices.Sorted(maps.Keys(x.counts)) {
			most := x.most
			if few := faces[name]; few != 0 && x.what == "lines" {
				most = few
			}
			if n := x.counts[name]; n > most {
				out = append(out, Problem{c.first[name], 0, fmt.Sprintf("%s has %d %s, expected at most %d", name, n, x.what, most)})
			}
		}
	}
	return out
}

// census counts, by package, or by package and type.
type census struct {
	lines, methods, fields map[string]int
	first                  map[string]string // a file of each
}

func take(files []*File) census {
	c := census{lines: map[string]int{}, methods: map[string]int{}, fields: map[string]int{}, first: map[string]string{}}
	for _, f := range files {
		if f.AST != nil && !f.Test() && !f.Generated() {
			c.count(f)
		}
	}
	return c
}

func (c *census) count(f *File) {
	pkg := f.Package()
	name := func(typ string) string {
		key := strings.TrimPrefix(pkg+"."+typ, ".")
		if c.first[key] == "" {
			c.first[key] = f.Path
		}
		return key
	}
	if c.first[pkg] == "" {
		c.first[pkg] = f.Path
	}
	c.lines[pkg] += strings.Count(f.Text, "\n")
	for _, d := range f.AST.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv != nil && len(d.Recv.List) == 1 {
				if typ := receiver(d.Recv.List[0].Type); typ != "" {
					c.methods[name(typ)]++
				}
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if s, ok := spec.(*ast.TypeSpec); ok {
					if x, ok := s.Type.(*ast.StructType); ok {
						for _, field := range x.Fields.List {
							c.fields[name(s.Name.Name)] += max(1, len(field.Names))
						}
					}
				}
			}
		}
	}
}

// receiver is the name of the type that a method is of.
func receiver(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.StarExpr:
		return receiver(x.X)
	case *ast.IndexExpr:
		return receiver(x.X)
	case *ast.IndexListExpr:
		return receiver(x.X)
	case *ast.Ident:
		return x.Name
	}
	return ""
}
