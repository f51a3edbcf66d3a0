package machinecode

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Object is what machine code says of itself.
type Object struct {
	Chip    int      // 90 for sm_90
	Exact   bool     // for that chip alone: sm_90a
	Kernels []string // entry points
}

// Places in the header of a 64-bit ELF file.
const (
	versionAt   = 20
	flagsAt     = 48
	headerBytes = 64
)

// Bits of e_flags and of the symbols' st_other, in the two forms that NVIDIA's assembler
// writes: the first up to Hopper, the second since Blackwell.
const (
	firstABI   = 7 // e_ident[EI_ABIVERSION]
	firstExact = 0x800
	laterExact = 0x8
	entryPoint = 0x10 // STO_CUDA_ENTRY
)

// Inspect reads an ELF file for NVIDIA's GPUs. ErrInvalid: it is none.
func Inspect(code []byte) (Object, error) {
	if len(code) < headerBytes {
		return Object{}, fmt.Errorf("%w: %d bytes: expected an ELF file", framework.ErrInvalid, len(code))
	}
	// In the version of the format the assembler notes its own, which debug/elf refuses.
	plain := bytes.Clone(code)
	binary.LittleEndian.PutUint32(plain[versionAt:], uint32(elf.EV_CURRENT))
	f, err := elf.NewFile(bytes.NewReader(plain))
	if err != nil {
		return Object{}, fmt.Errorf("%w: %w", framework.ErrInvalid, err)
	}
	if f.Class != elf.ELFCLASS64 || f.Data != elf.ELFDATA2LSB || f.Machine != elf.EM_CUDA {
		return Object{}, fmt.Errorf("%w: ELF for %v: expected one for NVIDIA's GPUs", framework.ErrInvalid, f.Machine)
	}
	flags := binary.LittleEndian.Uint32(code[flagsAt:]) // debug/elf keeps it to itself
	o := Object{Chip: int(flags & 0xff), Exact: flags&firstExact != 0}
	if f.ABIVersion > firstABI {
		o = Object{Chip: int(flags >> 8 & 0xff), Exact: flags&laterExact != 0}
	}
	all, err := f.Symbols()
	if err != nil {
		return Object{}, fmt.Errorf("%w: %w", framework.ErrInvalid, err)
	}
	for _, s := range all {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Other&entryPoint != 0 && s.Section != elf.SHN_UNDEF {
			o.Kernels = append(o.Kernels, s.Name)
		}
	}
	slices.Sort(o.Kernels)
	return o, nil
}

// arch is a chip as its name says it.
type arch struct {
	major, minor  int
	exact, family bool
}

// parseArch reads "sm_90", "sm_90a" or "sm_100f".
func parseArch(name string) (arch, error) {
	digits, ok := strings.CutPrefix(name, "sm_")
	a := arch{}
	digits, a.exact = strings.CutSuffix(digits, "a")
	if !a.exact {
		digits, a.family = strings.CutSuffix(digits, "f")
	}
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || n < 10 || n > 999 || strconv.Itoa(n) != digits {
		return arch{}, fmt.Errorf("%w: chip %q: expected a name such as sm_90 or sm_90a", framework.ErrInvalid, name)
	}
	a.major, a.minor = n/10, n%10
	return a, nil
}

// CheckChip says what is wrong with the name of a chip.
func CheckChip(name string) error {
	_, err := parseArch(name)
	return err
}

// fits reports whether a GPU runs machine code for the chip: of the same generation, for
// this chip or an older one; code that uses what one chip alone has, for that chip.
func (a arch) fits(major, minor int) bool {
	if a.exact {
		return a.major == major && a.minor == minor
	}
	return a.major == major && a.minor <= minor
}

// matches says whether an object is for the chip of this name. Families have no mark in
// their objects.
func (o Object) matches(a arch) bool {
	return o.Chip == 10*a.major+a.minor && o.Exact == a.exact
}
