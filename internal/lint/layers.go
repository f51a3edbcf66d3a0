package lint

import (
	"fmt"
	"go/ast"
	"maps"
	"slices"
)

// Of the arrows between the files of a package at most so many percent may run back up. In
// small packages a few do no harm.
const (
	maxBack  = 10
	freeBack = 2
)

// Layers checks that the files of a package can be read from the bottom up. An arrow leads
// from a file to one that declares a name which it uses. In the best order there is, few
// arrows run back up.
func Layers(files []*File) []Problem {
	byPackage := map[string][]*File{}
	for _, f := range files {
		if f.AST != nil && !f.Test() && !f.Generated() {
			byPackage[f.Package()] = append(byPackage[f.Package()], f)
		}
	}
	var out []Problem
	for _, name := range slices.Sorted(maps.Keys(byPackage)) {
		back, all := backArrows(arrowsOf(byPackage[name]))
		percent := 0
		if back > freeBack {
			percent = 100 * back / all
		}
		if percent > maxBack {
			out = append(out, Problem{byPackage[name][0].Path, 0, fmt.Sprintf("package %s: %d of %d arrows between files run back up, expected at most %d %%", name, back, all, maxBack)})
		}
	}
	return out
}

// arrowsOf lists, for each file, those that declare what it uses: package-level names, and
// methods whose names are those of nothing else in the package. Fields may have the names of
// either.
func arrowsOf(files []*File) []map[int]bool {
	names, methods := map[string]int{}, map[string]int{}
	ambiguous := map[string]bool{}
	for i, f := range files {
		for _, d := range f.AST.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					names[d.Name.Name] = i
					continue
				}
				if _, twice := methods[d.Name.Name]; twice {
					ambiguous[d.Name.Name] = true
				}
				methods[d.Name.Name] = i
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						names[s.Name.Name] = i
					case *ast.ValueSpec:
						for _, n := range s.Names {
							names[n.Name] = i
						}
					}
				}
			}
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			if field, ok := n.(*ast.Field); ok {
				for _, name := range field.Names {
					ambiguous[name.Name] = true // as a method's name it says nothing
				}
			}
			return true
		})
	}
	delete(names, "_")
	delete(names, "init")
	out := make([]map[int]bool, len(files))
	for i, f := range files {
		out[i] = map[int]bool{}
		uses := func(to int, found bool) {
			if found && to != i {
				out[i][to] = true
			}
		}
		var visit func(n ast.Node) bool
		visit = func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr: // what is selected may have the name of something else here
				if id, ok := n.X.(*ast.Ident); ok && id.Name == "C" {
					return false
				}
				if to, found := methods[n.Sel.Name]; !ambiguous[n.Sel.Name] && !ast.IsExported(n.Sel.Name) {
					uses(to, found)
				}
				ast.Inspect(n.X, visit)
				return false
			case *ast.FuncDecl: // as may a method
				if n.Recv != nil {
					ast.Inspect(n.Recv, visit)
				}
				ast.Inspect(n.Type, visit)
				if n.Body != nil {
					ast.Inspect(n.Body, visit)
				}
				return false
			case *ast.CompositeLit:
				if n.Type != nil {
					ast.Inspect(n.Type, visit)
				}
				for _, e := range n.Elts {
					pair, ok := e.(*ast.KeyValueExpr)
					if _, field := key(pair).(*ast.Ident); ok && field && structLike(n.Type) {
						e = pair.Value
					}
					ast.Inspect(e, visit)
				}
				return false
			case *ast.Ident:
				if n.Obj == nil || n.Obj.Decl == nil {
					to, found := names[n.Name]
					uses(to, found)
				}
			}
			return true
		}
		for _, d := range f.AST.Decls {
			ast.Inspect(d, visit)
		}
	}
	return out
}

func key(pair *ast.KeyValueExpr) ast.Expr {
	if pair == nil {
		return nil
	}
	return pair.Key
}

// structLike reports whether the keys of a literal are names of fields, as far as its type says. A literal within
// another one has no type of its own.
func structLike(typ ast.Expr) bool {
	switch typ.(type) {
	case *ast.MapType, *ast.ArrayType:
		return false
	}
	return true
}

// backArrows counts the arrows that run back up in an order with few of them: first a greedy
// one (Eades, Lin and Smyth), then files move while that helps.
func backArrows(arrows []map[int]bool) (back, all int) {
	n := len(arrows)
	for _, to := range arrows {
		all += len(to)
	}
	left := make([]int, n)
	for i := range left {
		left[i] = i
	}
	var top, bottom []int
	degree := func(i int) (out, in int) {
		for _, j := range left {
			if arrows[i][j] {
				out++
			}
			if arrows[j][i] {
				in++
			}
		}
		return out, in
	}
	for len(left) > 0 {
		best, bestDiff, sink := 0, -n-1, false
		for k, i := range left {
			out, in := degree(i)
			if out == 0 {
				best, sink = k, true
				break
			}
			if out-in > bestDiff {
				best, bestDiff = k, out-in
			}
		}
		if sink {
			bottom = append(bottom, left[best])
		} else {
			top = append(top, left[best])
		}
		left = slices.Delete(left, best, best+1)
	}
	slices.Reverse(bottom)
	order := append(top, bottom...)
	count := func() int {
		c := 0
		for a, i := range order {
			for _, j := range order[:a] {
				if arrows[i][j] {
					c++
				}
			}
		}
		return c
	}
	for back = count(); ; {
		improved := false
		for from := range n {
			for to := range n {
				i := order[from]
				order = slices.Insert(slices.Delete(order, from, from+1), to, i)
				if c := count(); c < back {
					back, improved = c, true
					break
				}
				order = slices.Insert(slices.Delete(order, to, to+1), from, i)
			}
		}
		if !improved {
			return back, all
		}
	}
}
