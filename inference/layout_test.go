package inference

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode"
)

// The Go twins of norm_args.h have the sizes and offsets that a compiler gives the originals.
func TestLayoutsAgree(t *testing.T) {
	source := "#include \"norm_args.h\"\n#include <stdio.h>\nusing namespace mscclpp::inference;\nint main() {\n"
	var want []string
	check := func(what, expression string, value uintptr) {
		source += fmt.Sprintf("  printf(\"%s %%zu\\n\", size_t(%s));\n", what, expression)
		want = append(want, fmt.Sprintf("%s %d", what, value))
	}
	for name, twin := range map[string]any{"NormState": normState{}, "NormArgs": normArgs{}} {
		typ := reflect.TypeOf(twin)
		check(name, "sizeof("+name+")", typ.Size())
		for _, f := range reflect.VisibleFields(typ) {
			if f.Anonymous || f.Name == "_" {
				continue
			}
			offset := uintptr(0)
			for i := range f.Index {
				offset += typ.FieldByIndex(f.Index[:i+1]).Offset
			}
			check(name+"."+f.Name, "offsetof("+name+", "+snake(f.Name)+")", offset)
		}
	}
	check("notice", "sizeof(NormNotice)", noticeBytes)
	check("flags", "kPairs << 25 | kOwnInput << 24 | kOwnOutput << 16 | kOwnResidual << 12 | kNoNorm << 8 | kLayerNorm << 4 | kTwoShot",
		uintptr(pairs<<25|ownInput<<24|ownOutput<<16|ownResidual<<12|noNorm<<8|layerNorm<<4|twoShot))
	check("blocks", "kMostBlocks", mostBlocks)
	check("quantized", "kInt8PerTensor << 16 | kInt8PerToken << 8 | kE4M3PerToken", uintptr(Int8PerTensor<<16|Int8PerToken<<8|E4M3PerToken))
	check("apart", "kApart", apart)
	dir := t.TempDir()
	file := filepath.Join(dir, "layout.cc")
	if err := os.WriteFile(file, []byte(source+"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "layout")
	build := exec.Command("g++", "-std=c++17", "-Wno-invalid-offsetof", "-Ikernels", "-I../framework/kernel/include", file, "-o", program)
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	text, err := exec.Command(program).Output()
	if err != nil {
		t.Fatal(err)
	}
	for i, got := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		if got != want[i] {
			t.Errorf("C++ has %s, Go %s", got, want[i])
		}
	}
}

// snake is a name as C++ has it: ResidualOut is residual_out.
func snake(name string) string {
	var out []rune
	letters := []rune(name)
	for i, r := range letters {
		if unicode.IsUpper(r) && i > 0 && (unicode.IsLower(letters[i-1]) || i+1 < len(letters) && unicode.IsLower(letters[i+1]) && letters[i+1] != 's') {
			out = append(out, '_')
		}
		out = append(out, unicode.ToLower(r))
	}
	return string(out)
}
