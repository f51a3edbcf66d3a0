package machine

import (
	"math/rand/v2"
	"unsafe"
)

// Scope is for whom a memory operation has to be visible.
type Scope uint8

// Scopes, as the bits sc0 and sc1 name them.
const (
	Wave Scope = iota
	Group
	Agent
	System
)

// Operation is an atomic one.
type Operation uint8

// Operations that kernels use.
const (
	Add Operation = iota
	CompareSwap
)

// Core is where a block runs, and the space of addresses that it uses.
type Core struct{ Device, XCD, CU, Space int }

// Memory is what waves load and store. Sizes are 1, 2, 4, 8, 12 or 16 bytes; data is in the first bytes of the words.
type Memory interface {
	// Core is where a block of a kernel runs.
	Core(device int, block uint32) Core
	// Constant makes bytes readable that no kernel writes, until Forget.
	Constant(b []byte)
	Forget(b []byte)
	// Begin and End surround each kernel of a device. The error of End is a mistake of kernels.
	Begin(device int)
	End(device int) error

	Load(c Core, s Scope, addr uint64, size int, data *[4]uint32) error
	Store(c Core, s Scope, addr uint64, size int, data *[4]uint32) error
	// Atomic takes its operands from data, and leaves the old value there.
	Atomic(c Core, s Scope, o Operation, addr uint64, size int, data *[4]uint32) error
	// Invalidate drops what caches have that may be stale: of the compute unit, and of its XCD.
	Invalidate(c Core, s Scope, first, second bool)
	// WriteBack writes what the cache of the XCD has that memory has not.
	WriteBack(c Core) error
	// Drift lets something happen that may happen at any time.
	Drift(random *rand.Rand)
}

func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
