package cuda

// #include <stdlib.h>
// #include "gdrcopy.h"
import "C"

import (
	"os"
	"sync"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/device"
)

// EnvGDRCopy is the environment variable that names the library of GDRCopy to open. By
// default it is found as libgdrapi.so.2 or libgdrapi.so.
const EnvGDRCopy = "MSCCLPP_GDRCOPY_LIBRARY"

// mapping is held while a library is chosen and used.
var mapping sync.Mutex

// MapForHost implements [device.HostMapper]. ErrUnavailable: GDRCopy, its kernel module or the
// permission to open that is missing, or it does not pin or map the memory.
func (d *Device) MapForHost(m device.Memory) (device.HostView, error) {
	paths := "libgdrapi.so.2\nlibgdrapi.so"
	if path := os.Getenv(EnvGDRCopy); path != "" {
		paths = path
	}
	text := C.CString(paths)
	defer C.free(unsafe.Pointer(text))
	mapping.Lock()
	defer mapping.Unlock()
	C.gdrcopy_choose(text)
	return d.Marking.MapForHost(m)
}
