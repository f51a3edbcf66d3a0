package cuda

// #cgo LDFLAGS: -ldl
// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
)

// EnvLibrary is the environment variable that names the driver library to open, for
// installations at unusual places. By default it is found as libcuda.so.1.
const EnvLibrary = "MSCCLPP_CUDA_LIBRARY"

const defaultLibrary = "libcuda.so.1"

// driver is the vendor's library, opened and initialized.
type driver struct {
	api     *C.cuda_api
	path    string
	ready   bool // initialized; what follows is known
	version int  // 12040 is CUDA 12.4
	devices int
}

// libraries holds what was opened. It is never closed: the application may use it
// as well, and a driver leaves threads behind.
var libraries = struct {
	sync.Mutex
	open map[string]*driver
}{open: map[string]*driver{}}

// openDriver opens the library that the environment names.
func openDriver() (*driver, error) {
	path := os.Getenv(EnvLibrary)
	if path == "" {
		path = defaultLibrary
	}
	return openLibrary(path)
}

func openLibrary(path string) (*driver, error) {
	libraries.Lock()
	defer libraries.Unlock()
	d := libraries.open[path]
	if d == nil {
		api, err := dlopen(path)
		if err != nil {
			return nil, err
		}
		d = &driver{api: api, path: path}
		libraries.open[path] = d
	}
	if d.ready {
		return d, nil
	}
	var version, count C.int
	if err := d.check("initialize", noDevice, C.cuda_init(d.api, &version, &count)); err != nil {
		return nil, hidden(err)
	}
	d.ready, d.version, d.devices = true, int(version), int(count)
	return d, nil
}

// hidden adds to the driver's word that there is no device what may be the cause: it
// says the same of a machine without GPUs and of a list of none, or with one twice.
func hidden(err error) error {
	var e *Error
	if !errors.As(err, &e) || e.Code != C.CUDA_ERROR_NO_DEVICE {
		return err
	}
	if list, set := os.LookupEnv(envVisible); set {
		return fmt.Errorf("%w: %s=%q leaves none: expected numbers or UUIDs of GPUs of this machine, none of them twice", err, envVisible, list)
	}
	return fmt.Errorf("%w: expected a GPU: look at nvidia-smi, and at what the container was given", err)
}

const envVisible = "CUDA_VISIBLE_DEVICES"

func dlopen(path string) (*C.cuda_api, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var why [512]C.char
	api := C.cuda_open(name, &why[0], C.size_t(len(why)))
	if api == nil {
		return nil, fmt.Errorf("%w: no NVIDIA driver: %s", framework.ErrUnavailable, C.GoString(&why[0]))
	}
	return api, nil
}

// Count returns how many devices are visible; CUDA_VISIBLE_DEVICES may hide some.
// ErrUnavailable: there is no driver, or it finds no device.
func Count() (int, error) {
	d, err := openDriver()
	if err != nil {
		return 0, fmt.Errorf("cuda: %w", err)
	}
	return d.devices, nil
}

// Version returns the highest CUDA version that the driver supports, as 1000 times
// the major plus 10 times the minor number.
func Version() (int, error) {
	d, err := openDriver()
	if err != nil {
		return 0, fmt.Errorf("cuda: %w", err)
	}
	return d.version, nil
}

// symbolNames lists the functions that are looked up in the driver.
func symbolNames() []string {
	names := make([]*C.char, C.cuda_symbol_names(nil, 0))
	C.cuda_symbol_names(&names[0], C.size_t(len(names)))
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = C.GoString(n)
	}
	return out
}
