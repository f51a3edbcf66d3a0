package exec

import (
	"strconv"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/internal/ownkernel"
	"github.com/mscclpp-go/mscclpp/plan/image"
)

// mostThreads of a block are those that the images for GPUs are compiled for.
const mostThreads = 512

// code is the kernel of the executor, and what of it is loaded.
type code struct {
	ownkernel.Kernel
	most uint32 // blocks of launches that may overlap; 0: none
}

// name says which kernel it is.
func (x *code) name(symbol string) {
	x.Kernel = ownkernel.Kernel{
		Family: "plan", Algorithm: "execute", Symbol: symbol, Purpose: "execution plans", Layout: layout(), Images: image.Images,
		Opened: func(info device.Info, i framework.ImageInfo) { x.most = overlapping(info, i.Arch) },
	}
}

// threads is how many of a block's threads the kernel takes.
func (x *code) threads(wanted int) uint32 {
	most := mostThreads
	if x.Carried != nil {
		most = x.Carried.MaxThreads
	}
	if most > 0 {
		wanted = min(wanted, most)
	}
	return uint32(wanted)
}

// overlapping is how many blocks a launch of an image may have that begins while the one before it runs. It waits for that one, and
// leaves some multiprocessors to other kernels: one for which a peer waits could not begin otherwise. Images for
// older chips have no instruction that waits.
func overlapping(info device.Info, arch string) uint32 {
	if n, err := strconv.Atoi(strings.TrimPrefix(arch, "sm_")); err != nil || n < 90 {
		return 0
	}
	const spare = 4
	return uint32(max(0, info.SMs/2-spare))
}
