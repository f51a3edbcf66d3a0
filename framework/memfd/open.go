package memfd

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
)

// hugePage is the alignment at which the kernel can use huge pages, where the
// administrator allows them for shared memory.
const hugePage = 2 << 20

var pageSize = uint64(os.Getpagesize())

// PageSize is the granularity of mappings.
func PageSize() uint64 { return pageSize }

// Check says whether bytes at offset of the file can be mapped and touched
// without a fault, now and later. ErrInvalid says what is wrong.
func Check(f *os.File, offset, bytes uint64) error {
	if f == nil {
		return fmt.Errorf("%w: share without a descriptor", framework.ErrInvalid)
	}
	if bytes == 0 {
		return fmt.Errorf("%w: range of 0 bytes", framework.ErrInvalid)
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return fmt.Errorf("%w: descriptor: %w", framework.ErrInvalid, err)
	}
	var st unix.Stat_t
	var seals int
	var statErr, sealErr error
	if err := raw.Control(func(fd uintptr) {
		statErr = unix.Fstat(int(fd), &st)
		seals, sealErr = unix.FcntlInt(fd, unix.F_GET_SEALS, 0)
	}); err != nil {
		return fmt.Errorf("%w: descriptor: %w", framework.ErrInvalid, err)
	}
	if statErr != nil {
		return fmt.Errorf("%w: descriptor: %w", framework.ErrInvalid, statErr)
	}
	if sealErr != nil {
		return fmt.Errorf("%w: descriptor is not a memfd: expected memory made by Alloc", framework.ErrInvalid)
	}
	if seals&unix.F_SEAL_SHRINK == 0 {
		return fmt.Errorf("%w: memfd is not sealed: expected at least F_SEAL_SHRINK, so that its owner cannot cut it", framework.ErrInvalid)
	}
	if seals&(unix.F_SEAL_WRITE|unix.F_SEAL_FUTURE_WRITE) != 0 {
		return fmt.Errorf("%w: memfd is sealed against writing", framework.ErrInvalid)
	}
	size := uint64(st.Size)
	if offset > size || bytes > size-offset {
		return fmt.Errorf("%w: %d bytes at offset %d exceed the memfd of %d bytes", framework.ErrInvalid, bytes, offset, size)
	}
	return nil
}

// Open maps bytes at offset of a file from elsewhere, after Check. It borrows the
// descriptor for the time of the call.
func Open(f *os.File, offset, bytes uint64) (*Memory, error) {
	return OpenWith(f, offset, bytes, Options{})
}

// OpenWith is Open with a say in how many pages are mapped now.
func OpenWith(f *os.File, offset, bytes uint64, o Options) (*Memory, error) {
	if err := Check(f, offset, bytes); err != nil {
		return nil, err
	}
	start := offset &^ (pageSize - 1)
	size, err := pageCeil(offset - start + bytes)
	if err != nil {
		return nil, err
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("%w: descriptor: %w", framework.ErrInvalid, err)
	}
	var m *Memory
	if cerr := raw.Control(func(fd uintptr) { m, err = mmap(int(fd), start, size, bytes) }); cerr != nil {
		return nil, fmt.Errorf("%w: descriptor: %w", framework.ErrInvalid, cerr)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: mapping %d bytes: %w", framework.ErrUnavailable, bytes, err)
	}
	m.addr = unsafe.Add(m.base, offset-start)
	_ = m.populate(o.prefault(size)) // saves faults later; without it they are merely slower
	return m, nil
}

// mmap maps size bytes, page aligned, at an address at which huge pages can be used.
func mmap(fd int, offset, size, bytes uint64) (*Memory, error) {
	m := &Memory{bytes: bytes, mapped: uintptr(size)}
	if size < hugePage {
		base, err := unix.MmapPtr(fd, int64(offset), nil, uintptr(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			return nil, fmt.Errorf("mmap: %w", err)
		}
		m.base, m.addr = base, base
		return m, nil
	}
	r, err := Reserve(size, hugePage)
	if err != nil {
		return nil, err
	}
	if err := r.mapAt(0, fd, offset, size, 0); err != nil {
		r.Close()
		return nil, err
	}
	m.base, m.addr = r.base, r.base
	_ = unix.Madvise(unsafe.Slice((*byte)(m.base), size), unix.MADV_HUGEPAGE) // EINVAL: the kernel has none
	return m, nil
}

// populate makes the first n bytes present and writable in the page tables.
func (m *Memory) populate(n uint64) error {
	n, _ = pageCeil(min(n, uint64(m.mapped)))
	return retry(func() error {
		return unix.Madvise(unsafe.Slice((*byte)(m.base), n), unix.MADV_POPULATE_WRITE)
	})
}

func pageCeil(n uint64) (uint64, error) {
	const limit = 1 << 46 // beyond any address space; keeps sums from wrapping
	if n == 0 || n > limit {
		return 0, fmt.Errorf("%w: %d bytes: expected 1 to %d", framework.ErrInvalid, n, uint64(limit))
	}
	return (n + pageSize - 1) &^ (pageSize - 1), nil
}
