package hip

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"embed"
	"fmt"
	"io/fs"
	"sync"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/kernel/image"
)

//go:embed image
var images embed.FS

// words hands the images of the kernels that store words and wait for them to the table.
var words = sync.OnceValue(func() error {
	dir, err := fs.Sub(images, "image")
	if err != nil {
		return err
	}
	set, err := image.Open(dir)
	if err != nil {
		return fmt.Errorf("hip: %w", err)
	}
	for _, info := range set.Infos() {
		data, err := set.Read(info.ID)
		if err != nil {
			return fmt.Errorf("hip: %w", err)
		}
		arch := C.CString(info.Arch)
		C.hip_word_image(arch, unsafe.Pointer(unsafe.SliceData(data)), C.size_t(len(data)))
		C.free(unsafe.Pointer(arch))
	}
	return nil
})
