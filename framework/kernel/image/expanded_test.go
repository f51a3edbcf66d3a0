package image

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestSpaced(t *testing.T) {
	same := []string{"int  f() {\n\treturn 1;\n}\n", "int f() { return 1; } ", "int f() {\n\n return   1;\n} "}
	for _, s := range same {
		if got := string(spaced([]byte(s))); got != "int f() { return 1; } " {
			t.Errorf("%q is %q", s, got)
		}
	}
	for _, pair := range [][2]string{
		{`asm("a  b");`, `asm("a b");`},
		{`f("\"  x");`, `f("\" x");`},
		{`x = 1'000  ;f("a  b");`, `x = 1'000 ;f("a b");`},
		{`c = ' ' ;`, `c = '  ';`},
		{"#pragma unroll\n4 + x;", "#pragma unroll 4\n+ x;"},
		{"int ab;", "int a b;"},
	} {
		if string(spaced([]byte(pair[0]))) == string(spaced([]byte(pair[1]))) {
			t.Errorf("%q and %q are the same", pair[0], pair[1])
		}
	}
	if a, b := spaced([]byte(`x = 1'000  ;f( "a");`)), spaced([]byte(`x = 1'000 ;f(  "a");`)); string(a) != string(b) {
		t.Errorf("%q and %q differ", a, b)
	}
}

// A change that a target does not see costs no build for it, neither of the image nor of its check; one that it sees does.
func TestChangeForOtherTargets(t *testing.T) {
	clang, err := exec.LookPath("clang++-19")
	if err != nil {
		t.Skip("needs clang++-19")
	}
	dir := t.TempDir()
	runs := filepath.Join(dir, "runs")
	counting := filepath.Join(dir, "clang++-19")
	script := "#!/bin/sh\ncase \" $* \" in *' -E '*|*--version*) ;; *) echo >> " + runs + " ;; esac\nexec " + clang + " \"$@\"\n"
	if err := os.WriteFile(counting, []byte(script), 0o700); err != nil { //nolint:gosec // it has to be executable
		t.Fatal(err)
	}
	opt := targets(t, "sm_80")
	opt.Compilers.GPU, opt.Store, opt.Proven = counting, filepath.Join(dir, "store"), filepath.Join(dir, "proven")
	for _, folder := range []string{opt.Store, opt.Proven} {
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	const kernel = "#if MSCCLPP_TARGET_HIP\nint other = %s;\n#endif\nstruct A { int* p; };\nMSCCLPP_KERNEL(changed, A, a) { *a.p = %s; }\n"
	built := func(other, own string) int {
		t.Helper()
		if err := os.RemoveAll(runs); err != nil {
			t.Fatal(err)
		}
		s := spec(t, project(t, strings.Replace(strings.Replace(kernel, "%s", other, 1), "%s", own, 1)))
		out := t.TempDir()
		if _, err := Build(t.Context(), s, out, opt); err != nil {
			t.Fatal(err)
		}
		if _, err := Check(t.Context(), s, out, opt); err != nil {
			t.Fatal(err)
		}
		text, _ := os.ReadFile(runs)
		return strings.Count(string(text), "\n")
	}
	if n := built("1", "5"); n != 4 {
		t.Errorf("the first build and its check: %d runs of the compiler: expected 4, for two images", n)
	}
	if n := built("2 /* for others */", "5"); n != 0 {
		t.Errorf("a change for another target: %d runs of the compiler: expected none", n)
	}
	if n := built("2", "6"); n != 4 {
		t.Errorf("a change for this target: %d runs of the compiler: expected 4, for two images", n)
	}
}
