package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/internal/processors"
)

// Mask is a set of processors, ascending.
type Mask []int

// String returns the kernel's notation: "0-3,8".
func (m Mask) String() string {
	var parts []string
	for i := 0; i < len(m); {
		j := i
		for j+1 < len(m) && m[j+1] == m[j]+1 {
			j++
		}
		if i == j {
			parts = append(parts, strconv.Itoa(m[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", m[i], m[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ",")
}

// apply binds the calling thread, and so the processes that it starts.
func (m Mask) apply() error {
	var set unix.CPUSet
	for _, c := range m {
		set.Set(c)
	}
	return unix.SchedSetaffinity(0, &set)
}

// Bind returns the processors of each of n local ranks under a policy: none, core,
// numa, socket or auto. A nil result means that ranks are not bound. Only processors on
// which this process may run are assigned.
func Bind(policy string, n int) ([]Mask, error) {
	if policy == "none" || policy == "" {
		return nil, nil
	}
	if policy == "auto" && n < 2 {
		return nil, nil
	}
	allowed, err := processors.Allowed()
	if err != nil {
		return nil, fmt.Errorf("bind: %w", err)
	}
	return bind(policy, n, "/sys/devices/system", func(cpu int) bool { return slices.Contains(allowed, cpu) })
}

func bind(policy string, n int, sys string, allowed func(cpu int) bool) ([]Mask, error) {
	if policy == "auto" {
		nodes, _ := domains(sys, "numa", allowed)
		if len(nodes) < 2 {
			return nil, nil // no help where there is nothing to choose, or it cannot be known
		}
		return spread(nodes, n), nil
	}
	found, err := domains(sys, policy, allowed)
	if err != nil {
		return nil, fmt.Errorf("bind to %s: %w", policy, err)
	}
	if policy == "core" {
		if n > len(found) {
			return nil, fmt.Errorf("%w: bind to core: %d ranks, but %d cores may be used: bind to numa, socket or none", framework.ErrInvalid, n, len(found))
		}
		return found[:n], nil
	}
	return spread(found, n), nil
}

// spread gives neighbors among ranks the same domain, as evenly as possible.
func spread(domains []Mask, n int) []Mask {
	out := make([]Mask, n)
	for i := range out {
		out[i] = domains[i*len(domains)/n]
	}
	return out
}

// domains groups the allowed processors by node, socket or core.
func domains(sys, policy string, allowed func(int) bool) ([]Mask, error) {
	if policy == "numa" {
		return nodes(sys, allowed)
	}
	online, err := readList(filepath.Join(sys, "cpu/online"))
	if err != nil {
		return nil, err
	}
	groups, order := map[string]Mask{}, []string{}
	for _, cpu := range online {
		if !allowed(cpu) {
			continue
		}
		dir := filepath.Join(sys, "cpu", "cpu"+strconv.Itoa(cpu), "topology")
		key := readWord(filepath.Join(dir, "physical_package_id"))
		switch policy {
		case "core":
			key += "/" + readWord(filepath.Join(dir, "die_id")) + "/" + readWord(filepath.Join(dir, "core_id"))
			if key == "//" {
				key = strconv.Itoa(cpu) // a kernel without topology: a core each
			}
		case "socket":
		default:
			return nil, fmt.Errorf("%w: expected none, core, numa, socket or auto", framework.ErrInvalid)
		}
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], cpu)
	}
	out := make([]Mask, len(order))
	for i, key := range order {
		out[i] = groups[key]
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w: no processor may be used", framework.ErrUnavailable)
	}
	return out, nil
}

// nodes lists the NUMA nodes that have processors. A kernel without NUMA has one.
func nodes(sys string, allowed func(int) bool) ([]Mask, error) {
	ids, err := readList(filepath.Join(sys, "node/online"))
	if err != nil {
		return domainsAll(sys, allowed)
	}
	var out []Mask
	for _, id := range ids {
		cpus, err := readList(filepath.Join(sys, "node", "node"+strconv.Itoa(id), "cpulist"))
		if err != nil {
			return nil, err
		}
		if m := slices.DeleteFunc(cpus, func(c int) bool { return !allowed(c) }); len(m) > 0 {
			out = append(out, m)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w: no processor may be used", framework.ErrUnavailable)
	}
	return out, nil
}

func domainsAll(sys string, allowed func(int) bool) ([]Mask, error) {
	online, err := readList(filepath.Join(sys, "cpu/online"))
	if err != nil {
		return nil, err
	}
	return []Mask{slices.DeleteFunc(online, func(c int) bool { return !allowed(c) })}, nil
}

func readWord(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// readList reads a kernel list such as "0-3,8".
func readList(path string) (Mask, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var out Mask
	for _, part := range strings.Split(strings.TrimSpace(string(data)), ",") {
		if part == "" {
			continue // a node without processors
		}
		from, to, isRange := strings.Cut(part, "-")
		first, err := strconv.Atoi(from)
		last := first
		if err == nil && isRange {
			last, err = strconv.Atoi(to)
		}
		if err != nil || last < first || last-first > 1<<16 {
			return nil, fmt.Errorf("%s: %q: expected a list such as 0-3,8", path, part)
		}
		for c := first; c <= last; c++ {
			out = append(out, c)
		}
	}
	return out, nil
}
