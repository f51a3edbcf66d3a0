package image

import (
	"bytes"
	"debug/elf"
	"fmt"
	"slices"
	"strings"
)

// difference says in words where two images of one kind differ.
func difference(kind Kind, kept, built []byte) string {
	if kind == PTX {
		return differentLine(kept, built)
	}
	at, count := differentBytes(kept, built)
	text := fmt.Sprintf("%d of its %d bytes (new: %d), the first at %#x", count, len(kept), len(built), at)
	if names := differentFunctions(kept, built); len(names) > 0 {
		text += ": " + strings.Join(names, ", ")
	}
	return text
}

func differentLine(kept, built []byte) string {
	a, b := strings.Split(string(kept), "\n"), strings.Split(string(built), "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("from line %d on: %q, new: %q", i+1, strings.TrimSpace(a[i]), strings.TrimSpace(b[i]))
		}
	}
	return fmt.Sprintf("%d lines, new: %d", len(a), len(b))
}

// differentBytes returns the place of the first and the number of all.
func differentBytes(a, b []byte) (first, count int) {
	n := min(len(a), len(b))
	count = max(len(a), len(b)) - n
	first = n
	for i := n - 1; i >= 0; i-- {
		if a[i] != b[i] {
			first = i
			count++
		}
	}
	return first, count
}

// differentFunctions names those whose code is not the same.
func differentFunctions(kept, built []byte) []string {
	a, b := functions(kept), functions(built)
	var out []string
	for name, code := range a {
		if other, ok := b[name]; !ok {
			out = append(out, name+" is missing")
		} else if !bytes.Equal(code, other) {
			out = append(out, fmt.Sprintf("%s (%d bytes of code, new: %d)", name, len(code), len(other)))
		}
	}
	for name := range b {
		if _, ok := a[name]; !ok {
			out = append(out, name+" is new")
		}
	}
	slices.Sort(out)
	return out
}

// functions returns the code of every function of an object; none if it is not one.
func functions(data []byte) map[string][]byte {
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return nil
	}
	out := map[string][]byte{}
	for _, s := range symbols {
		if elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Section == elf.SHN_UNDEF || int(s.Section) >= len(f.Sections) {
			continue
		}
		section := f.Sections[s.Section]
		if s.Size > section.Size || s.Value < section.Addr {
			continue
		}
		code := make([]byte, s.Size)
		if _, err := section.ReadAt(code, int64(s.Value-section.Addr)); err == nil {
			out[s.Name] = code
		}
	}
	return out
}
