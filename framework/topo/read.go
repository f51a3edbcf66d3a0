package topo

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
)

// System reads this machine.
func System(finders ...Finder) (*Host, error) { return Read(os.DirFS("/"), finders...) }

// Read reads the machine whose root is root.
func Read(root fs.FS, finders ...Finder) (*Host, error) {
	h, err := Surroundings(root, finders...)
	if err != nil {
		return nil, err
	}
	s := system{root}
	h.CPU = s.model()
	h.Sockets, h.Cores = s.processors()
	return h, nil
}

// Surroundings reads of a machine what Facts are made of, and leaves out its processors:
// these are hundreds of files, which each start of a rank would wait for.
func Surroundings(root fs.FS, finders ...Finder) (*Host, error) {
	if _, err := fs.Stat(root, "sys"); err != nil {
		return nil, fmt.Errorf("%w: topology: no /sys: %w", framework.ErrUnavailable, err)
	}
	s := system{root}
	h := &Host{
		ID:   s.text("proc/sys/kernel/random/boot_id"),
		Name: s.text("proc/sys/kernel/hostname"),
	}
	h.Nodes = s.nodes()
	h.NICs = s.nics()
	for _, find := range finders {
		gpus, err := find()
		if errors.Is(err, framework.ErrUnavailable) {
			h.Missing = append(h.Missing, err.Error())
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("topology: %w", err)
		}
		for _, g := range gpus {
			if g.NUMA = -1; isPCI(g.PCI) {
				g.PCI = strings.ToLower(g.PCI)
				entry := "sys/bus/pci/devices/" + g.PCI
				g.bus, g.NUMA = s.bus(entry), s.number(entry+"/numa_node", -1)
			}
			h.GPUs = append(h.GPUs, g)
		}
	}
	return h, nil
}
