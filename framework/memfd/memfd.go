// Package memfd makes host memory that other processes can map without having to
// trust its maker.
//
// Plain shared memory has two ways to kill a process that maps it: the pages may not
// exist when they are first touched, and the maker may cut the file short. Both
// end in SIGBUS, far from their cause. Here every file is allocated in full when
// it is made, so that lack of memory is an error of [New], and then sealed
// against shrinking. [Open] maps nothing that lacks the seal.
package memfd

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Seals are what every file of this package carries: its size is final, and so
// are the seals.
const Seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// Memory is a mapping. It stays valid until Close, whatever happens to the file
// or to other mappings of it.
type Memory struct {
	addr   unsafe.Pointer
	bytes  uint64
	base   unsafe.Pointer // of the mapping: addr rounded down to a page
	mapped uintptr
	file   *os.File // nil if opened from a descriptor
	closed atomic.Bool
}

// Addr returns the first byte.
func (m *Memory) Addr() unsafe.Pointer { return m.addr }

// Len returns the size asked for.
func (m *Memory) Len() uint64 { return m.bytes }

// Bytes views the memory as a slice, which must not be used after Close.
func (m *Memory) Bytes() []byte { return unsafe.Slice((*byte)(m.addr), m.bytes) }

// File returns the descriptor of memory made by New, which stays its owner; nil
// for memory that was opened.
func (m *Memory) File() *os.File { return m.file }

// Close unmaps the memory and closes its descriptor. Further calls do nothing.
func (m *Memory) Close() error {
	if m.closed.Swap(true) {
		return nil
	}
	err := unix.MunmapPtr(m.base, m.mapped)
	if m.file != nil {
		err = errors.Join(err, m.file.Close())
	}
	return err
}

// Options of New and OpenWith.
type Options struct {
	// Prefault is how many bytes are given their pages' contents, and are mapped,
	// now. The rest is reserved as well, but costs a fault when it is first
	// touched. 0 means all; use 1 for memory that may never be used.
	Prefault uint64
}

// prefault is how much of size bytes to fill.
func (o Options) prefault(size uint64) uint64 {
	if o.Prefault == 0 {
		return size
	}
	return min(size, o.Prefault)
}

// New makes zeroed, sealed memory. The name is for readers of
// /proc/PID/maps. Memory that the system cannot give is ErrUnavailable.
func New(name string, bytes uint64, o Options) (*Memory, error) {
	size, err := pageCeil(bytes)
	if err != nil {
		return nil, fmt.Errorf("memory of %d bytes: %w", bytes, err)
	}
	if err := fits(size); err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("%w: memfd_create: %w", framework.ErrUnavailable, err)
	}
	f := os.NewFile(uintptr(fd), "memfd:"+name)
	m, err := fill(f, bytes, size, o)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%w: memory of %d bytes: %w", framework.ErrUnavailable, bytes, err)
	}
	m.file = f
	return m, nil
}

// fill gives the file its size, its pages and its seals, and maps it. The mapping
// comes first: only through it does the kernel learn that huge pages are wanted.
func fill(f *os.File, bytes, size uint64, o Options) (*Memory, error) {
	fd := int(f.Fd())
	if err := retry(func() error { return unix.Ftruncate(fd, int64(size)) }); err != nil {
		return nil, fmt.Errorf("ftruncate: %w", err)
	}
	m, err := mmap(fd, 0, size, bytes)
	if err != nil {
		return nil, err
	}
	_ = m.populate(o.prefault(size)) // on failure fallocate decides, and says why
	if err := allocate(fd, size); err != nil {
		m.Close()
		return nil, fmt.Errorf("fallocate: %w", err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, Seals); err != nil {
		m.Close()
		return nil, fmt.Errorf("sealing: %w", err)
	}
	return m, nil
}

// allocate reserves the file's pages, piece by piece: a signal undoes the call
// that it interrupts, so that one call for everything might never end.
func allocate(fd int, size uint64) error {
	const piece = 64 << 20
	for off := uint64(0); off < size; off += piece {
		n := min(piece, size-off)
		if err := retry(func() error { return unix.Fallocate(fd, 0, int64(off), int64(n)) }); err != nil {
			return err
		}
	}
	return nil
}

func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
