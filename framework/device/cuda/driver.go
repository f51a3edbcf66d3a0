package cuda

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device/native"
	_ "github.com/mscclpp-go/mscclpp/framework/device/native/include" // so that builds notice a change of the header
)

// EnvLibrary is the environment variable that names the driver library to open, for
// installations at unusual places. By default it is found as libcuda.so.1.
const EnvLibrary = "MSCCLPP_CUDA_LIBRARY"

const defaultLibrary = "libcuda.so.1"

// libraries are the drivers that were asked for, by path; each is a back end of its own.
var libraries = struct {
	sync.Mutex
	of map[string]*native.Backend
}{of: map[string]*native.Backend{}}

// Backend returns the table of NVIDIA GPUs, over the driver that the environment names, and makes it ready.
// ErrUnavailable: there is no driver, or it finds no device.
func Backend() (*native.Backend, error) {
	chooseGDRCopy()
	back, _, err := openDriver()
	return back, err
}

// openDriver opens the library that the environment names.
func openDriver() (back *native.Backend, path string, err error) {
	if path = os.Getenv(EnvLibrary); path == "" {
		path = defaultLibrary
	}
	if strings.Contains(path, "\n") {
		return nil, "", fmt.Errorf("cuda: %w: %s=%q", framework.ErrInvalid, EnvLibrary, path)
	}
	libraries.Lock()
	defer libraries.Unlock()
	if back = libraries.of[path]; back == nil {
		if back, err = native.BuiltIn(unsafe.Pointer(&C.cuda_table)); err != nil {
			return nil, "", err
		}
		libraries.of[path] = back
	}
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	C.cuda_choose(name)
	if _, err := back.Count(); err != nil {
		return nil, "", hidden(err)
	}
	return back, path, nil
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

// Count returns how many devices are visible; CUDA_VISIBLE_DEVICES may hide some.
// ErrUnavailable: there is no driver, or it finds no device.
func Count() (int, error) {
	back, _, err := openDriver()
	if err != nil {
		return 0, err
	}
	return back.Count()
}

// Version returns the highest CUDA version that the driver supports, as 1000 times
// the major plus 10 times the minor number.
func Version() (int, error) {
	_, path, err := openDriver()
	if err != nil {
		return 0, err
	}
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	return int(C.cuda_version(name)), nil
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
