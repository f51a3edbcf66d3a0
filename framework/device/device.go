// Package device has the operations that a rank process needs of the device of its kernels:
// memory that others can map, mappings of the memory of others, and kernels.
//
// There is one implementation per kind of device: device/host (the CPU, always present),
// and device/native for those that are a table of C functions: makers bring them, and device/cuda has the one of NVIDIA's
// GPUs, over the vendor's driver library, which is opened at run time.
// Implementations know no transport; package comm performs a transport's recipe with
// them.
package device

import (
	"errors"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
)

// ErrNotReady is in the error of a step that the same device may do a little later: what manages it is still starting.
var ErrNotReady = errors.New("not ready yet")

// ErrFull is in the error of a step that the same device may do for less: it has not so much room.
var ErrFull = errors.New("full")

// Device is one device as one rank sees it. Methods may be called concurrently,
// from any goroutine, whatever device is current on the caller's thread.
//
// Implemented by device/host and device/native. Called by framework/comm and package
// collectives.
type Device interface {
	Info() Info

	// Alloc returns zeroed memory that can be exported. Lack of memory is an
	// error here (ErrUnavailable) and never a fault on first use.
	Alloc(bytes uint64) (Memory, error)

	// Map makes memory of another process addressable. It tries m.Shares in order; its
	// error has the reason of each that failed.
	Map(m framework.Mapping) (Memory, error)

	// Object creates an object of a switch group if share is nil, else opens the one
	// behind share.
	Object(o framework.Object, share *framework.Share) (Object, error)

	// Load makes the kernels of an image callable. Its error contains the device's last
	// messages about the load.
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
	// Export returns the ways to access the allocation from elsewhere, best first; the
	// caller owns them. Mapped memory exports nothing.
	Export() ([]framework.Share, error)
	Close() error
}

// DataAllocator is an optional interface of a Device that has another kind of memory for data than for what kernels poll.
//
// Implemented by device/native. Called by AllocData.
type DataAllocator interface {
	// AllocData is Alloc for memory that no kernel polls, and in which what peers write is read by kernels that begin later.
	// The device's caches keep it, where they do not keep what Alloc returns.
	AllocData(bytes uint64) (Memory, error)
}

// AllocData returns memory for data: that of a DataAllocator, else of Alloc.
func AllocData(d Device, bytes uint64) (Memory, error) {
	if d, ok := d.(DataAllocator); ok {
		return d.AllocData(bytes)
	}
	return d.Alloc(bytes)
}

// Linked is an optional interface of a Device that has an identity, such as a UUID, and may have a list of the devices at the ends of its links.
//
// Implemented by device/native. Called by internal/setup and package collectives.
type Linked interface {
	// Links lists the devices to which links lead; known is false if nothing says. self is how the lists of others name this
	// device: its address on the bus, else its UUID; "" if it has neither.
	Links() (self string, list []framework.DeviceLink, known bool)
}

// DMABufMemory is an optional interface of a device's Memory, for memory that network
// adapters may access directly.
//
// Implemented by memory of device/native. Called by framework/comm, for transports that take
// such memory.
type DMABufMemory interface {
	// DMABuf returns a share of kind dma-buf; the caller owns it. ErrUnsupported: the
	// device, its driver or the kernel does not support it.
	DMABuf() (framework.Share, error)
}

// Wrapper is an optional interface of a Device that takes memory of the program for its own.
//
// Implemented by device/host, device/native and device/cuda. Called by the C library.
type Wrapper interface {
	// WrapMemory makes memory of the program usable where Memory is asked for. The program keeps it; Close does nothing to it, and
	// comes before it is freed. ErrUnsupported: the device does not tell what is at an address.
	WrapMemory(addr uintptr, bytes uint64) (Memory, error)
}

