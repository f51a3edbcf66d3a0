// Package kfd finds AMD's GPUs in the files of their kernel driver, amdgpu: nodes, the links between them, and which of
// them this process may use. It needs no library.
package kfd

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/topo"
)

const (
	nodesDir  = "sys/class/kfd/kfd/topology/nodes"
	driver    = "dev/kfd"
	renderDir = "dev/dri/renderD"
)

// Type is the type of these devices.
const Type = "hip"

// GPUs is a topo.Finder of the GPUs of a machine, numbered as HIP does without variables: by the nodes that this process
// may use. A machine without the driver has none, and that is no error. ErrUnavailable: it has some, but not for this
// process.
func GPUs(root fs.FS) topo.Finder {
	return func() ([]topo.GPU, error) {
		nodes, withheld := read(root)
		if len(nodes) == 0 && len(withheld) == 0 {
			return nil, nil
		}
		if _, err := fs.Stat(root, driver); err != nil {
			return nil, fmt.Errorf("%w: AMD's driver has GPUs, and /%s is not there: start the container with it, and with /dev/dri", framework.ErrUnavailable, driver)
		}
		if len(nodes) == 0 {
			return nil, fmt.Errorf("%w: AMD's driver has GPUs, none for this process: %s", framework.ErrUnavailable, strings.Join(withheld, "; "))
		}
		return convert(root, nodes), nil
	}
}

// node is a GPU, or a part of one, as the driver lists it.
type node struct {
	number     int
	properties properties
	links      []properties
}

// properties are the lines of a file, "name value".
type properties map[string]uint64

// read lists the GPUs that this process may use, and why it may not use others. The driver shows all nodes of a machine,
// also in a container that has some of them.
func read(root fs.FS) (nodes []node, withheld []string) {
	entries, err := fs.ReadDir(root, nodesDir)
	if err != nil {
		return nil, nil
	}
	for _, e := range entries {
		n := node{}
		if n.number, err = strconv.Atoi(e.Name()); err != nil {
			continue
		}
		dir := nodesDir + "/" + e.Name()
		id, err := fs.ReadFile(root, dir+"/gpu_id")
		switch text := strings.TrimSpace(string(id)); {
		case errors.Is(err, fs.ErrPermission), err == nil && text == "":
			withheld = append(withheld, fmt.Sprintf("node %d belongs to another container", n.number))
			continue
		case err != nil, text == "0": // a processor
			continue
		}
		if n.properties = parse(root, dir+"/properties"); len(n.properties) == 0 {
			withheld = append(withheld, fmt.Sprintf("node %d belongs to another container", n.number))
			continue
		}
		render := renderDir + strconv.FormatUint(n.properties["drm_render_minor"], 10)
		if _, err := fs.Stat(root, render); err != nil {
			withheld = append(withheld, fmt.Sprintf("node %d has no /%s here", n.number, render))
			continue
		}
		for _, kind := range []string{"io_links", "p2p_links"} {
			n.links = append(n.links, links(root, dir+"/"+kind)...)
		}
		nodes = append(nodes, n)
	}
	slices.SortFunc(nodes, func(a, b node) int { return a.number - b.number })
	return nodes, withheld
}

func links(root fs.FS, dir string) (all []properties) {
	entries, _ := fs.ReadDir(root, dir) // older drivers have no p2p_links
	for _, e := range entries {
		if p := parse(root, dir+"/"+e.Name()+"/properties"); len(p) > 0 {
			all = append(all, p)
		}
	}
	return all
}

func parse(root fs.FS, file string) properties {
	text, err := fs.ReadFile(root, file)
	if err != nil {
		return nil
	}
	p := properties{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 64); err == nil {
			p[name] = n
		}
	}
	return p
}

// address is the PCI address. Parts of a card have functions of their own.
func (p properties) address() string {
	at := p["location_id"]
	return fmt.Sprintf("%04x:%02x:%02x.%d", p["domain"], at>>8&0xff, at>>3&0x1f, at&7)
}

// card is the address without the function.
func (p properties) card() string {
	card, _, _ := strings.Cut(p.address(), ".")
	return card
}

// arch is the processor: 90402 is gfx942, 90010 gfx90a.
func (p properties) arch() string {
	v := p["gfx_target_version"]
	return fmt.Sprintf("gfx%d%x%x", v/10000, v/100%100, v%100)
}
