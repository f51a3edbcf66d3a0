package host

// #cgo LDFLAGS: -ldl
// #include <stdlib.h>
// #include "launch.h"
import "C"

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/internal/filelimit"
)

// Module is a loaded shared object. It implements device.Module.
type Module struct {
	mu     sync.Mutex
	handle unsafe.Pointer // nil once closed
}

// Load loads an image from memory; nothing is written to a file system.
func (d *Device) Load(image []byte) (device.Module, error) {
	if err := d.live("load"); err != nil {
		return nil, err
	}
	m, err := load(image)
	if err != nil {
		return nil, fmt.Errorf("host load image of %d bytes: %w", len(image), err)
	}
	return m, nil
}

func load(image []byte) (*Module, error) {
	if err := check(image); err != nil {
		return nil, err
	}
	if err := filelimit.Check(uint64(len(image))); err != nil {
		return nil, fmt.Errorf("%w: %w", framework.ErrUnavailable, err)
	}
	fd, err := executable()
	if err != nil {
		return nil, fmt.Errorf("%w: memfd_create: %w", framework.ErrUnavailable, err)
	}
	defer unix.Close(fd)
	for rest := image; len(rest) > 0; {
		n, err := unix.Write(fd, rest)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%w: writing the image: %w", framework.ErrUnavailable, err)
		}
		rest = rest[n:]
	}
	path := C.CString(uniquePath(loads.Add(1), fd))
	defer C.free(unsafe.Pointer(path))
	var why [512]C.char
	handle := C.mscclpp_host_open(path, &why[0], C.size_t(len(why)))
	if handle == nil {
		return nil, fmt.Errorf("%w: dlopen: %s", framework.ErrInvalid, C.GoString(&why[0]))
	}
	m := &Module{handle: handle}
	abi := m.symbol("mscclpp_abi")
	if abi == nil {
		m.Close()
		return nil, fmt.Errorf("%w: no symbol mscclpp_abi: expected an image built with the mscclpp headers", framework.ErrInvalid)
	}
	if v := *(*uint32)(abi); v != kernel.ABI {
		m.Close()
		return nil, fmt.Errorf("%w: image of ABI %d: expected %d; build it again", framework.ErrInvalid, v, kernel.ABI)
	}
	return m, nil
}

// executable makes a memfd that may be mapped for execution, also where the
// administrator made the opposite the default.
func executable() (int, error) {
	fd, err := unix.MemfdCreate("mscclpp-image", unix.MFD_CLOEXEC|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3: always executable
		fd, err = unix.MemfdCreate("mscclpp-image", unix.MFD_CLOEXEC)
	}
	return fd, err
}

var loads atomic.Uint32

// uniquePath names the descriptor as no other load did. The dynamic linker takes
// equal paths for the same object, and descriptors are reused; so the number of
// the load is spelled into the path, a bit each: "/" for 0, "/." for 1. The folder is that of the thread: that of the
// process leads to nothing where its main thread has ended.
func uniquePath(load uint32, fd int) string {
	var b strings.Builder
	b.WriteString("/proc/thread-self/fd")
	for ; load > 0; load >>= 1 {
		b.WriteByte('/')
		if load&1 == 1 {
			b.WriteByte('.')
		}
	}
	return b.String() + "/" + strconv.Itoa(fd)
}

var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// check refuses what the dynamic linker would crash on: it maps segments without
// asking whether the file is long enough.
func check(image []byte) error {
	want := machines[runtime.GOARCH]
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return fmt.Errorf("%w: not a shared object for %v, or cut off: %w", framework.ErrInvalid, want, err)
	}
	if f.Type != elf.ET_DYN || f.Class != elf.ELFCLASS64 || f.Machine != want {
		return fmt.Errorf("%w: %v %v for %v: expected a shared object for %v", framework.ErrInvalid, f.Class, f.Type, f.Machine, want)
	}
	size := uint64(len(image))
	for _, p := range f.Progs {
		if p.Off > size || p.Filesz > size-p.Off {
			return fmt.Errorf("%w: truncated: a segment ends at byte %d of %d", framework.ErrInvalid, p.Off+p.Filesz, size)
		}
	}
	return nil
}

// symbol returns an address, or nil. Not to be called after Close.
func (m *Module) symbol(name string) unsafe.Pointer {
	s := C.CString(name)
	defer C.free(unsafe.Pointer(s))
	return C.mscclpp_host_symbol(m.handle, s)
}

// Kernel finds an entry point. It must not be launched after the module is closed.
func (m *Module) Kernel(symbol string) (device.Kernel, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.handle == nil {
		return nil, fmt.Errorf("host kernel %s: module: %w", symbol, framework.ErrClosed)
	}
	entry := m.symbol(symbol)
	if entry == nil {
		return nil, fmt.Errorf("host kernel: %w: the image has no symbol %s", framework.ErrInvalid, symbol)
	}
	return &Kernel{entry: uintptr(entry), symbol: symbol}, nil
}

// Close unloads the image.
func (m *Module) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.handle == nil {
		return nil
	}
	handle := m.handle
	m.handle = nil
	if C.mscclpp_host_close(handle) != 0 {
		return fmt.Errorf("host module: %w: dlclose failed", framework.ErrInvalid)
	}
	return nil
}

var _ device.Module = (*Module)(nil)