// Object is a multicast object, or its emulation.
type Object interface {
	Share() (framework.Share, error)
	Add() error
	// Bind makes memory part of the window: the rank's own if share is nil, else the
	// memory behind share.
	Bind(slot int, own Memory, share *framework.Share, offset, bytes uint64) error
	// Map returns the window. Stride is the distance between the members'
	// copies in an emulated window, 0 where hardware fans out.
	Map() (window Memory, stride uint64, err error)
	Close() error
}

// Ranges is an optional interface of an Object whose window takes memory at several places, also while kernels use the rest
// of it. It belongs to windows of hardware: Map has stride 0.
//
// Implemented by the objects of device/native. Called by framework/comm for memory that is bound later.
type Ranges interface {
	// Unit is what places, and sizes of ranges, are multiples of.
	Unit() uint64
	// BindAt makes the beginning of own memory a range of the window at place, bytes of it rounded up to units. Bind binds at 0.
	BindAt(place uint64, own Memory, bytes uint64) error
	// UnbindAt takes the range at place out. It does nothing where none is, and behind Close, which takes all out.
	UnbindAt(place uint64) error
}

// Module is a loaded image.
type Module interface {
	// Kernel finds an entry point. ErrInvalid: the image has no such symbol.
	Kernel(symbol string) (Kernel, error)
	Close() error
}

// Assembled is an optional interface of a Device that may have machine code of images. It
// was made of them beforehand, and is ready sooner than they are.
//
// Implemented by the devices of device/cuda. Called by framework/comm before it asks a
// transport for an image.
type Assembled interface {
	// LoadAssembled is Load for the image that has this sha256, in lower-case hexadecimal.
	// Without machine code of it that can be loaded, both results are nil: then Load of the
	// image itself makes the same kernels callable.
	LoadAssembled(sha256 string) (Module, error)
}

// Kernel is one entry point.
type Kernel interface {
	// Launch enqueues the kernel on the stream; on the host it runs it on the
	// calling thread and returns when it is done. args points to the kernel's
	// one argument, a plain struct without Go pointers, copied before Launch
	// returns. It does not allocate.
	Launch(l Launch, args unsafe.Pointer, bytes uintptr) error
}

// Launch describes the shape of a launch.
type Launch struct {
	Grid, Block uint32
	Shared      uint32 // dynamic shared memory, bytes
	Stream      Stream

	// Overlap lets the kernel begin while the one before it on the stream still runs. The
	// kernel must wait for the previous one (mscclpp::await_previous) before it reads what
	// that one wrote. Devices without the ability ignore it.
	Overlap bool

	// Cluster is how many neighboring blocks run at the same time and reach each other's shared memory; Grid is a multiple
	// of it. 0 and 1 ask for nothing, and devices without the ability ignore it.
	Cluster uint8
}

// Stream is the driver's handle of a stream; 0 is the default stream, the only one that
// the host has.
type Stream uintptr

// Engine is an optional interface of a Device that works through queues: its launches
// return before they are done, and its copy engines move bytes beside the kernels. The
// host does not implement it.
//
// Implemented by the devices of device/native that have streams. Called by framework/comm for port channels,
// and by package collectives. Only Sync waits.
type Engine interface {
	NewStream() (Stream, error)
	CloseStream(Stream) error

	// Copy enqueues a copy between any two of: memory of this device, memory of
	// peers that it maps, registered host memory.
	Copy(s Stream, dst, src uintptr, bytes uint64) error

	// Write enqueues the store of a word, which becomes visible to all observers after
	// everything that was enqueued before it: this is how a copy engine signals.
	Write(s Stream, addr uintptr, value uint64) error

	// Query reports the state of a stream. An error is that of the device, and is
	// permanent.
	Query(s Stream) (StreamState, error)

	// Sync waits until the stream is idle. An abort ends the kernels, and with them the
	// wait.
	Sync(s Stream) error
}

