package topo

import (
	"cmp"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
)

// procDir is where NVIDIA's driver shows itself without any library.
const procDir = "proc/driver/nvidia"

// Driver lists NVIDIA's GPUs as their driver shows them below /proc of the machine
// whose root is root: name, address and UUID, numbered by address. It does not say what joins
// them; package nvml knows more. ErrUnavailable: there is no driver.
func Driver(root fs.FS) ([]GPU, error) {
	s := system{root}
	if _, err := fs.Stat(root, procDir); err != nil {
		return nil, fmt.Errorf("%w: no NVIDIA driver: /%s is not there: install the driver, or start the container with its GPUs", framework.ErrUnavailable, procDir)
	}
	var gpus []GPU
	for _, address := range s.names(procDir + "/gpus") {
		if !isPCI(address) {
			continue
		}
		g := GPU{NUMA: -1, PCI: strings.ToLower(address)}
		for line := range strings.Lines(s.text(procDir + "/gpus/" + address + "/information")) {
			name, value, _ := strings.Cut(line, ":")
			switch value = strings.TrimSpace(value); strings.TrimSpace(name) {
			case "Model":
				g.Name = value
			case "GPU UUID":
				if !strings.Contains(value, "?") { // not known before its first use
					g.UUID = value
				}
			}
		}
		gpus = append(gpus, g)
	}
	slices.SortFunc(gpus, func(a, b GPU) int { return cmp.Compare(a.PCI, b.PCI) })
	for i := range gpus {
		gpus[i].Device = framework.Device{Type: "cuda", Index: i}
	}
	return gpus, nil
}
