package kernel_test

import (
	"os"
	"regexp"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

const arguments = `// Arguments.
// mscclpp:layout
struct Args {
  uint64_t count;  // elements
  uint32_t root;
};
constexpr uint32_t kMost = 72;
`

func TestLayoutChangesWithWhatACompilerSees(t *testing.T) {
	base := kernel.Layout(arguments)
	if !regexp.MustCompile(`^[0-9a-f]{16}$`).MatchString(base) {
		t.Errorf("%q: expected 16 hexadecimal digits", base)
	}
	for name, change := range map[string]struct {
		old, new string
		same     bool
	}{
		"comment":       {"// elements", "/* how many\n elements */", true},
		"white space":   {"  uint32_t root;\n", "\n\tuint32_t   root;\n\n", true},
		"type":          {"uint32_t root", "uint64_t root", false},
		"name":          {"root", "source", false},
		"order":         {"uint64_t count;", "uint32_t pad; uint64_t count;", false},
		"constant":      {"72", "73", false},
		"commented out": {"  uint32_t root;", "  // uint32_t root;", false},
	} {
		changed := regexp.MustCompile(regexp.QuoteMeta(change.old)).ReplaceAllLiteralString(arguments, change.new)
		if changed == arguments {
			t.Fatalf("%s: nothing was changed", name)
		}
		if got := kernel.Layout(changed); (got == base) != change.same {
			t.Errorf("%s: %s, before %s: expected the same to be %v", name, got, base, change.same)
		}
	}
}

func TestLayoutOfSeveralHeaders(t *testing.T) {
	const other = "struct Other { int x; };"
	if a, b := kernel.Layout(arguments, other), kernel.Layout(other, arguments); a != b {
		t.Errorf("%s and %s: expected the order not to matter", a, b)
	}
	if kernel.Layout(arguments, other) == kernel.Layout(arguments) || kernel.Layout(arguments) == kernel.Layout() {
		t.Error("a header more has to change the layout")
	}
	if kernel.LayoutOf("struct Handle {};", arguments) == kernel.Layout(arguments) {
		t.Error("other handles have to change the layout")
	}
}

func TestLayoutOfTheTree(t *testing.T) {
	handles, err := os.ReadFile("include/mscclpp/layout.h")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := kernel.LayoutOf(string(handles)), kernel.Layout(); got != want {
		t.Errorf("%s from the file, %s built in", got, want)
	}
}

func TestHasLayout(t *testing.T) {
	for text, want := range map[string]bool{
		arguments:                               true,
		"//mscclpp:layout":                      true,
		"struct Args {};":                       false,
		"// The line mscclpp:layout marks it.":  false,
		"// mscclpp:layouts\n":                  false,
		"const char* s = \"// mscclpp:layout\"": false,
	} {
		if got := kernel.HasLayout(text); got != want {
			t.Errorf("%q: %v, expected %v", text, got, want)
		}
	}
}
