package launch

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/topo"
)

const (
	gpuFolder  = "proc/driver/nvidia/gpus" // a folder for each GPU that the driver has
	gpuNodes   = "dev/nvidia"              // and a number: what this process may be able to open
	gpuVisible = "CUDA_VISIBLE_DEVICES"
)

// seenGPU is a GPU of this host; fields that the driver does not tell are unset.
type seenGPU struct {
	minor int // of its device node; -1 if unknown
	uuid  string
}

// GPUs returns how many NVIDIA GPUs a program started here would see. Root is the root
// of the file system; lookup reads the environment. If there are none, the error wraps
// framework.ErrUnavailable and says where they were looked for.
//
// GPUs does not load the driver's library, which would know as well: that takes a good
// part of a second, and a process that has loaded it must not fork.
func GPUs(root fs.FS, lookup func(name string) (string, bool)) (int, error) {
	all := present(root)
	if len(all) == 0 {
		return 0, fmt.Errorf("%w: no GPU: expected one in /%s, with a device node /%sN", framework.ErrUnavailable, gpuFolder, gpuNodes)
	}
	list, limited := lookup(gpuVisible)
	if !limited {
		return len(all), nil
	}
	n, err := visible(all, list)
	if err == nil && n == 0 {
		err = fmt.Errorf("%w: no GPU: %s=%q hides all %d", framework.ErrUnavailable, gpuVisible, list, len(all))
	}
	return n, err
}

// present lists the GPUs that the driver has and that have a device node: in a
// container the driver may still name all of the host, and nodes may outlive their
// GPU. Where only one of the two sources is there, it alone counts: nodes appear
// when a GPU is first used, and some containers hide /proc/driver.
func present(root fs.FS) []seenGPU {
	nodes := map[int]bool{}
	names, _ := fs.Glob(root, gpuNodes+"[0-9]*") // the pattern is right, so there is no error
	for _, name := range names {
		if minor, err := strconv.Atoi(strings.TrimPrefix(name, gpuNodes)); err == nil {
			nodes[minor] = true
		}
	}
	var gpus []seenGPU
	folders, _ := fs.ReadDir(root, gpuFolder) // no folder: no driver, or not shown
	for _, f := range folders {
		g := seenGPU{minor: -1}
		if text, err := fs.ReadFile(root, path.Join(gpuFolder, f.Name(), "information")); err == nil {
			g.read(text)
		}
		if len(nodes) == 0 || g.minor < 0 || nodes[g.minor] {
			gpus = append(gpus, g)
		}
	}
	if len(folders) == 0 {
		for minor := range nodes {
			gpus = append(gpus, seenGPU{minor: minor})
		}
	}
	if len(nodes) > 0 && len(gpus) > len(nodes) { // minors unknown: at least the number is right
		gpus = gpus[:len(nodes)]
	}
	return gpus
}

// read takes what it knows from the lines "Name:  value" of the driver.
func (g *seenGPU) read(information []byte) {
	lines := bufio.NewScanner(bytes.NewReader(information))
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		switch value = strings.TrimSpace(value); strings.TrimSpace(name) {
		case "Device Minor":
			if minor, err := strconv.Atoi(value); err == nil {
				g.minor = minor
			}
		case "GPU UUID":
			g.uuid = value
		}
	}
}

// visible counts the entries of the list as CUDA does.
func visible(all []seenGPU, list string) (int, error) {
	ids := make([][]string, len(all))
	for i, g := range all {
		ids[i] = []string{g.uuid}
	}
	places, end := topo.Listed(list, ids)
	if strings.HasPrefix(end, "MIG-") { // the files of the driver do not name instances
		return 0, fmt.Errorf("%w: %s=%s: a process sees one MIG instance at most: expected a number of ranks instead of gpu", framework.ErrInvalid, gpuVisible, list)
	}
	slices.Sort(places)
	if len(slices.Compact(slices.Clone(places))) < len(places) {
		return 0, fmt.Errorf("%w: %s=%s names a GPU twice", framework.ErrInvalid, gpuVisible, list)
	}
	return len(places), nil
}
