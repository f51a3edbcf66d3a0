package native

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"

	"github.com/mscclpp-go/mscclpp/framework"
)

var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// checkObject refuses what the dynamic linker would crash on, or says little about.
func checkObject(file *os.File) error {
	f, size, err := openObject(file)
	if err != nil {
		return err
	}
	want := machines[runtime.GOARCH]
	if f.Type != elf.ET_DYN || f.Class != elf.ELFCLASS64 || f.Machine != want {
		return fmt.Errorf("%w: %v %v for %v: expected a shared object for %v", framework.ErrInvalid, f.Class, f.Type, f.Machine, want)
	}
	for _, p := range f.Progs {
		if p.Off > size || p.Filesz > size-p.Off {
			return fmt.Errorf("%w: cut off: a segment ends at byte %d of %d", framework.ErrInvalid, p.Off+p.Filesz, size)
		}
	}
	symbols, err := f.DynamicSymbols()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		return fmt.Errorf("%w: its symbols cannot be read: %w", framework.ErrInvalid, err)
	}
	if !slices.ContainsFunc(symbols, func(s elf.Symbol) bool { return s.Name == Symbol && s.Section != elf.SHN_UNDEF }) {
		return fmt.Errorf("%w: it has no function %s: expected a shared object with a table of %s", framework.ErrInvalid, Symbol, headerName)
	}
	return nil
}

// Dependencies lists the libraries that a shared object names: they are loaded with it, and no checksum covers them.
func Dependencies(file *os.File) ([]string, error) {
	f, _, err := openObject(file)
	if err != nil {
		return nil, err
	}
	return f.ImportedLibraries()
}

func openObject(file *os.File) (*elf.File, uint64, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", framework.ErrUnavailable, err)
	}
	f, err := elf.NewFile(io.NewSectionReader(file, 0, info.Size()))
	if err != nil {
		return nil, 0, fmt.Errorf("%w: not a shared object, or cut off: %w", framework.ErrInvalid, err)
	}
	return f, uint64(info.Size()), nil
}
