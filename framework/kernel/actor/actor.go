// Package actor is a kernel that performs a list of steps: everything that channels
// offer, for tests of transports and devices. Its sources are in kernels/; a
// transport that wants to be tested on its device has it among its images, as the
// families "actor" and "actor_reduce".
package actor

// Symbols of the entry points.
const (
	Symbol       = "mscclpp_actor"        // of family "actor", takes Args
	ReduceSymbol = "mscclpp_actor_reduce" // of family "actor_reduce", one image a type; takes ReduceArgs
)

// Op is what a step does. Values are those of mscclpp::actor::Op.
type Op uint32

// Steps. Offsets count from the start of a channel's memory.
const (
	Barrier Op = iota // of the grid
	Copy              // Bytes from address Src to address Dst

	// On memory channel number Channel.
	Put
	Get
	Signal
	RelaxedSignal
	Wait
	RelaxedWait
	Poll // Result
	PutLL8
	PutLL16
	UnpackLL8
	UnpackLL16

	// On port channel number Channel.
	PortPut
	PortSignal
	PortPutWithSignal
	PortPutWithSignalAndFlush
	PortFlush
	PortWait
	PortPoll // Result

	// On ring number Channel.
	Push // trigger {Dst, Src}; Result is its position
	Sync // waits until the trigger at position Bytes was taken

	// On switch channel number Channel.
	SwitchSignal
	SwitchWait
	SwitchReduce    // the sum of Bytes of float32, from window offset Src to address Dst
	SwitchBroadcast // Bytes from address Src to window offset Dst

	Ops
)

// Step mirrors mscclpp::actor::Step.
type Step struct {
	Op      Op
	Channel uint32
	Flag    uint32 // of packets, not 0
	_       uint32
	Dst     uint64
	Src     uint64
	Bytes   uint64
	Result  uint64 // written by the kernel
}

// Args mirrors mscclpp::actor::Args. Fields are addresses in memory of the
// device, of arrays of handles where the name is that of a kind of channel.
type Args struct {
	Control  uintptr
	Grid     uintptr
	Memory   uintptr
	Port     uintptr
	Switches uintptr
	Rings    uintptr
	Steps    uintptr
	Done     uintptr // uint64: steps that were completed
	Failed   uintptr // uint32, 0 at launch: a wait was left
	Count    uint32
	Kernel   uint32 // id for the report of a wait
}

// Source says where the inputs of a reduction come from.
type Source uint32

// Sources of a reduction.
const (
	Plain    Source = 0
	FromLL8  Source = 1 // all inputs but Self are rows of packets
	FromLL16 Source = 2
)

// ReduceArgs mirrors mscclpp::actor::ReduceArgs.
type ReduceArgs struct {
	Control uintptr
	Inputs  uintptr // N addresses
	Out     uintptr
	Count   uint64
	Scale   float64
	N       uint32
	Op      uint32
	Divisor uint32
	Partial uint32
	Source  Source
	Self    uint32
	Flag    uint32
	Kernel  uint32
	Failed  uintptr
}
