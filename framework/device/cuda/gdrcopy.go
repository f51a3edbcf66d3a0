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

// chooseGDRCopy tells the table which libraries to look for.
func chooseGDRCopy() {
	paths := "libgdrapi.so.2\nlibgdrapi.so"
	if path := os.Getenv(EnvGDRCopy); path != "" {
		paths = path
	}
	text := C.CString(paths)
	defer C.free(unsafe.Pointer(text))
	C.gdrcopy_choose(text)
}

// MapForHost implements [device.HostMapper]. ErrUnavailable: GDRCopy, its kernel module or the
// permission to open that is missing, or it does not pin or map the memory.
func (d *Device) MapForHost(m device.Memory) (device.HostView, error) {
	mapping.Lock()
	defer mapping.Unlock()
	chooseGDRCopy()
	return d.Marking.MapForHost(m)
}
