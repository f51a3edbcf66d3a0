package isa

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/internal/gfx/object"
	"github.com/mscclpp-go/mscclpp/internal/gfx/object/objecttest"
)

// assembler finds LLVM's, of the version that the kernels are built with.
func assembler(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("llvm-mc-19")
	if err != nil {
		t.Skipf("needs llvm-mc-19 to compare with: %v", err)
	}
	return path
}

// samples are so many instructions of each kind: those that differ in nothing but numbers.
const samples = 6

var number = regexp.MustCompile(`[0-9]+`)

// sample is an instruction of a code object.
type sample struct {
	code []byte
	text string
}

// sampled decodes all instructions of an object, and keeps some of each kind.
func sampled(t *testing.T, name string, o *object.Object, kinds map[string][]sample, used map[*Form]int) {
	t.Helper()
	for _, f := range o.Symbols {
		for addr := f.Start; addr < f.Start+f.Size; {
			i, err := Decode(o.Arch, o.Image[addr:o.Text.End], addr)
			if err != nil {
				t.Fatalf("%s, %s: %v", name, f.Name, err)
			}
			addr += uint64(i.Size)
			if used[i.Form]++; used[i.Form] > 400 && used[i.Form]%61 != 0 {
				continue // texts take longer than decoding
			}
			x := sample{o.Image[addr-uint64(i.Size) : addr], i.String()}
			kind := number.ReplaceAllString(x.text, "N") + i.Form.Name
			if list := kinds[kind]; len(list) < samples {
				kinds[kind] = append(list, x)
			}
		}
	}
}

// Every instruction of every committed code object is decoded, and the text of some of each kind is that of LLVM's
// disassembler.
func TestDisassembly(t *testing.T) {
	tool := assembler(t)
	used := map[*Form]int{}
	kinds := map[string]map[string][]sample{"gfx90a": {}, "gfx942": {}}
	files := objecttest.Committed(t)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		file := files[name]
		o, err := object.Open(file)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		sampled(t, name, o, kinds[o.Arch], used)
	}
	for _, f := range Forms {
		if used[f] == 0 {
			t.Errorf("%s, format %d, code %d: no committed code object has it", f.Name, f.Format, f.Code)
		}
	}
	for arch, of := range kinds {
		var list []sample
		for _, some := range of {
			list = append(list, some...)
		}
		compare(t, tool, arch, list)
	}
}

func compare(t *testing.T, tool, arch string, list []sample) {
	t.Helper()
	var input bytes.Buffer
	for _, x := range list {
		for i, b := range x.code {
			fmt.Fprintf(&input, "%s%#02x", []string{"", ","}[min(i, 1)], b)
		}
		fmt.Fprintln(&input)
	}
	c := exec.Command(tool, "-disassemble", "-triple=amdgcn", "-mcpu="+arch)
	c.Stdin, c.Stderr = &input, os.Stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	var texts []string
	for line := range strings.Lines(string(out)) {
		line, _, _ = strings.Cut(line, "//")
		if line = strings.TrimSpace(line); line != "" && line != ".text" {
			texts = append(texts, line)
		}
	}
	if len(texts) != len(list) || len(list) < 1000 {
		t.Fatalf("%s: %d instructions were disassembled, of %d", arch, len(texts), len(list))
	}
	for i, x := range list {
		if texts[i] != x.text {
			t.Errorf("%s: % x is %q: decoded as %q", arch, x.code, texts[i], x.text)
		}
	}
	t.Logf("%s: %d instructions compared", arch, len(list))
}

// Encodings that no kernel has are refused with their address and bytes.
func TestStrict(t *testing.T) {
	for _, c := range []struct {
		arch string
		code []uint32
		want string
	}{
		{"gfx942", []uint32{0xffffffff, 0}, "at 0x40: ff ff ff ff 00 00 00 00: format 0x3f"},
		{"gfx942", []uint32{0xbf8d0001}, "operation 13"},               // s_sethalt
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
