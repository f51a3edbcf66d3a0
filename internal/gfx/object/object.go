// Package object reads code objects for AMD's GPUs: ELF files with the machine code of kernels, a descriptor for each,
// and notes that say how a runtime has to launch them.
//
// It refuses everything that it does not know: no hardware executes these code objects in tests, so nothing else would
// notice.
package object

import (
	"bytes"
	"debug/elf"
	"fmt"
	"slices"
	"strings"
)

// emAMDGPU is the machine of code objects, EM_AMDGPU.
const emAMDGPU elf.Machine = 224

// archs are the processors in the low byte of the ELF flags (EF_AMDGPU_MACH).
var archs = map[uint32]string{0x3f: "gfx90a", 0x4c: "gfx942"}

// Object is a code object, laid out as in memory.
type Object struct {
	Arch    string // "gfx942"
	Image   []byte // of memory, from address 0 on
	Text    Range  // machine code
	Kernels []Kernel
	Symbols []Symbol // of functions, by address
}

// Range is a part of the image.
type Range struct{ Start, End uint64 }

// Symbol names an address.
type Symbol struct {
	Name  string
	Start uint64
	Size  uint64
}

// Open reads a code object.
func Open(file []byte) (*Object, error) {
	f, err := elf.NewFile(bytes.NewReader(file))
	if err != nil {
		return nil, fmt.Errorf("code object of %d bytes: %w", len(file), err)
	}
	defer f.Close()
	if f.Machine != emAMDGPU || f.Class != elf.ELFCLASS64 || f.Type != elf.ET_DYN {
		return nil, fmt.Errorf("code object: %v %v for %v: expected a 64-bit shared object for machine %d", f.Class, f.Type, f.Machine, emAMDGPU)
	}
	o := &Object{}
	if o.Arch, err = arch(file); err != nil {
		return nil, err
	}
	if err := o.load(f); err != nil {
		return nil, err
	}
	if err := o.find(f); err != nil {
		return nil, err
	}
	return o, nil
}

// arch reads the processor off the flags, which debug/elf leaves out.
func arch(file []byte) (string, error) {
	const at = 48 // e_flags of a 64-bit header
	flags := le32(file[at:])
	name, ok := archs[flags&0xff]
	if !ok {
		return "", fmt.Errorf("code object: flags %#x: expected the processor gfx90a or gfx942", flags)
	}
	return name, nil
}

// maxImage bounds what a damaged header can ask for.
const maxImage = 64 << 20

func (o *Object) load(f *elf.File) error {
	for _, p := range f.Progs {
		if p.Type != elf.PT_LOAD {
			continue
		}
		end := p.Vaddr + p.Memsz
		if end < p.Vaddr || end > maxImage || p.Filesz > p.Memsz {
			return fmt.Errorf("code object: segment of %d bytes at %#x: expected it within %d bytes", p.Memsz, p.Vaddr, maxImage)
		}
		if uint64(len(o.Image)) < end {
			o.Image = append(o.Image, make([]byte, end-uint64(len(o.Image)))...)
		}
		if _, err := p.ReadAt(o.Image[p.Vaddr:p.Vaddr+p.Filesz], 0); err != nil {
			return fmt.Errorf("code object: segment at %#x: %w", p.Vaddr, err)
		}
		if p.Flags&elf.PF_X != 0 {
			if o.Text.End != 0 {
				return fmt.Errorf("code object: two segments with code, at %#x and %#x: expected one", o.Text.Start, p.Vaddr)
			}
			o.Text = Range{p.Vaddr, p.Vaddr + p.Filesz}
		}
	}
	if o.Text.End == 0 {
		return fmt.Errorf("code object: no segment with code")
	}
	return unrelocated(f)
}

// unrelocated refuses objects with relocations. Code of the compiler's that computes addresses from its own needs none.
func unrelocated(f *elf.File) error {
	for _, s := range f.Sections {
		if s.Size > 0 && strings.HasPrefix(s.Type.String(), "SHT_REL") {
			return fmt.Errorf("code object: section %s has relocations: expected code that needs none", s.Name)
		}
	}
	return nil
}

func (o *Object) find(f *elf.File) error {
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return fmt.Errorf("code object: symbols: %w", err)
	}
	at := map[string]elf.Symbol{}
	for _, s := range symbols {
		at[s.Name] = s
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC {
			o.Symbols = append(o.Symbols, Symbol{s.Name, s.Value, s.Size})
		}
	}
	if local, err := f.Symbols(); err == nil { // functions that are not inlined
		for _, s := range local {
			if _, known := at[s.Name]; !known && elf.ST_TYPE(s.Info) == elf.STT_FUNC {
				o.Symbols = append(o.Symbols, Symbol{s.Name, s.Value, s.Size})
			}
		}
	}
	slices.SortFunc(o.Symbols, func(a, b Symbol) int { return int(a.Start) - int(b.Start) })
	note, err := metadata(f)
	if err != nil {
		return err
	}
	if o.Kernels, err = kernels(note); err != nil {
		return err
	}
	for i := range o.Kernels {
		k := &o.Kernels[i]
		s, ok := at[k.descriptor]
		if !ok || s.Size != descriptorBytes || s.Value+s.Size > uint64(len(o.Image)) {
			return fmt.Errorf("code object: kernel %s: no descriptor %s of %d bytes", k.Name, k.descriptor, descriptorBytes)
		}
		if err := k.describe(o.Image[s.Value:s.Value+s.Size], s.Value, o.Text); err != nil {
			return err
		}
	}
	return nil
}

// Kernel finds a kernel by the name of its entry point.
func (o *Object) Kernel(name string) (*Kernel, error) {
	for i := range o.Kernels {
		if o.Kernels[i].Name == name {
			return &o.Kernels[i], nil
		}
	}
	return nil, fmt.Errorf("code object: no kernel %s", name)
}

// Function names the function at an address, with the distance from its start.
func (o *Object) Function(address uint64) string {
	name := fmt.Sprintf("%#x", address)
	for _, s := range o.Symbols {
		if address >= s.Start && address < s.Start+s.Size {
			name = fmt.Sprintf("%s+%#x", s.Name, address-s.Start)
		}
	}
	return name
}
