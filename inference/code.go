package inference

import (
	"strconv"
	"strings"

	"github.com/mscclpp-go/mscclpp/inference/image"
	"github.com/mscclpp-go/mscclpp/internal/ownkernel"
)

// mostThreads of a block are those that the images for GPUs are compiled for.
const mostThreads = 256

// kernelOfNorms is the kernel of AllReduceNorm.
func kernelOfNorms() ownkernel.Kernel {
	return ownkernel.Kernel{
		Family: "inference", Algorithm: "allreduce_norm", Symbol: symbolOfNorms, Purpose: "inference", Layout: layout(), Images: image.Images,
	}
}

// The kernels of all calls, and of frequent ones.
const (
	symbolOfNorms = "mscclpp_inference_allreduce_norm"
	symbolOfRMS   = "mscclpp_inference_rms_norm"
)

// hasClusters reports whether images for an architecture are for clusters of blocks.
func hasClusters(arch string) bool {
	n, err := strconv.Atoi(strings.TrimPrefix(arch, "sm_"))
	return err == nil && n >= 90
}

// threadsOf is how many of a block's threads the kernel takes.
func threadsOf(k *ownkernel.Kernel, wanted int) uint32 {
	most := mostThreads
	if k.Carried != nil && k.Carried.MaxThreads > 0 {
		most = k.Carried.MaxThreads
	}
	return uint32(min(wanted, most))
}