// Flusher is an optional interface of an Engine, for devices whose memory network
// adapters may write.
//
// Implemented by the devices of device/native. Called by framework/comm, for transports
// whose signals come through host memory.
type Flusher interface {
	// FlushWrites returns when kernels see everything that adapters wrote before the call,
	// as known to the host by a completion. It returns at once where hardware keeps that
	// order by itself. ErrUnsupported: the device can do neither.
	FlushWrites() error
}

// HostMapper is an optional interface of a Device, for devices into whose memory the
// processor can store.
//
// Implemented by the devices of device/native, where they have views. Called by
// framework/comm, for words that the host raises and kernels poll.
type HostMapper interface {
	// MapForHost maps memory that Alloc has made, for stores of the host. The view must be
	// closed before the memory is. ErrUnavailable, ErrUnsupported: the memory cannot be
	// mapped.
	MapForHost(m Memory) (HostView, error)
}

// HostView is memory of a device into which the host stores. The host does not load
// from it: over the bus a load takes a microsecond.
type HostView interface {
	// Store stores a word at an address of the memory as kernels see it, a multiple of 8.
	// When it returns, the word is on its way and nothing delays it; kernels see all of
	// the word or nothing. It does not allocate.
	Store(addr uintptr, value uint64) error

	// Settle returns when everything that was stored before has arrived.
	Settle() error

	// Close unmaps the memory. No other method may be running.
	Close() error
}

// Marker is an optional interface of an Engine whose streams can wait for each other.
//
// Implemented by the devices of device/native. Called by package collectives.
type Marker interface {
	NewMark() (Mark, error)
}

// Prioritizer is an optional interface of an Engine whose streams have priorities: the
// device prefers kernels of streams with a smaller number.
//
// Implemented by the devices of device/native. Called by NewSideStream.
type Prioritizer interface {
	// Priorities returns the range of numbers: greatest is the smaller one.
	Priorities() (least, greatest int)

	// NewPriorityStream is NewStream with a priority. Numbers out of range count as the
	// nearest.
	NewPriorityStream(priority int) (Stream, error)
}

// NewSideStream makes a stream for work that kernels of the caller's streams may wait for. It has the greatest priority where streams have one:
// those of one priority may share a queue of the hardware, in which that work would stay behind the kernel that waits for it.
func NewSideStream(e Engine) (Stream, error) {
	p, ok := e.(Prioritizer)
	if !ok {
		return e.NewStream()
	}
	_, greatest := p.Priorities()
	return p.NewPriorityStream(greatest)
}

// Mark is a point in a stream. While a stream is captured, its marks let other streams
// join the capture.
type Mark interface {
	Record(Stream) error // marks the work enqueued so far
	Wait(Stream) error   // work enqueued later waits for the marked work
	Close() error
}

// Timer is an optional interface of an Engine that takes the time when its streams are at a point.
//
// Implemented by the devices of device/native, where their events have times. Called by framework/observe.
type Timer interface {
	NewStamp() (Stamp, error)

	// Capturing reports whether a stream records into a graph.
	Capturing(Stream) (bool, error)
}

// Stamp is the time at which a stream was at a point.
type Stamp interface {
	// Record has the stream take the time behind what was enqueued so far.
	Record(Stream) error

	// RecordEach is Record on a stream that is captured: each launch of the graph takes the time anew. ErrUnsupported: graphs of the
	// device take no time.
	RecordEach(Stream) error

	// Query reports whether it was taken.
	Query() (done bool, err error)

	// After is how much later than another one it was taken, in ns; both were. 0: it was taken first.
	After(Stamp) (ns int64, err error)

	Close() error
}

// StreamState is the state of a stream.
type StreamState uint8

// States of a stream.
const (
	StreamIdle      StreamState = iota // all that was enqueued has ended
	StreamBusy                         // something is still to be done
	StreamCapturing                    // enqueued work is recorded into a graph
)

// Bytes returns host-accessible memory as a slice, which must not be used after the
// memory is closed.
func Bytes(m Memory) []byte {
	addr := m.Addr() // read as a pointer: the memory is not Go's, and does not move
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), m.Bytes())
}
