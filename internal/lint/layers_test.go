package lint

import (
	"fmt"
	"testing"
)

// filesOf makes a package of named files.
func filesOf(texts map[string]string) []*File {
	var out []*File
	for name, text := range texts {
		out = append(out, newFile("p/"+name+".go", "package p\n\n"+text))
	}
	return out
}

// Arrows are those between files, and the best order has the fewest that run back up.
func TestLayers(t *testing.T) {
	chain := map[string]string{
		"a": "func A() { B() }\n",
		"b": "type S struct{}\n\nfunc B() { S{}.work(); C() }\n",
		"c": "func C() { d() }\n",
		"d": "func d() {}\n\nfunc (S) work() {}\n",
	}
	back, all := backArrows(arrowsOf(filesOf(chain)))
	if back != 1 || all != 5 { // a-b, b-c, c-d, and b-d for the method, d-b for its receiver
		t.Errorf("%d of %d arrows run back up: expected 1 of 5", back, all)
	}
	local := map[string]string{
		"a": "func A() { b := 1; _ = b }\n",
		"b": "type b struct{}\n",
	}
	if back, all := backArrows(arrowsOf(filesOf(local))); back != 0 || all != 0 {
		t.Errorf("a local name: %d of %d: expected no arrow", back, all)
	}
	fields := map[string]string{
		"a": "type T struct{ b int }\n\nvar m = map[int]T{1: {b: 2}}\n\nfunc A(x *T) { x.b = T{b: len(m)}.b }\n",
		"b": "func b() {}\n",
		"c": "var k = 1\n\nfunc (T) b() { _ = C.k }\n\nfunc main() {}\n",
		"d": "var n = map[int]bool{k: true}\n",
	}
	if back, all := backArrows(arrowsOf(filesOf(fields))); back != 0 || all != 2 {
		t.Errorf("names of fields: %d of %d: expected two arrows, to the key of a map and the type of a receiver", back, all)
	}
	circle := map[string]string{}
	for i := range 6 {
		circle[fmt.Sprintf("f%d", i)] = fmt.Sprintf("func F%d() { F%d(); F%d(); F%d() }\n", i, (i+1)%6, (i+2)%6, (i+3)%6)
	}
	if got := Layers(filesOf(circle)); len(got) != 1 {
		t.Errorf("a package of circles: %v: expected one problem", got)
	}
	if got := Layers(filesOf(chain)); len(got) != 0 {
		t.Errorf("%v: expected that a few arrows do no harm", got)
	}
}
