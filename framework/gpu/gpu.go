// Package gpu is what a rank process needs from the device its kernels run on:
// memory that others can map, mappings of the memory of others, and kernels.
//
// One implementation per kind of device: gpu/host (the CPU, always present) and
// gpu/cuda (through the vendor's driver library, opened at run time). They know no
// transport; package comm performs a transport's recipe with them.
package gpu

import (
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Device is one device as one rank sees it. Methods may be called concurrently,
// from any goroutine, whatever device is current on the caller's thread.
//
// Implemented by gpu/host and gpu/cuda. Called by framework/comm and package
// collectives.
type Device interface {
	Info() Info

	// Alloc returns zeroed memory that can be exported. Lack of memory is an
	// error here (ErrUnavailable) and never a fault on first use.
	Alloc(bytes uint64) (Memory, error)

	// Map makes memory of another process addressable. It tries m.Shares in
	// order and reports the reason of each that failed.
	Map(m framework.Mapping) (Memory, error)

	// Object creates an object of a switch group, or opens the one behind share.
	Object(o framework.Object, share *framework.Share) (Object, error)

	// Load makes the kernels of an image callable. The device's last load
	// messages are part of the error.
	Load(image []byte) (Module, error)

	Close() error
}

// Info describes a device.
type Info struct {
	Device framework.Device
	Name   string   // "NVIDIA H200", "AMD EPYC 9654"
	Archs  []string // image architectures that it can load, best first
	SMs    int      // blocks of one kernel that can be resident at one block each
}

// Memory is a range of addresses valid in kernels of the device.
type Memory interface {
	Addr() uintptr
	Bytes() uint64
	// Export returns the ways to reach the allocation from elsewhere, best
	// first; the caller owns them. Mapped memory exports nothing.
	Export() ([]framework.Share, error)
	Close() error
}

// DMABufMemory is what a Memory of a device offers besides if adapters of a network
// may reach it where it is.
//
// Implemented by memory of gpu/cuda. Called by framework/comm, for transports that
// take such memory.
type DMABufMemory interface {
	// DMABuf returns a share of kind dma-buf; the caller owns it. ErrUnsupported:
	// the device, its driver or the kernel has no such thing.
	DMABuf() (framework.Share, error)
}

// Object is a multicast object, or its emulation.
type Object interface {
	Share() (framework.Share, error)
	Add() error
	// Bind makes memory part of the window: the rank's own (share nil), or that
	// behind share.
	Bind(slot int, own Memory, share *framework.Share, offset, bytes uint64) error
	// Map returns the window. Stride is the distance between the members'
	// copies in an emulated window, 0 where hardware fans out.
	Map() (window Memory, stride uint64, err error)
	Close() error
}

// Module is a loaded image.
type Module interface {
	// Kernel finds an entry point. ErrInvalid: the image has no such symbol.
	Kernel(symbol string) (Kernel, error)
	Close() error
}

// Kernel is one entry point.
type Kernel interface {
	// Launch enqueues the kernel on the stream; on the host it runs it on the
	// calling thread and returns when it is done. args points to the kernel's
	// one argument, a plain struct without Go pointers, copied before Launch
	// returns. It does not allocate.
	Launch(l Launch, args unsafe.Pointer, bytes uintptr) error
}

// Launch is the shape of a launch.
type Launch struct {
	Grid, Block uint32
	Shared      uint32 // dynamic shared memory, bytes
	Stream      Stream

	// Overlap lets the kernel begin while the one before it on the stream still
	// runs. It has to wait for that one itself before it reads what that one
	// wrote (mscclpp::await_previous). Devices without the ability ignore it.
	Overlap bool
}

// Stream is the driver's handle of a stream; 0 is the default stream. The host has
// no other.
type Stream uintptr

// Engine is what a Device offers besides if it works through queues: its launches
// return before they are done, and its copy engines move bytes beside the kernels.
// The host is none.
//
// Implemented by the devices of gpu/cuda. Called by framework/comm for
// port channels, and by package collectives. Sync alone waits.
type Engine interface {
	NewStream() (Stream, error)
	CloseStream(Stream) error

	// Copy enqueues a copy between any two of: memory of this device, memory of
	// peers that it maps, registered host memory.
	Copy(s Stream, dst, src uintptr, bytes uint64) error

	// Write enqueues the store of a word, visible to everybody after all that was
	// enqueued before it: how a copy engine signals.
	Write(s Stream, addr uintptr, value uint64) error

	// Query reports how far a stream is. The error is that of the device, which
	// stays.
	Query(s Stream) (StreamState, error)

	// Sync waits until the stream is idle. It ends when the kernels do: an abort
	// ends theirs.
	Sync(s Stream) error
}

// Flusher is what an Engine offers besides if adapters of a network may write memory
// of its device.
//
// Implemented by the devices of gpu/cuda. Called by framework/comm, for transports
// whose signals come through memory of the host.
type Flusher interface {
	// FlushWrites returns when kernels see what adapters had written before the call,
	// as a completion on the host tells; at once where hardware orders that itself.
	// ErrUnsupported: the device can do neither.
	FlushWrites() error
}

// HostMapper is what a Device offers besides if the processor can store into its memory.
//
// Implemented by the devices of gpu/cuda, where there is GDRCopy. Called by framework/comm,
// for words that the host raises and kernels poll.
type HostMapper interface {
	// MapForHost maps memory that Alloc has made, for stores of the host. The view is to be
	// closed before the memory is. ErrUnavailable, ErrUnsupported: there is no way to it.
	MapForHost(m Memory) (HostView, error)
}

// HostView is memory of a device as the host stores into it. The host does not load from
// it: over the bus that takes a microsecond.
type HostView interface {
	// Store stores the word at an address of the memory, as kernels see it and a multiple
	// of 8. When it returns the word is on its way, which nothing holds up; kernels see all of it
	// or nothing. It does not allocate.
	Store(addr uintptr, value uint64) error

	// Settle returns when what was stored before has arrived.
	Settle() error

	// Close unmaps the memory. Nobody may be in another method.
	Close() error
}

// Marker is what an Engine offers besides if streams of it can wait for each other.
//
// Implemented by the devices of gpu/cuda. Called by package collectives.
type Marker interface {
	NewMark() (Mark, error)
}

// Mark is a point in a stream. While a stream is captured, its marks join other
// streams to the capture.
type Mark interface {
	Record(Stream) error // marks what is enqueued so far
	Wait(Stream) error   // what is enqueued later waits for what was marked
	Close() error
}

// StreamState says how far a stream is.
type StreamState uint8

// States of a stream.
const (
	StreamIdle      StreamState = iota // all that was enqueued has ended
	StreamBusy                         // something is still to be done
	StreamCapturing                    // what is enqueued is recorded into a graph
)

// Bytes views host-accessible memory as a slice. It must not be used after the
// memory is closed.
func Bytes(m Memory) []byte {
	addr := m.Addr() // read as a pointer: the memory is not Go's, and does not move
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), m.Bytes())
}
