// Package kernel holds what kernels and the host agree on: the layouts of handles and
// rings, element types and reductions. The C++ counterpart is include/mscclpp; a test
// compares the two.
package kernel

// ABI is the version of everything in this file. Images carry the version that they
// were built with; loading an image of another version is refused. Layout covers what
// the version does not say.
const ABI = 1

// WaitControl is the counterpart of mscclpp::WaitControl.
type WaitControl struct {
	Abort    uint32 // not 0: kernels leave every wait
	Reported uint32 // 1 once the first wait that left has filled the report; 2 while it does
	Kernel   uint32
	Channel  uint32
	Peer     uint32
	Waited   uint32 // host only: the word Waiting, when another part of the host has cleared it
	Expected uint64
	Seen     uint64
	Deadline uint64 // nanoseconds a wait may take; 0: no limit
	SpinNS   uint64 // host only: polling before a wait yields; 0: default, 1: yield at once
	Records  uint64 // where the RecordRing is, as kernels address it; 0: no records are wanted
	Waiting  uint32 // 1 + the rank that a long wait waits for, each time that it looks here; the host clears it
	_        [60]byte
}

// RecordRing is the counterpart of mscclpp::RecordRing. Next, Records, Calls and Clock are addresses.
type RecordRing struct {
	Next         uintptr
	Records      uintptr
	Calls        uintptr // of the number of calls that the host has begun; 0: it is not known
	Communicator uint64
	Mask         uint64
	Clock        uintptr // of a RecordClock; 0: the system's
	SignedAt     uint64
	SignedTo     uint64
}

// RecordClock is the counterpart of mscclpp::RecordClock.
type RecordClock struct {
	Turn uint64 // odd while it is written
	TSC  uint64
	NS   uint64
	Mult uint64
	Most uint64
}

// SemaphoreHandle is the counterpart of mscclpp::SemaphoreHandle. Fields are addresses.
type SemaphoreHandle struct {
	Inbound  uintptr
	Expected uintptr
	Outbound uintptr // 0 where a proxy raises the peer's counter
	Control  uintptr
	Peer     uint32
	ID       uint32
}

// MemoryChannelHandle is the counterpart of mscclpp::MemoryChannelHandle.
type MemoryChannelHandle struct {
	Semaphore SemaphoreHandle
	Dst       uintptr
	Src       uintptr
	Packets   uintptr
}

// Trigger is the counterpart of mscclpp::Trigger: a request to a proxy.
type Trigger struct {
	Fst uint64
	Snd uint64
}

// Types of a port channel's trigger; they may be combined.
const (
	TriggerData   = 1
	TriggerSignal = 2
	TriggerFlush  = 4
)

// RingHeader is the counterpart of mscclpp::RingHeader.
type RingHeader struct {
	Magic     uint64
	Version   uint32
	Slots     uint32
	_         [48]byte
	Tail      uint64
	_         [56]byte
	Error     uint32
	Parked    uint32
	_         [56]byte
	Head      uint64
	TailCache uint64
	_         [48]byte
}

// Constants of the ring memfd.
const (
	RingMagic      = 0x474e495250504d53
	RingVersion    = 1
	RingFlushWords = 480  // 8 bytes each, after the header
	RingTriggers   = 4096 // byte offset of the first trigger
)

// FifoHandle is the counterpart of mscclpp::FifoHandle.
type FifoHandle struct {
	Triggers  uintptr
	Head      uintptr
	Tail      uintptr
	TailCache uintptr
	Error     uintptr
	Parked    uintptr
	Control   uintptr
	Mask      uint32
	Shift     uint32
}

// PortChannelHandle is the counterpart of mscclpp::PortChannelHandle.
type PortChannelHandle struct {
	Semaphore     SemaphoreHandle
	Fifo          FifoHandle
	FlushDone     uintptr
	DstMemory     uint32
	SrcMemory     uint32
	SemaphoreSlot uint32
	_             uint32
}

// SwitchChannelHandle is the counterpart of mscclpp::SwitchChannelHandle.
type SwitchChannelHandle struct {
	Local    uintptr
	Window   uintptr
	Bytes    uint64
	Stride   uint64
	Flag     uint64
	Expected uintptr
	Control  uintptr
	Rank     uint32
	Ranks    uint32
}

// GridBarrier is the counterpart of mscclpp::GridBarrier.
type GridBarrier struct {
	Arrived    uint32
	Generation uint32
}

// LaunchShape is the counterpart of mscclpp::LaunchShape.
type LaunchShape struct {
	Grid   uint32
	Block  uint32
	Shared uint32
	_      uint32
}
