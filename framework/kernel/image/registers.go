package image

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/internal/machinecode"
	"github.com/mscclpp-go/mscclpp/internal/atomicfile"
)

// UseFile is the name of the table of registers beside a manifest.
const UseFile = "registers.txt"

const useHead = `# Registers of a thread of each kernel, and where some are spilled +BYTES of its stack, as NVIDIA's assembler says: the
# most of all types. ` + "`mscclpp-kernels assemble`" + ` refuses kernels that take more; with --record it writes this table.
`

// hold compares what the kernels of a folder take with its table, or writes it.
func (f *folder) hold(pieces []*piece, a *Assembly) error {
	have := map[string]map[string]machinecode.Use{}
	for _, p := range pieces {
		for name, u := range p.use {
			if p.folder != f {
				continue
			}
			if have[name] == nil {
				have[name] = map[string]machinecode.Use{}
			}
			most := have[name][p.chip]
			have[name][p.chip] = machinecode.Use{Registers: max(most.Registers, u.Registers), Stack: max(most.Stack, u.Stack)}
		}
	}
	path := filepath.Join(f.dir, cmp.Or(a.Table, UseFile))
	if a.Record {
		return atomicfile.Bytes(path, useTable(have, a.Chips))
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil // of a vendor who keeps none
	}
	if err != nil {
		return err
	}
	limits, err := parseUseTable(text)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(have)) {
		for _, chip := range a.Chips {
			u, ok := have[name][chip]
			limit, known := limits[name][chip]
			switch {
			case !ok:
			case !known && u.Stack > 0:
				problems = append(problems, fmt.Errorf("%w: %s for %s: %s, expected none of its registers to be spilled", framework.ErrInvalid, name, chip, useText(u)))
			case known && (u.Registers > limit.Registers || u.Stack > limit.Stack):
				problems = append(problems, fmt.Errorf("%w: %s for %s: %s, expected at most %s (%s; --record writes what is)", framework.ErrInvalid, name, chip, useText(u), useText(limit), path))
			}
		}
	}
	return errors.Join(problems...)
}

// useText is "40", or with a stack "128+280".
func useText(u machinecode.Use) string {
	if u.Stack == 0 {
		return strconv.Itoa(u.Registers)
	}
	return fmt.Sprintf("%d+%d", u.Registers, u.Stack)
}

func useTable(have map[string]map[string]machinecode.Use, chips []string) []byte {
	var b bytes.Buffer
	b.WriteString(useHead)
	fmt.Fprintf(&b, "kernel %s\n", strings.Join(chips, " "))
	for _, name := range slices.Sorted(maps.Keys(have)) {
		b.WriteString(name)
		for _, chip := range chips {
			if u, ok := have[name][chip]; ok {
				b.WriteString(" " + useText(u))
			} else {
				b.WriteString(" -")
			}
		}
		b.WriteString("\n")
	}
	return b.Bytes()
}

func parseUseTable(text []byte) (map[string]map[string]machinecode.Use, error) {
	out := map[string]map[string]machinecode.Use{}
	var chips []string
	for _, line := range strings.Split(string(text), "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		if chips == nil {
			chips = words[1:]
			continue
		}
		if len(words) != 1+len(chips) {
			return nil, fmt.Errorf("%w: %q: expected a kernel and a number for each of %v", framework.ErrInvalid, line, chips)
		}
		out[words[0]] = map[string]machinecode.Use{}
		for i, word := range words[1:] {
			if word == "-" {
				continue
			}
			first, rest, _ := strings.Cut(word, "+")
			u := machinecode.Use{}
			var err error
			if u.Registers, err = strconv.Atoi(first); err == nil && rest != "" {
				u.Stack, err = strconv.Atoi(rest)
			}
			if err != nil {
				return nil, fmt.Errorf("%w: %q: expected registers, or registers+bytes", framework.ErrInvalid, word)
			}
			out[words[0]][chips[i]] = u
		}
	}
	return out, nil
}
