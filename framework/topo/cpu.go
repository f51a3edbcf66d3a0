package topo

import (
	"bufio"
	"bytes"
	"io/fs"
	"strconv"
	"strings"
)

const (
	cpuDir  = "sys/devices/system/cpu"
	nodeDir = "sys/devices/system/node"
)

// model is the processor's name for people.
func (s system) model() string {
	text, err := fs.ReadFile(s.root, "proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := bufio.NewScanner(bytes.NewReader(text)); line.Scan(); {
		if name, value, ok := strings.Cut(line.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// processors counts sockets and cores among the processors that are on line. A
// core with two threads is one core.
func (s system) processors() (sockets, cores int) {
	seenSockets, seenCores := map[int]bool{}, map[[2]int]bool{}
	for _, cpu := range parseList(s.text(cpuDir + "/online")) {
		dir := cpuDir + "/cpu" + strconv.Itoa(cpu) + "/topology/"
		socket := max(s.number(dir+"physical_package_id", 0), 0)
		seenSockets[socket] = true
		seenCores[[2]int{socket, s.number(dir+"core_id", cpu)}] = true
	}
	return len(seenSockets), len(seenCores)
}

// nodes lists the memory nodes. A kernel without them has one.
func (s system) nodes() []Node {
	var nodes []Node
	for _, id := range parseList(s.text(nodeDir + "/online")) {
		dir := nodeDir + "/node" + strconv.Itoa(id)
		if _, err := fs.Stat(s.root, dir); err != nil {
			continue
		}
		n := Node{ID: id, CPUs: parseList(s.text(dir + "/cpulist")), Bytes: s.memory(dir + "/meminfo")}
		for field := range strings.FieldsSeq(s.text(dir + "/distance")) {
			if d, err := strconv.Atoi(field); err == nil {
				n.Distances = append(n.Distances, d)
			}
		}
		nodes = append(nodes, n)
	}
	if nodes == nil {
		nodes = []Node{{CPUs: parseList(s.text(cpuDir + "/online")), Bytes: s.memory("proc/meminfo")}}
	}
	return nodes
}

// memory finds MemTotal in a meminfo file, of the machine or of a node.
func (s system) memory(name string) uint64 {
	for line := range strings.Lines(s.text(name)) {
		_, value, ok := strings.Cut(line, "MemTotal:")
		if !ok {
			continue
		}
		if fields := strings.Fields(value); len(fields) > 0 {
			if kib, err := strconv.ParseUint(fields[0], 10, 54); err == nil {
				return kib << 10
			}
		}
	}
	return 0
}

// maxListed bounds a list, so that "0-999999999999" in a damaged file is no attack.
// Linux knows no more processors, and fewer nodes.
const maxListed = 8192

// parseList reads the kernel's lists of numbers: "0-3,8". Anything else is
// left out.
func parseList(text string) []int {
	list := []int{}
	for part := range strings.SplitSeq(text, ",") {
		from, to, ranged := strings.Cut(strings.TrimSpace(part), "-")
		first, err := strconv.Atoi(from)
		if err != nil || first < 0 {
			continue
		}
		last := first
		if ranged {
			if last, err = strconv.Atoi(to); err != nil {
				continue
			}
		}
		for n := first; n <= last && len(list) < maxListed; n++ {
			list = append(list, n)
		}
	}
	return list
}
