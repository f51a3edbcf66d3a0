// Package image holds the collectives' kernels for GPUs, compiled, for two
// architectures of NVIDIA and two of AMD. NVIDIA's driver compiles an image when it is
// first loaded on a machine, so there are small ones: a family for each collective. For
// AMD the families "reduce" and "move" have all of them. A transport with memory
// channels on such devices offers them as its own. For the CPU they are built where
// they are used.
package image

import (
	"embed"

	"github.com/mscclpp-go/mscclpp/framework/kernel/image"
)

//go:embed manifest.json *.zst
var files embed.FS

// Images returns the embedded images.
func Images() (*image.Set, error) { return image.Open(files) }
