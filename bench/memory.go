package bench

import (
	"fmt"
	"syscall"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Memory is a buffer of calls. If the host cannot reach the buffer, View is a copy, and
// Push and Pull update the buffer and the copy, bytes low to high. If View is the
// buffer itself, both are nil.
type Memory struct {
	Addr       unsafe.Pointer // as calls take it
	View       []byte
	Push, Pull func(low, high int) error
}

// Host returns memory that the program itself reads and writes.
func Host(b []byte) Memory {
	return Memory{Addr: unsafe.Pointer(unsafe.SliceData(b)), View: b}
}

// Heap returns page-aligned ordinary memory from the Go heap.
func Heap(bytes int64) Memory {
	raw := make([]byte, bytes+page)
	skip := -uintptr(unsafe.Pointer(&raw[0])) & (page - 1)
	return Host(raw[skip : skip+uintptr(bytes)])
}

// HeapHas asks the system for that much memory and returns it. If the system refuses,
// the error is ErrUnavailable; the Go heap would end the process without an error.
func HeapHas(bytes int64) error {
	b, err := syscall.Mmap(-1, 0, int(bytes+page), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		return fmt.Errorf("%w: the system refuses a buffer of %d bytes: %w; expected smaller sizes", framework.ErrUnavailable, bytes, err)
	}
	return syscall.Munmap(b)
}

const page = 4096

// push makes what was written to the view count.
func (m Memory) push(s stretch) error {
	if m.Push == nil || s.low >= s.high {
		return nil
	}
	return m.Push(s.low, s.high)
}

// pull makes what calls wrote visible in the view.
func (m Memory) pull(s stretch) error {
	if m.Pull == nil || s.low >= s.high {
		return nil
	}
	return m.Pull(s.low, s.high)
}

// at locates n bytes behind p, an address in the buffer.
func (m Memory) at(p unsafe.Pointer, n int) stretch {
	low := int(uintptr(p) - uintptr(m.Addr))
	return stretch{low, low + n}
}

// touch writes to every page, so that no page fault is measured.
func (m Memory) touch() error {
	for i := 0; i < len(m.View); i += page {
		m.View[i] = 1
	}
	return m.push(stretch{0, len(m.View)})
}

// stretch is a part of a buffer, in bytes.
type stretch struct{ low, high int }

func (s stretch) union(t stretch) stretch {
	return stretch{min(s.low, t.low), max(s.high, t.high)}
}
