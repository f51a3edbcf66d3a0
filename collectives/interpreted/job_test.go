package interpreted_test

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated/interpret"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Where the memory of a rank lies. Regions have the size that they need, and nothing behind them.
const (
	rankStride  = 1 << 40
	atScratch   = 1 << 44
	atState     = atScratch + 1<<32
	atControl   = atScratch + 2<<32
	atInput     = atScratch + 3<<32
	atOutput    = atScratch + 4<<32
	atCopy      = atScratch + 5<<32 // the rank's copy of the window
	atCounter   = atScratch + 6<<32
	atSource    = atScratch + 7<<32
	atResult    = atScratch + 8<<32
	atSpare     = atScratch + 9<<32
	atWindow    = 1 << 45
	toInput     = 1 << 32 // from the window's beginning: registered inputs and outputs are ranges of it
	toOutput    = 2 << 32
	windowHalf  = 4096
	windowBytes = 2 * windowHalf
	packetBytes = 4096 // of the window, behind the data
)

// shape is how a case is executed.
type shape struct {
	ranks       int
	grid, block uint32
	launches    int
	op          kernel.Op
	bytes       uint64 // of what each rank gives, or gets, about
	check       uint32 // of signatures
	lanes       uint32 // 0: as many as blocks
	chunk       uint64 // at most so many bytes in a step; 0: as many as fit
	caller      int    // when its kernel runs
	placed      bool   // inputs and outputs are parts of the window
	window      uint64 // bytes of data of the window; 0: windowBytes
	inPlace     bool   // the output is the input
}

// job is the memory and the arguments of one case, as the engine would have them.
type job struct {
	shape
	session  *interpret.Session
	geometry kernelargs.Geometry
	common   []kernelargs.Common // by rank
	in, out  uint64              // bytes
}

func at(base uint64, rank int) uint64 { return base + uint64(rank)*rankStride }

// output is where that of a rank lies.
func (j *job) output(rank int) uint64 {
	if j.inPlace {
		return at(atInput, rank)
	}
	return at(atOutput, rank)
}

// newJob maps memory for buffers of these sizes.
func newJob(t testing.TB, s *interpret.Session, x shape, in, out uint64) *job {
	t.Helper()
	if x.window == 0 {
		x.window = windowBytes
	}
	j := &job{shape: x, session: s, in: in, out: out}
	var err error
	mailboxes := uint64(kernelargs.MaxLanes*x.ranks) * kernelargs.MailboxBytes
	scratch := mailboxes + uint64(x.ranks)*uint64(max(x.grid, x.lanes))*(96<<10) + 512<<10
	if j.geometry, err = kernelargs.Divide(scratch, x.ranks, max(x.grid, x.lanes), kernelargs.DeviceLine); err != nil {
		t.Fatal(err)
	}
	j.geometry = j.geometry.WithLamport(x.ranks)
	if x.chunk > 0 {
		j.geometry.StageSlot, j.geometry.PipeSlot = min(j.geometry.StageSlot, x.chunk), min(j.geometry.PipeSlot, x.chunk)
	}
	must(t, "reset", s.Reset())
	for r := range x.ranks {
		for _, m := range []struct {
			name  string
			base  uint64
			bytes uint64
		}{
			{"scratch", atScratch, j.geometry.Total}, {"state", atState, kernelargs.StateBytes}, {"control", atControl, uint64(unsafe.Sizeof(kernel.WaitControl{}))},
			{"input", atInput, j.mapped(in)}, {"output", atOutput, j.mapped(out)}, {"source", atSource, in * uint64(x.launches)}, {"result", atResult, out * uint64(x.launches)}, {"spare", atSpare, j.pipeBytes()}, {"copy", atCopy, x.window + packetBytes + 128}, {"counter", atCounter, 8},
		} {
			if m.bytes > 0 {
				must(t, m.name, s.Memory(r, fmt.Sprintf("%s-of-rank-%d", m.name, r), at(m.base, r), m.bytes))
			}
		}
		j.common = append(j.common, j.commonOf(r))
	}
	j.windowOver(t, "window", atWindow, x.window+packetBytes+128, atCopy)
	if x.placed {
		j.windowOver(t, "window-of-inputs", atWindow+toInput, j.mapped(in), atInput)
		j.windowOver(t, "window-of-outputs", atWindow+toOutput, j.mapped(out), atOutput)
	}
	return j
}

// mapped is the size of a buffer's region: the last word of a part of a window is there whole.
func (j *job) mapped(bytes uint64) uint64 {
	if j.placed {
		return (bytes + 15) / 16 * 16
	}
	return bytes
}

// windowOver makes a window over the regions of all ranks.
func (j *job) windowOver(t testing.TB, name string, window, bytes, region uint64) {
	t.Helper()
	copies := make([]uint64, j.ranks)
	for r := range copies {
		copies[r] = at(region, r)
	}
	must(t, name, j.session.Window(name, window, bytes, copies))
}

// pipeBytes is the size of the pipes in the memory of a rank.
func (j *job) pipeBytes() uint64 {
	return uint64(j.geometry.Lanes) * uint64(j.ranks-1) * kernelargs.PipeSlots * j.geometry.PipeSlot
}

func (j *job) commonOf(rank int) kernelargs.Common {
	c := kernelargs.Common{
		Control: uintptr(at(atControl, rank)), State: uintptr(at(atState, rank)), Notes: uintptr(at(atState, rank)),
		Rank: uint32(rank), Ranks: uint32(j.ranks), Check: j.check,
	}
	j.geometry.Fill(&c)
	if j.chunk > 0 { // a call has several pieces
		c.PacketHalf = min(c.PacketHalf, 8*j.chunk)
	}
	for r := range j.ranks {
		c.Scratch[r] = uintptr(at(atScratch, r))
	}
	return c
}

