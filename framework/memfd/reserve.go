package memfd

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Reservation is address space into which several files are mapped side by side.
// An access to a part that is not mapped faults.
type Reservation struct {
	base   unsafe.Pointer
	bytes  uint64
	closed atomic.Bool
}

// Reserve takes address space whose start is a multiple of align, a power of two
// of at least a page.
func Reserve(bytes, align uint64) (*Reservation, error) {
	size, err := pageCeil(bytes)
	if err != nil {
		return nil, err
	}
	slack := align - pageSize
	base, err := unix.MmapPtr(-1, 0, nil, uintptr(size+slack), unix.PROT_NONE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("%w: %d bytes of address space: %w", framework.ErrUnavailable, size, err)
	}
	head := -uint64(uintptr(base)) & (align - 1)
	if head > 0 {
		_ = unix.MunmapPtr(base, uintptr(head))
	}
	aligned := unsafe.Add(base, head)
	if tail := slack - head; tail > 0 {
		_ = unix.MunmapPtr(unsafe.Add(aligned, size), uintptr(tail))
	}
	return &Reservation{base: aligned, bytes: size}, nil
}

// Addr returns the first byte.
func (r *Reservation) Addr() unsafe.Pointer { return r.base }

// Len returns the size in bytes, whole pages.
func (r *Reservation) Len() uint64 { return r.bytes }

// Map puts bytes at offset of the file at byte at of the reservation, after Check.
// Both at and offset must be multiples of a page.
func (r *Reservation) Map(at uint64, f *os.File, offset, bytes uint64) error {
	if at%pageSize != 0 || offset%pageSize != 0 {
		return fmt.Errorf("%w: window at %d, memory at offset %d: expected multiples of the page of %d bytes", framework.ErrInvalid, at, offset, pageSize)
	}
	if err := Check(f, offset, bytes); err != nil {
		return err
	}
	size, err := pageCeil(bytes)
	if err != nil {
		return err
	}
	if at > r.bytes || size > r.bytes-at {
		return fmt.Errorf("%w: %d bytes at %d exceed the window of %d bytes", framework.ErrInvalid, size, at, r.bytes)
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return fmt.Errorf("%w: descriptor: %w", framework.ErrInvalid, err)
	}
	if cerr := raw.Control(func(fd uintptr) { err = r.mapAt(at, int(fd), offset, size, unix.MAP_POPULATE) }); cerr != nil {
		return fmt.Errorf("%w: descriptor: %w", framework.ErrInvalid, cerr)
	}
	return err
}

func (r *Reservation) mapAt(at uint64, fd int, offset, size uint64, flags int) error {
	_, err := unix.MmapPtr(fd, int64(offset), unsafe.Add(r.base, at), uintptr(size),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED|flags)
	if err != nil {
		return fmt.Errorf("%w: mmap of %d bytes: %w", framework.ErrUnavailable, size, err)
	}
	return nil
}

// Close gives the address space back, with all that was mapped into it. Further
// calls do nothing.
func (r *Reservation) Close() error {
	if r.closed.Swap(true) {
		return nil
	}
	return unix.MunmapPtr(r.base, uintptr(r.bytes))
}
