package exec

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

// The Go twins of plan_args.h have the sizes and offsets that a compiler gives the originals.
func TestLayoutsAgree(t *testing.T) {
	source := "#include \"plan_args.h\"\n#include <stdio.h>\nusing namespace mscclpp::plans;\nint main() {\n"
	var want []string
	check := func(what, expression string, value uintptr) {
		source += fmt.Sprintf("  printf(\"%s %%zu\\n\", size_t(%s));\n", what, expression)
		want = append(want, fmt.Sprintf("%s %d", what, value))
	}
	for name, twin := range map[string]any{"Op": op{}, "Operand": operand{}, "Slot": slot{}, "Window": window{}, "Block": block{}, "State": state{}, "PlanArgs": args{}} {
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
	check("cursor", "sizeof(Cursor)", cursorBytes)
	check("meeting", "sizeof(Meeting)", meetingBytes)
	check("notice", "sizeof(Notice)", noticeBytes)
	check("state", "sizeof(State)", stateBytes)
	check("kinds", "kAwait << 8 | kPut", uintptr(opAwait)<<8|uintptr(opPut))
	check("flags", "kOverPort | kRelaxed << 4 | kThenSignal << 8 | kOfPackets << 12 | kInPipeline << 16 | kMet << 20 | uint64_t(kTotal) << 24",
		uintptr(overPort)|uintptr(relaxed)<<4|uintptr(thenSignal)<<8|uintptr(ofPackets)<<12|uintptr(inPipeline)<<16|uintptr(met)<<20|uintptr(total)<<24)
	dir := t.TempDir()
	file := filepath.Join(dir, "layout.cc")
	if err := os.WriteFile(file, []byte(source+"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "layout")
	build := exec.Command("g++", "-std=c++17", "-Wno-invalid-offsetof", "-I../kernels", "-I../../framework/kernel/include", file, "-o", program)
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

// snake is a name as C++ has it: ScratchChunk is scratch_chunk.
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
