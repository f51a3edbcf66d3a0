package predict

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/mscclpp-go/mscclpp/internal/suggest"
	"github.com/mscclpp-go/mscclpp/simulate"
)

// maxMachineFile bounds what is read: a data file that is named by mistake gives an error.
const maxMachineFile = 1 << 20

// readMachine finds the machine by name or reads its file, and applies the flags.
func (v *simulateVerb) readMachine() (simulate.Machine, error) {
	m, err := findMachine(v.machine)
	if err != nil {
		return m, err
	}
	for _, p := range simulate.Parameters() {
		if !v.flags.Changed(p.Name) {
			continue
		}
		value, err := v.flags.GetFloat64(p.Name)
		if err != nil {
			return m, err
		}
		if err := p.Set(&m, value); err != nil {
			return m, fmt.Errorf("--%w", err)
		}
	}
	return m, m.Validate()
}

// findMachine takes what ends as a YAML file does for one.
func findMachine(name string) (simulate.Machine, error) {
	if ext := strings.ToLower(filepath.Ext(name)); ext != ".yaml" && ext != ".yml" {
		m, err := simulate.FindMachine(name)
		if err != nil {
			err = fmt.Errorf("--machine %q%s: expected one of %s, or a file that ends in .yaml: %w", name, suggest.Hint(suggest.Name(name, strings.Split(machineNames(), ", "))), machineNames(), simulate.ErrInvalid)
		}
		return m, err
	}
	info, err := os.Stat(name)
	if err != nil {
		return simulate.Machine{}, fmt.Errorf("--machine: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxMachineFile {
		return simulate.Machine{}, fmt.Errorf("--machine %s: expected a regular file of at most %d bytes", name, maxMachineFile)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return simulate.Machine{}, fmt.Errorf("--machine: %w", err)
	}
	m, err := parseMachine(text)
	if err != nil {
		return m, fmt.Errorf("--machine %s: %w", name, err)
	}
	if m.Name == "" {
		m.Name = strings.TrimSuffix(filepath.Base(name), filepath.Ext(name))
	}
	return m, nil
}

// parseMachine reads name, base and parameters. Without a base all parameters are
// needed; an unknown one is an error.
func parseMachine(text []byte) (simulate.Machine, error) {
	var m simulate.Machine
	var raw map[string]yaml.Node
	in := yaml.NewDecoder(bytes.NewReader(text))
	if err := in.Decode(&raw); err != nil && !errors.Is(err, io.EOF) {
		return m, fmt.Errorf("expected YAML, one line a parameter such as nics: 8: %w", err)
	}
	if err := in.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return m, errors.New("expected one document: what follows --- would describe no machine")
	}
	for _, key := range []string{"base", "name"} {
		if node, ok := raw[key]; ok && node.Kind != yaml.ScalarNode {
			return m, fmt.Errorf("line %d: %s: expected a word", node.Line, key)
		}
	}
	given := map[string]bool{}
	if base, ok := raw["base"]; ok {
		var err error
		if m, err = simulate.FindMachine(base.Value); err != nil {
			return m, fmt.Errorf("base: %w", err)
		}
		m.Name = ""
		delete(raw, "base")
		for _, p := range simulate.Parameters() {
			given[p.Name] = true
		}
	}
	if name, ok := raw["name"]; ok {
		m.Name = name.Value
		delete(raw, "name")
	}
	var problems []error
	var missing, known []string
	for _, p := range simulate.Parameters() {
		known = append(known, p.Name)
		node, ok := raw[p.Name]
		if !ok {
			if !given[p.Name] {
				missing = append(missing, p.Name)
			}
			continue
		}
		delete(raw, p.Name)
		var value float64
		if _, err := strconv.ParseFloat(node.Value, 64); errors.Is(err, strconv.ErrRange) {
			problems = append(problems, fmt.Errorf("line %d: %s: %s is out of range: expected a number that is not so large", node.Line, p.Name, node.Value))
		} else if err := node.Decode(&value); err != nil {
			problems = append(problems, fmt.Errorf("line %d: %s: expected a number, found %q", node.Line, p.Name, node.Value))
		} else if err := p.Set(&m, value); err != nil {
			problems = append(problems, fmt.Errorf("line %d: %w", node.Line, err))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		node := raw[name]
		problems = append(problems, fmt.Errorf("line %d: unknown key %q: expected name, base, %s", node.Line, name, strings.Join(known, ", ")))
	}
	if len(missing) > 0 {
		problems = append(problems, fmt.Errorf("without base: h100 or another one all parameters are needed, and these are missing: %s", strings.Join(missing, ", ")))
	}
	return m, errors.Join(problems...)
}

// parameterLines lists a machine's parameters as comments of a table, four a line.
func parameterLines(m *simulate.Machine) string {
	var b strings.Builder
	all := simulate.Parameters()
	for i, p := range all {
		lead, tail := ", ", ""
		if i%4 == 0 {
			lead = "# "
		}
		if i == len(all)-1 || i%4 == 3 {
			tail = "\n"
		}
		b.WriteString(lead + strings.TrimSpace(fmt.Sprintf("%s %g %s", p.Name, p.Get(m), p.Unit)) + tail)
	}
	return b.String()
}
