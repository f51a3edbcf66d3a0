package machine

import (
	"math/rand/v2"

	"github.com/mscclpp-go/mscclpp/internal/gfx/isa"
	"github.com/mscclpp-go/mscclpp/internal/gfx/object"
)

// Options decide how a machine runs.
type Options struct {
	Seed  uint64
	Steps int  // instructions of waves, after which a run is given up; 0: defaultSteps
	Weak  bool // memory operations take effect late, and in any order that their wave does not prevent

	RealTime bool // kernels read the time of day in place of a count of instructions, because others than kernels look at it too

	UncountedWriteBacks bool // for tests: no s_waitcnt waits for a write-back
}

// defaultSteps is far more than the tests' kernels take.
const defaultSteps = 50_000_000

// Launch is a kernel to run.
type Launch struct {
	Device      int // that the kernel runs on
	Space       int // the process that the addresses are of, where memory is of several
	Program     *Program
	Kernel      string
	Grid, Block uint32
	Args        []byte // the one argument
}

// Machine runs kernels over a memory.
type Machine struct {
	memory Memory
	opts   Options
	random *rand.Rand
	waves  []*wave
	clock  uint64 // instructions so far
	issued uint64 // memory operations so far

	// Lanes counts what lanes have executed.
	Lanes uint64
}

// grid is a launch under way.
type grid struct {
	*Launch
	kernel  *object.Kernel
	args    []byte // with what a runtime adds
	running int    // waves
}

// block is a block of a grid. Its waves share a compute unit.
type block struct {
	grid    *grid
	number  uint32
	core    Core
	lds     []byte
	waves   []*wave
	running int
	arrived int // at the barrier
}

// Program is a code object that is ready to run.
type Program struct {
	Object *object.Object
	base   uint64 // address of its image
	code   []*op  // by address within the code, in units of 4 bytes; nil: not decoded yet
}

// op is a decoded instruction and what executes it.
type op struct {
	isa.Inst
	run   func(*wave, *op) error
	alu   *alu
	reads []isa.Operand // vector and scalar registers that must not be on their way…
	wrote []isa.Operand // …and those that it sets
	class class
}

// class is the kind of a memory operation.
type class uint8

const (
	noMemory class = iota
	load
	store
	atomic
	invalidate
	writeBack
)

type state uint8

const (
	running state = iota
	waiting       // at the barrier
	ended
)

const allLanes = ^uint64(0)

// wave is 64 lanes that execute one instruction at a time.
type wave struct {
	machine *Machine
	block   *block
	first   uint32 // thread of lane 0
	state   state
	pc      uint64
	next    uint64 // address of the following instruction, unless it branches
	scc     bool
	asleep  bool
	s       [128]uint32
	v       [][64]uint32

	patience int // how long its accesses wait, if nothing hurries them
	pending  []*access
	spare    []*access
	vBusy    []uint16 // by register: loads that will write it
	sBusy    [128]uint16

	a, b, c lanes // operands and results of the instruction
	loaded  [4][64]uint32
}

type lanes [64]uint64

func (w *wave) pair(n uint16) uint64 { return uint64(w.s[n]) | uint64(w.s[n+1])<<32 }

func (w *wave) setPair(n uint16, v uint64) { w.s[n], w.s[n+1] = uint32(v), uint32(v>>32) }

func (w *wave) exec() uint64 { return w.pair(isa.EXEC) }

func (w *wave) setExec(v uint64) { w.setPair(isa.EXEC, v) }

// access is a memory operation on its way. It has taken effect when it was performed, and its wave may forget it when
// it was waited for.
type access struct {
	op        *op
	class     class
	exec      uint64
	size      int // bytes of each lane
	addr      [64]uint64
	data      [64][4]uint32 // to store, or that was loaded
	low, high uint64        // all of it lies in this range
	scope     Scope
	number    uint64 // in the order of issue
	scalar    bool
	vector    bool // counted by vmcnt…
	other     bool // …or by lgkmcnt
	performed bool
}

func one(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}
