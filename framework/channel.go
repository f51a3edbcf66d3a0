package framework

import (
	"encoding"
	"fmt"
	"io"
)

// Kind is one of the three kinds of channel.
type Kind uint8

// Kinds of channel.
const (
	// KindMemory: threads load and store the peer's memory.
	KindMemory Kind = 1
	// KindPort: threads push 16-byte triggers; a proxy moves the data.
	KindPort Kind = 2
	// KindSwitch: loads and stores act on the memory of all members at once.
	KindSwitch Kind = 3
)

// String returns the name used in configuration: memory, port or switch.
func (k Kind) String() string {
	switch k {
	case KindMemory:
		return "memory"
	case KindPort:
		return "port"
	case KindSwitch:
		return "switch"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// ParseKind is the inverse of Kind.String.
func ParseKind(s string) (Kind, error) {
	for k := KindMemory; k <= KindSwitch; k++ {
		if s == k.String() {
			return k, nil
		}
	}
	return 0, fmt.Errorf("%w: channel kind %q: expected memory, port or switch", ErrInvalid, s)
}

// Channel is one end of a link as kernels see it. AppendBinary appends the device
// handle, laid out as in framework/kernel; a kernel takes it by value.
//
// Implemented and called by framework/comm only.
type Channel interface {
	Kind() Kind
	encoding.BinaryAppender
	io.Closer
}

// Semaphore counts the signals of one peer: 64 bits, monotonic, never reset. The
// expected count lives in device memory, so a captured graph can be replayed.
// AppendBinary appends the device handle.
//
// Implemented and called by framework/comm only.
type Semaphore interface {
	encoding.BinaryAppender
	io.Closer
}