func (j *job) handle(rank int) kernel.SwitchChannelHandle {
	return kernel.SwitchChannelHandle{
		Local: uintptr(at(atCopy, rank)), Window: atWindow, Bytes: j.window, Flag: j.window + packetBytes, Expected: uintptr(at(atCounter, rank)),
		Control: uintptr(at(atControl, rank)), Rank: uint32(rank), Ranks: uint32(j.ranks),
	}
}

// args fills the long arguments of call n.
func (j *job) args(e *entry, rank int, count uint64, n int) *kernelargs.Args {
	kind, _ := e.collective()
	element := uint64(e.dtype.Size())
	traits := choose.TraitsOf(e.algorithm(), kind)
	a := &kernelargs.Args{
		Common: j.common[rank], Input: uintptr(at(atInput, rank)), Output: uintptr(j.output(rank)), Count: count,
		Chunk: j.geometry.StageSlot, Type: uint32(e.dtype), Op: uint32(j.op), Root: j.root(), Element: uint32(element), Scale: 1, Window: j.handle(rank),
		Memory: traits.Memories(1, 2),
	}
	if j.placed {
		a.InputOffset, a.OutputOffset = toInput, toOutput
		if j.inPlace {
			a.OutputOffset = toInput
		}
		if n%2 == 1 { // ranks are in different memory, and go by copies
			a.Memory += uint64(rank)
		}
	}
	a.Signature = j.signature(e, count)
	for r := range j.ranks {
		a.Inputs[r], a.Outputs[r] = uintptr(at(atInput, r)), uintptr(j.output(r))
	}
	bytes := max(j.in, j.out)
	switch e.algorithm() {
	case choose.Shares:
		a.Chunk = j.geometry.PipeChunk(bytes/uint64(j.ranks), a.Lanes, a.Ranks-1)
	case choose.Chain:
		a.Chunk = min(j.geometry.PipeChunk(bytes, a.Lanes, 1), kernelargs.MostPassedOn)
	case choose.Fetch:
		a.Chunk = min(j.geometry.PipeChunk(bytes, a.Lanes, 1), kernelargs.MostFetched)
	}
	if j.chunk > 0 { // calls divide the memory between them anew
		a.Chunk = min(a.Chunk, j.chunk>>(n%2))
	}
	return a
}

// signature is what ranks compare.
func (j *job) signature(e *entry, count uint64) kernelargs.Signature {
	kind, _ := e.collective()
	return kernelargs.Signature{Count: count, Collective: uint32(kind), Algorithm: 1, Type: uint32(e.dtype), Op: uint32(j.op), Root: j.root()}
}

func (j *job) root() uint32 { return uint32(j.ranks - 1) }

// packets fills the short arguments of packet kernels.
func (j *job) packets(e *entry, rank int, count uint64, release kernelargs.Release) *kernelargs.LLArgs {
	protocol := choose.TraitsOf(e.algorithm(), 0).Protocol
	c := &j.common[rank]
	a := &kernelargs.LLArgs{
		Control: c.Control, State: c.State, Notes: c.Notes, Rank: c.Rank, Ranks: c.Ranks, Check: j.check, Release: uint32(release),
		Input: uintptr(at(atInput, rank)), Output: uintptr(j.output(rank)), Count: count, Op: uint32(j.op), Element: uint32(e.dtype.Size()), Scale: 1,
	}
	a.Signature = j.signature(e, count)
	a.Area, a.Half, a.Slot, _ = j.geometry.LLArea(protocol.Area, j.ranks)
	copy(a.Scratch[:], c.Scratch[:j.ranks])
	return a
}

// steps fills the arguments of a kernel between copies.
func (j *job) steps(rank int) *kernelargs.StepArgs {
	c := &j.common[rank]
	a := &kernelargs.StepArgs{
		Control: c.Control, State: c.State, Notes: c.Notes, Rank: c.Rank, Ranks: c.Ranks, Check: j.check,
		Input: uintptr(at(atInput, rank)), Output: uintptr(at(atOutput, rank)), Op: uint32(j.op), Scale: 1,
	}
	copy(a.Scratch[:], c.Scratch[:j.ranks])
	return a
}

// messages lists those of a rank with every other: what it sends, by peer, and then what it receives.
func (j *job) messages(rank int, bytes uint64) (list []kernelargs.Transfer) {
	for _, receive := range []uint32{0, 1} {
		base := uintptr(at(atInput, rank))
		if receive == 1 {
			base = uintptr(at(atOutput, rank))
		}
		for p := range j.ranks {
			if p != rank {
				list = append(list, kernelargs.Transfer{Buffer: base + uintptr(uint64(p)*bytes), Bytes: bytes, Peer: uint32(p), Receive: receive})
			}
		}
	}
	return list
}

// lines divides the pipes of messages.
func (j *job) lines(list []kernelargs.Transfer) (l kernelargs.LinePipes) {
	l = kernelargs.LinePipes{Offset: j.geometry.LinePipes, Slots: kernelargs.LineSlots, Groups: j.geometry.LineGroups, Lanes: min(j.geometry.LineLanes, 2)}
	l.Active, _, _ = l.Shape(list)
	return l
}

func bytesOf[T any](p *T) []byte {
	return append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(p)), unsafe.Sizeof(*p))...)
}
