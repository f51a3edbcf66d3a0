package library_test

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/plan/library"
	"github.com/mscclpp-go/mscclpp/plan/schema"
	"github.com/mscclpp-go/mscclpp/plan/verify"
)

// shapes are those for which every plan is made and checked.
func shapes(e library.Entry) []library.Shape {
	var out []library.Shape
	for _, s := range []library.Shape{
		{Ranks: 2}, {Ranks: 3}, {Ranks: 4}, {Ranks: 8},
		{Ranks: 2, PerHost: 1}, {Ranks: 4, PerHost: 2}, {Ranks: 8, PerHost: 4}, {Ranks: 8, PerHost: 2}, {Ranks: 6, PerHost: 3},
	} {
		for _, s.InPlace = range []bool{false, true} {
			for _, s.Blocks = range []int{1, 3} {
				hosts := 1
				if s.PerHost > 0 {
					hosts = s.Ranks / s.PerHost
				}
				if e.OneHost && hosts > 1 || e.InPlace && !s.InPlace || e.TwoLevels && (hosts < 2 || s.PerHost < 2) {
					continue
				}
				out = append(out, s)
			}
		}
	}
	return out
}

// TestPlansAreRight checks every plan of the library for all shapes.
func TestPlansAreRight(t *testing.T) {
	for _, e := range library.Plans() {
		for _, s := range shapes(e) {
			t.Run(fmt.Sprintf("%s/%+v", e.Name, s), func(t *testing.T) {
				plan, err := e.Compile(s)
				if err != nil {
					t.Fatal(err)
				}
				if r := verify.Plan(plan); r.Verdict != verify.Right {
					t.Fatalf("%s: %s", r.Verdict, r.Reason)
				}
				if plan.Collective != e.Collective || plan.InPlace != s.InPlace || len(plan.GPUs) != s.Ranks {
					t.Errorf("got a plan of %s for %d ranks, in place %v", plan.Collective, len(plan.GPUs), plan.InPlace)
				}
				again, err := schema.Parse(plan.Encode(2))
				if err != nil || !bytes.Equal(again.Encode(2), plan.Encode(2)) {
					t.Errorf("the plan does not survive its file: %v", err)
				}
			})
		}
	}
}

// TestWrongShapes expects what a plan needs, and what there is.
func TestWrongShapes(t *testing.T) {
	for _, c := range []struct {
		name string
		s    library.Shape
		want string
	}{
		{"allreduce-3pa", library.Shape{Ranks: 2}, `library: no plan "allreduce-3pa": there are allreduce-1pa, `},
		{"allreduce-1pa", library.Shape{Ranks: 1}, "library: allreduce-1pa for 1 ranks, 1 of each host: expected at least 2 ranks"},
		{"allreduce-1pa", library.Shape{Ranks: 4, PerHost: 2}, "library: allreduce-1pa for 4 ranks, 2 of each host: expected all ranks on one host"},
		{"alltoall", library.Shape{Ranks: 4, PerHost: 3}, "library: alltoall for 4 ranks, 3 of each host: expected as many ranks on every host"},
		{"alltoall", library.Shape{Ranks: 4, Blocks: -1}, "library: alltoall for 4 ranks, 4 of each host: expected 1 to 4096 thread blocks, not -1"},
		{"alltoall", library.Shape{Ranks: 4, Blocks: 1 << 40}, "library: alltoall for 4 ranks, 4 of each host: expected 1 to 4096 thread blocks, not 1099511627776"},
		{"allreduce-1pa", library.Shape{Ranks: 1 << 40}, "library: allreduce-1pa for 1099511627776 ranks, 1099511627776 of each host: expected at most 512 ranks: "},
		{"allreduce-2pa-switch", library.Shape{Ranks: 4}, "library: allreduce-2pa-switch for 4 ranks, 4 of each host: expected one buffer, in place"},
		{"allreduce-hierarchical-chunks", library.Shape{Ranks: 4}, "library: allreduce-hierarchical-chunks for 4 ranks, 4 of each host: expected at least 2 hosts with at least 2 ranks each"},
	} {
		_, err := library.Compile(c.name, c.s)
		if err == nil || !errors.Is(err, framework.ErrInvalid) || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("got %v, expected an error of class ErrInvalid: %s", err, c.want)
		}
	}
}

// TestNameHasTheShape expects different names for different plans: a name is a plan's identity.
func TestNameHasTheShape(t *testing.T) {
	seen := map[string]string{}
	for _, e := range library.Plans() {
		for _, s := range shapes(e) {
			if s.PerHost == 0 {
				s.PerHost = s.Ranks
			}
			plan, err := library.Compile(e.Name, s)
			if err != nil {
				t.Fatal(err)
			}
			text := string(plan.Encode(schema.Compact))
			if other, twice := seen[plan.Name]; twice && other != text {
				t.Errorf("two plans have the name %s", plan.Name)
			}
			seen[plan.Name] = text
		}
	}
}

// TestProgramsAreShort counts the lines of every program of the library.
func TestProgramsAreShort(t *testing.T) {
	programs := 0
	for _, name := range []string{"onehost.go", "hosts.go"} {
		files := token.NewFileSet()
		f, err := parser.ParseFile(files, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			programs++
			if lines := files.Position(fn.End()).Line - files.Position(fn.Pos()).Line + 1; lines > 30 {
				t.Errorf("%s has %d lines, expected at most 30", fn.Name.Name, lines)
			}
		}
	}
	if want := len(library.Plans()); programs != want {
		t.Errorf("got %d programs, expected %d", programs, want)
	}
}
