// Package image holds the collectives' kernels for GPUs, compiled: the families
// "reduce" and "move" for two architectures of NVIDIA and two of AMD. A transport
// with memory channels on such devices offers them as its own. For the CPU they are
// built where they are used.
package image

import (
	"embed"

	"github.com/mscclpp-go/mscclpp/framework/device/image"
)

//go:embed manifest.json *.gz
var files embed.FS

// Families of images.
const (
	Reduce = "reduce" // one image a type
	Move   = "move"   // bytes of whatever type
)

// Images returns the embedded images.
func Images() (*image.Set, error) { return image.Open(files) }
