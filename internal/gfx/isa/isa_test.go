package isa

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/internal/gfx/object"
	"github.com/mscclpp-go/mscclpp/internal/gfx/object/objecttest"
)

// disassembler finds LLVM's, of the version that the kernels are built with.
func disassembler(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("llvm-objdump-19")
	if err != nil {
		t.Skipf("needs llvm-objdump-19 to compare with: %v", err)
	}
	return path
}

var line = regexp.MustCompile(`^\t(\S.*?)\s*// ([0-9A-F]+): ([0-9A-F ]+)`)

// Every instruction of every committed code object is decoded, and its text is that of LLVM's disassembler.
func TestDisassembly(t *testing.T) {
	tool := disassembler(t)
	used := map[*Form]bool{}
	for name, file := range objecttest.Committed(t) {
		o, err := object.Open(file)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		text, err := exec.Command(tool, "-d", "--mcpu="+o.Arch, path).Output()
		if err != nil {
			t.Fatalf("%s: %s: %v", name, tool, err)
		}
		compared := compare(t, name, o, text, used)
		if compared < 100 {
			t.Errorf("%s: %d instructions compared: expected more", name, compared)
		}
	}
	for _, f := range Forms {
		if !used[f] {
			t.Errorf("%s, format %d, code %d: no committed code object has it", f.Name, f.Format, f.Code)
		}
	}
}

func compare(t *testing.T, name string, o *object.Object, text []byte, used map[*Form]bool) (compared int) {
	t.Helper()
	lines := bufio.NewScanner(bytes.NewReader(text))
	wrong := 0
	for lines.Scan() {
		m := line.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		var addr uint64
		for _, c := range m[2] {
			addr = addr<<4 | uint64(strings.IndexRune("0123456789ABCDEF", c))
		}
		i, err := Decode(o.Arch, o.Image[addr:o.Text.End], addr)
		if err != nil {
			t.Fatalf("%s: %q: %v", name, m[0], err)
		}
		used[i.Form] = true
		if words := len(strings.Fields(m[3])); int(i.Size) != 4*words {
			t.Fatalf("%s: %q: decoded %d bytes", name, m[0], i.Size)
		}
		if got := i.String(); got != m[1] {
			if wrong++; wrong > 5 {
				t.FailNow()
			}
			t.Errorf("%s: %s: decoded as %q", name, m[0], got)
		}
		compared++
	}
	return compared
}

// Encodings that no kernel has are refused with their address and bytes.
func TestStrict(t *testing.T) {
	for _, c := range []struct {
		arch string
		code []uint32
		want string
	}{
		{"gfx942", []uint32{0xffffffff, 0}, "at 0x40: ff ff ff ff 00 00 00 00: format 0x3f"},
		{"gfx942", []uint32{0xbf8e0001}, "operation 14"},               // s_sleep
		{"gfx942", []uint32{0xd3ed0000, 0}, "operation 109"},           // a matrix operation
		{"gfx942", []uint32{0xdc504000, 0x007f0000}, "private memory"}, // scratch_load_dword
		{"gfx942", []uint32{0xe0a48001, 0}, "modifiers of a cache"},
		{"gfx942", []uint32{0xe0fc0000, 0}, "operation 63"}, // buffer_wbinvl1_vol of gfx90a
		{"gfx90a", []uint32{0x7e007038}, "operation 56"},    // v_mov_b64
		{"gfx942", []uint32{0xd1cb0001}, "cut off"},
		{"gfx942", []uint32{0x7e0002fa, 0x000000ff}, "operand 250"}, // DPP
		{"gfx908", []uint32{0xbf800000}, "expected gfx90a or gfx942"},
	} {
		var code []byte
		for _, w := range c.code {
			code = binary.LittleEndian.AppendUint32(code, w)
		}
		_, err := Decode(c.arch, code, 0x40)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s % x: %v: expected %q", c.arch, code, err, c.want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte{0x40, 8, 2, 0xc0, 0x24, 0, 0, 0}, true)
	f.Fuzz(func(_ *testing.T, code []byte, old bool) {
		arch := "gfx942"
		if old {
			arch = "gfx90a"
		}
		if i, err := Decode(arch, code, 0); err == nil {
			_ = i.String()
		}
	})
}
