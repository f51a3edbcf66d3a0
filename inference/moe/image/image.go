// Package image holds the kernels for experts for GPUs, compiled: for NVIDIA's from sm_80 on, and for AMD's gfx90a and gfx942. For
// the CPU it is among the images of transports.
package image

import (
	"embed"

	"github.com/mscclpp-go/mscclpp/framework/kernel/image"
)

//go:embed manifest.json *.gz *.zst
var files embed.FS

// Images returns the embedded images.
func Images() (*image.Set, error) { return image.Open(files) }
