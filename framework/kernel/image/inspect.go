package image

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/internal/onfirstuse"
)

const abiSymbol = "mscclpp_abi"

var (
	ptxEntry   = onfirstuse.Regexp(`(?m)^\.visible \.entry (\w+)\(`)
	ptxVersion = onfirstuse.Regexp(`(?m)^\.version (\d+)\.(\d+)`)
	// An instruction, perhaps under a predicate.
	ptxAtomic = onfirstuse.Regexp(`(?m)^\s*(?:@!?%p\d+\s+)?((?:atom|red|multimem)\.[\w.:]+)`)
	ptxLocal  = onfirstuse.Regexp(`(?m)^\s*(?:\.local\b|(?:@!?%p\d+\s+)?(?:ld|st)\.local).*$`)
)

// inspect lists the entry points of an image and refuses what must not be in one:
// local memory (an array of the thread's own that was not kept in registers), and
// atomics that lost their order or scope on the way through the compiler.
func inspect(kind Kind, data []byte) (symbols []string, err error) {
	switch kind {
	case PTX:
		symbols, err = inspectPTX(data)
	case HSA:
		symbols, err = inspectHSA(data)
	case Own:
		symbols = inspectOwn(data)
		slices.Sort(symbols)
		return symbols, nil
	default:
		symbols, err = inspectCPU(data)
	}
	if err == nil && len(symbols) == 0 {
		err = fmt.Errorf("%w: no kernels in it", framework.ErrInvalid)
	}
	slices.Sort(symbols)
	return symbols, err
}

func inspectPTX(data []byte) ([]string, error) {
	if m := ptxLocal().Find(data); m != nil {
		return nil, fmt.Errorf("%w: local memory: %s", framework.ErrInvalid, bytes.TrimSpace(m))
	}
	for _, m := range ptxAtomic().FindAllSubmatch(data, -1) {
		if op := string(m[1]); !orderedAtomic(op) {
			return nil, fmt.Errorf("%w: bare atomic, without order or scope: %s", framework.ErrInvalid, op)
		} else if version := ptxVersion().FindSubmatch(data); strings.HasPrefix(op, "multimem") && (version == nil || string(version[1])+string(version[2]) < "82") {
			return nil, fmt.Errorf("%w: %s needs PTX 8.2, and drivers refuse the image: write \"ptx\": \"82\" in the family", framework.ErrInvalid, op)
		}
	}
	var symbols []string
	for _, m := range ptxEntry().FindAllSubmatch(data, -1) {
		symbols = append(symbols, string(m[1]))
	}
	return symbols, nil
}

func orderedAtomic(op string) bool {
	parts := strings.Split(op, ".")
	has := func(names ...string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return slices.Contains(parts, n) })
	}
	return has("relaxed", "acquire", "release", "acq_rel") && has("cta", "cluster", "gpu", "sys")
}

// inspectHSA reads the kernel descriptors of a code object: 64 bytes each, the
// second word of which is the private segment, where spills and local arrays go.
func inspectHSA(data []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", framework.ErrInvalid, err)
	}
	all, err := f.Symbols()
	if err != nil {
		all, err = f.DynamicSymbols()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", framework.ErrInvalid, err)
	}
	var symbols []string
	for _, s := range all {
		name, ok := strings.CutSuffix(s.Name, ".kd")
		if !ok || int(s.Section) >= len(f.Sections) {
			continue
		}
		section := f.Sections[s.Section]
		descriptor := make([]byte, 8)
		if _, err := section.ReadAt(descriptor, int64(s.Value-section.Addr)); err != nil {
			return nil, fmt.Errorf("%w: descriptor of %s: %w", framework.ErrInvalid, name, err)
		}
		if private := binary.LittleEndian.Uint32(descriptor[4:]); private != 0 {
			return nil, fmt.Errorf("%w: %s uses %d bytes of private memory a thread: spills or local arrays", framework.ErrInvalid, name, private)
		}
		symbols = append(symbols, name)
	}
	return symbols, nil
}

// inspectCPU also refuses libraries other than libc: an image is loaded into
// programs of all kinds.
func inspectCPU(data []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", framework.ErrInvalid, err)
	}
	libs, err := f.ImportedLibraries()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", framework.ErrInvalid, err)
	}
	for _, lib := range libs {
		if !strings.HasPrefix(lib, "libc.so") && !strings.HasPrefix(lib, "ld-linux") {
			return nil, fmt.Errorf("%w: needs %s: expected nothing but libc", framework.ErrInvalid, lib)
		}
	}
	all, err := f.DynamicSymbols()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", framework.ErrInvalid, err)
	}
	var symbols []string
	abi := false
	for _, s := range all {
		if s.Section == elf.SHN_UNDEF {
			continue
		}
		if s.Name == abiSymbol {
			abi = true
		} else if elf.ST_TYPE(s.Info) == elf.STT_FUNC {
			symbols = append(symbols, s.Name)
		}
	}
	if !abi {
		return nil, fmt.Errorf("%w: %s is missing", framework.ErrInvalid, abiSymbol)
	}
	return symbols, nil
}

// inspectOwn lists the functions of an ELF file. An image of another form has none that are known, and is offered by its
// transport with the symbols that the transport knows.
func inspectOwn(data []byte) []string {
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil
	}
	all, err := f.DynamicSymbols()
	if err != nil {
		all, _ = f.Symbols()
	}
	var symbols []string
	for _, s := range all {
		if s.Section != elf.SHN_UNDEF && elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Name != abiSymbol {
			symbols = append(symbols, s.Name)
		}
	}
	return symbols
}
