package actor

import (
	"embed"
	"io/fs"

	"github.com/mscclpp-go/mscclpp/framework/kernel/image"
)

//go:embed image
var files embed.FS

// Images returns the actor for GPUs. For the CPU it is built where it is used.
func Images() (*image.Set, error) {
	dir, err := fs.Sub(files, "image")
	if err != nil {
		return nil, err
	}
	return image.Open(dir)
}
