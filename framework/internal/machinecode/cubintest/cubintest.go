// Package cubintest makes objects that look like an assembler's, for tests without one:
// what a loader reads of them is right, and there is no code in them.
package cubintest

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"regexp"
	"strconv"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework/internal/machinecode"
)

var (
	entry     = regexp.MustCompile(`(?s)\.visible \.entry (\w+)\((.*?)\)(.*?)\{`)
	array     = regexp.MustCompile(`\.b8 \w+\[(\d+)\]`)
	scalar    = regexp.MustCompile(`\.param \.[busf](\d+)`)
	mostBlock = regexp.MustCompile(`\.maxntid (\d+)`)
)

// Kinds of attribute in .nv.info sections, and how their values are stored.
const (
	attrMaxThreads = 0x05
	attrParameters = 0x19
	formSized      = 0x04
	formHalf       = 0x03
)

// section is one of the file that is made.
type section struct {
	name       string
	kind       elf.SectionType
	flags      elf.SectionFlag
	link, info uint32
	entry      uint64
	data       []byte
}

// Object returns an object for a chip (90 for sm_90) with the entry points of a PTX text,
// and what they take of a processor. Other texts give other bytes.
func Object(ptx []byte, chip int) ([]byte, map[string]machinecode.Use) {
	use := map[string]machinecode.Use{}
	names := table{0}
	sections := []section{{}, {name: ".shstrtab", kind: elf.SHT_STRTAB}, {name: ".strtab", kind: elf.SHT_STRTAB}, {name: ".symtab", kind: elf.SHT_SYMTAB, link: 2, info: 1, entry: 24}}
	var symbols []byte
	symbols = append(symbols, make([]byte, 24)...) // the first is none
	sum := sha256.Sum256(ptx)
	for _, m := range entry.FindAllSubmatch(ptx, -1) {
		name := string(m[1])
		use[name] = machinecode.Use{Registers: 32}
		text := len(sections)
		sections = append(sections,
			section{name: ".text." + name, kind: elf.SHT_PROGBITS, flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, link: 3, data: sum[:]},
			section{name: ".nv.info." + name, kind: elf.SHT_LOPROC, link: 3, info: uint32(text), data: attributes(m[2], m[3])})
		symbol := make([]byte, 24)
		binary.LittleEndian.PutUint32(symbol, names.add(name))
		symbol[4], symbol[5] = byte(elf.STB_GLOBAL)<<4|byte(elf.STT_FUNC), 0x10 // an entry point
		binary.LittleEndian.PutUint16(symbol[6:], uint16(text))
		binary.LittleEndian.PutUint64(symbol[16:], uint64(len(sum)))
		symbols = append(symbols, symbol...)
	}
	sections[2].data, sections[3].data = names, symbols
	return file(sections, chip), use
}

// attributes is the .nv.info section of a kernel.
func attributes(parameters, bounds []byte) []byte {
	size := 0
	for _, one := range strings.Split(string(parameters), ",") {
		if m := array.FindStringSubmatch(one); m != nil {
			size += number(m[1])
		} else if m := scalar.FindStringSubmatch(one); m != nil {
			size += number(m[1]) / 8
		}
	}
	out := []byte{formHalf, attrParameters, byte(size), byte(size >> 8)}
	if m := mostBlock.FindSubmatch(bounds); m != nil {
		out = append(out, formSized, attrMaxThreads, 12, 0)
		for _, n := range []int{number(string(m[1])), 1, 1} {
			out = binary.LittleEndian.AppendUint32(out, uint32(n))
		}
	}
	return out
}

func number(digits string) int {
	n, _ := strconv.Atoi(digits) // an expression has found digits
	return n
}

// table is a table of strings.
type table []byte

func (t *table) add(name string) uint32 {
	at := len(*t)
	*t = append(append(*t, name...), 0)
	return uint32(at)
}

// file puts sections together. The header has the marks of NVIDIA's assembler.
func file(sections []section, chip int) []byte {
	names := table{0}
	at := make([]uint32, len(sections))
	for i, s := range sections {
		if s.name != "" {
			at[i] = names.add(s.name)
		}
	}
	sections[1].data = names
	h := elf.Header64{Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_CUDA), Ehsize: 64, Shentsize: 64, Shnum: uint16(len(sections)), Shstrndx: 1}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_DATA], h.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
	h.Ident[elf.EI_OSABI], h.Ident[elf.EI_ABIVERSION] = 0x33, 7
	h.Version, h.Flags = 0x81, uint32(chip)<<16|0x500|uint32(chip)
	if chip >= 100 {
		h.Ident[elf.EI_OSABI], h.Ident[elf.EI_ABIVERSION] = 0x41, 8
		h.Flags = 0x06000002 | uint32(chip)<<8
	}
	var body, heads bytes.Buffer
	for i, s := range sections {
		x := elf.Section64{Name: at[i], Type: uint32(s.kind), Flags: uint64(s.flags), Off: uint64(64 + body.Len()), Size: uint64(len(s.data)), Link: s.link, Info: s.info, Addralign: 1, Entsize: s.entry}
		body.Write(s.data)
		_ = binary.Write(&heads, binary.LittleEndian, &x) // a buffer refuses nothing
	}
	h.Shoff = uint64(64 + body.Len())
	var out bytes.Buffer
	_ = binary.Write(&out, binary.LittleEndian, &h)
	out.Write(body.Bytes())
	out.Write(heads.Bytes())
	return out.Bytes()
}
