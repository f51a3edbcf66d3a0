// Package lastwords keeps what a process says over its connections when it exits without having closed them. A
// C library tells the program's exit from a crash: code of it runs at the exit, and Go must not be entered then. So
// the messages lie ready in memory that C reads. A process without such a library enables nothing, and pays nothing.
package lastwords

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// The table has slots of slotBytes. capi/libmscclpp/exit.c has the same layout.
const (
	Slots     = 4096
	slotBytes = 64
	most      = 48 // bytes of a message
)

// States of a slot. A writer to the connection moves it from idle to writing, and the exit from idle to saying: so the
// message never comes within another one.
const (
	free uint32 = iota
	idle
	writing
	saying
	said
)

// Slot is the message of one connection. The nil Slot is that of a connection without one.
type Slot struct {
	state  uint32
	fd     int32
	length uint32
	_      uint32
	text   [most]byte
}

var (
	mu    sync.Mutex
	table []Slot // nil until Enable
	next  int    // where the search for a free slot begins
)

// Enable makes the table, once, and returns where it is.
func Enable() (unsafe.Pointer, error) {
	mu.Lock()
	defer mu.Unlock()
	if table == nil {
		b, err := syscall.Mmap(-1, 0, Slots*slotBytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
		if err != nil {
			return nil, fmt.Errorf("memory for what is said at the exit: %w", err)
		}
		table = unsafe.Slice((*Slot)(unsafe.Pointer(&b[0])), Slots)
	}
	return unsafe.Pointer(&table[0]), nil
}

// Register has a message sent over a socket when the process exits. Its last eight bytes are a number, as by
// Count. The result is nil where nothing is enabled, and where there is no room.
func Register(fd uintptr, message []byte) *Slot {
	mu.Lock()
	defer mu.Unlock()
	if len(message) > most || len(message) < 8 || len(message)%8 != 0 {
		return nil
	}
	for range table {
		s := &table[next]
		next = (next + 1) % len(table)
		if atomic.LoadUint32(&s.state) == free {
			s.fd, s.length = int32(fd), uint32(len(message))
			copy(s.text[:], message)
			atomic.StoreUint32(&s.state, idle)
			return s
		}
	}
	return nil
}

// Begin comes before something else is written to the connection. It is false when the process exits.
func (s *Slot) Begin() bool { return s == nil || atomic.CompareAndSwapUint32(&s.state, idle, writing) }

// End comes behind it.
func (s *Slot) End() {
	if s != nil {
		atomic.StoreUint32(&s.state, idle)
	}
}

// Count changes the number at the end of the message.
func (s *Slot) Count(n uint64) {
	if s != nil {
		at := (*uint64)(unsafe.Pointer(&s.text[s.length-8]))
		atomic.StoreUint64(at, binary.LittleEndian.Uint64(binary.NativeEndian.AppendUint64(nil, n)))
	}
}

// Release comes before the socket is closed, after which the number of its descriptor may be another file's.
func (s *Slot) Release() {
	if s == nil {
		return
	}
	for {
		switch state := atomic.LoadUint32(&s.state); state {
		case idle, writing:
			if atomic.CompareAndSwapUint32(&s.state, state, free) {
				return
			}
		case saying: // a system call that does not wait
			runtime.Gosched()
		default:
			return
		}
	}
}
