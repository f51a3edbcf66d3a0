// Package memory is what interpreted kernels load and store: ranges of the process's memory that belong to GPUs or to
// the host, with or without a model of the caches in between.
package memory

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/internal/gfx/machine"
)

// Host is the owner of memory that belongs to no GPU.
const Host = -1

// Kind is how memory was allocated.
type Kind uint8

// Kinds of memory.
const (
	Coarse   Kind = iota // of hipMalloc
	Uncached             // of hipExtMallocWithFlags, with hipDeviceMallocUncached
	HostKind             // pinned memory of the host
	constant             // code and arguments: no kernel writes it
)

// Region is a range of addresses.
type Region struct {
	Start, End uint64
	Owner      int // the device, or Host
	Kind       Kind
}

// Regions know all memory. Those who allocate add to it while kernels run.
type Regions struct {
	mu   sync.Mutex
	list atomic.Pointer[[]Region] // ascending
}

// Add makes a range known; it must not overlap with another one.
func (r *Regions) Add(x Region) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.all()
	at, _ := slices.BinarySearchFunc(old, x.Start, func(o Region, start uint64) int { return compare(o.Start, start) })
	if x.End <= x.Start || at > 0 && old[at-1].End > x.Start || at < len(old) && old[at].Start < x.End {
		return fmt.Errorf("memory from %#x to %#x: it is empty, or overlaps with other memory", x.Start, x.End)
	}
	list := slices.Insert(slices.Clone(old), at, x)
	r.list.Store(&list)
	return nil
}

// Change says anew whose a range is, and of which kind. There is one from its beginning on.
func (r *Regions) Change(x Region) {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := slices.Clone(r.all())
	for i := range list {
		if list[i].Start == x.Start {
			list[i].Owner, list[i].Kind = x.Owner, x.Kind
		}
	}
	r.list.Store(&list)
}

// Remove forgets the range that begins at an address.
func (r *Regions) Remove(start uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := slices.DeleteFunc(slices.Clone(r.all()), func(o Region) bool { return o.Start == start })
	r.list.Store(&list)
}

func (r *Regions) all() []Region {
	if p := r.list.Load(); p != nil {
		return *p
	}
	return nil
}

func compare(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// find returns the range in which an access lies as a whole.
func (r *Regions) find(addr uint64, size int) (Region, error) {
	list := r.all()
	at, found := slices.BinarySearchFunc(list, addr, func(o Region, a uint64) int { return compare(o.Start, a) })
	if !found {
		at--
	}
	if at < 0 || addr+uint64(size) > list[at].End || addr+uint64(size) < addr {
		return Region{}, fmt.Errorf("%d bytes at %#x: no memory", size, addr)
	}
	return list[at], nil
}

// Has tells whether an address is known.
func (r *Regions) Has(addr uint64) bool {
	_, err := r.find(addr, 1)
	return err == nil
}

// HasConstant reports whether bytes are code or arguments.
func (r *Regions) HasConstant(addr uint64, size int) bool {
	x, err := r.find(addr, size)
	return err == nil && x.Kind == constant
}

// aligned refuses accesses that the hardware splits or refuses.
func aligned(addr uint64, size int) error {
	if addr%uint64(min(size&-size, 4)) != 0 {
		return fmt.Errorf("%d bytes at %#x: the address is not aligned", size, addr)
	}
	return nil
}

func pointer(addr uint64) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }

// read loads from the process's memory. Words of 4 and 8 bytes are loaded as a whole, because the host may be storing.
func read(addr uint64, size int, data *[4]uint32) {
	switch size {
	case 1:
		data[0] = uint32(*(*uint8)(pointer(addr)))
	case 2:
		data[0] = uint32(*(*uint16)(pointer(addr)))
	default:
		for at := 0; at < size; {
			if addr%8 == 0 && size-at >= 8 {
				v := atomic.LoadUint64((*uint64)(pointer(addr)))
				data[at/4], data[at/4+1] = uint32(v), uint32(v>>32)
				at, addr = at+8, addr+8
				continue
			}
			data[at/4] = atomic.LoadUint32((*uint32)(pointer(addr)))
			at, addr = at+4, addr+4
		}
	}
}

func write(addr uint64, size int, data *[4]uint32) {
	switch size {
	case 1:
		*(*uint8)(pointer(addr)) = uint8(data[0])
	case 2:
		*(*uint16)(pointer(addr)) = uint16(data[0])
	default:
		for at := 0; at < size; {
			if addr%8 == 0 && size-at >= 8 {
				atomic.StoreUint64((*uint64)(pointer(addr)), uint64(data[at/4])|uint64(data[at/4+1])<<32)
				at, addr = at+8, addr+8
				continue
			}
			atomic.StoreUint32((*uint32)(pointer(addr)), data[at/4])
			at, addr = at+4, addr+4
		}
	}
}

// modify performs an atomic operation on the process's memory.
func modify(o machine.Operation, addr uint64, size int, data *[4]uint32) error {
	if addr%uint64(size) != 0 {
		return fmt.Errorf("atomic operation on %d bytes at %#x: the address is not aligned", size, addr)
	}
	switch {
	case o == machine.Add && size == 4:
		data[0] = atomic.AddUint32((*uint32)(pointer(addr)), data[0]) - data[0]
	case o == machine.Add && size == 8:
		by := uint64(data[0]) | uint64(data[1])<<32
		old := atomic.AddUint64((*uint64)(pointer(addr)), by) - by
		data[0], data[1] = uint32(old), uint32(old>>32)
	case o == machine.CompareSwap && size == 4: // the new value comes first
		p := (*uint32)(pointer(addr))
		for {
			old := atomic.LoadUint32(p)
			if old != data[1] || atomic.CompareAndSwapUint32(p, old, data[0]) {
				data[0] = old
				return nil
			}
		}
	default:
		return fmt.Errorf("atomic operation %d on %d bytes: no committed kernel has it", o, size)
	}
	return nil
}

// Plain is memory without caches: stores take effect at once.
type Plain struct{ *Regions }

// Core implements machine.Memory.
func (Plain) Core(device int, block uint32) machine.Core {
	return machine.Core{Device: device, CU: int(block)}
}

// Constant implements machine.Memory.
func (r *Regions) Constant(b []byte) {
	start := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
	_ = r.Add(Region{Start: start, End: start + uint64(len(b)), Owner: Host, Kind: constant}) // it may be known already
}

// Forget implements machine.Memory.
func (r *Regions) Forget(b []byte) { r.Remove(uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))) }

// Begin implements machine.Memory.
func (Plain) Begin(int) {}

// End implements machine.Memory.
func (Plain) End(int) error { return nil }

// Load implements machine.Memory.
func (p Plain) Load(_ machine.Core, _ machine.Scope, addr uint64, size int, data *[4]uint32) error {
	if err := aligned(addr, size); err != nil {
		return err
	}
	if _, err := p.find(addr, size); err != nil {
		return err
	}
	read(addr, size, data)
	return nil
}

// Store implements machine.Memory.
func (p Plain) Store(_ machine.Core, _ machine.Scope, addr uint64, size int, data *[4]uint32) error {
	if _, err := p.writable(addr, size); err != nil {
		return err
	}
	write(addr, size, data)
	return nil
}

func (r *Regions) writable(addr uint64, size int) (Region, error) {
	if err := aligned(addr, size); err != nil {
		return Region{}, err
	}
	x, err := r.find(addr, size)
	if err == nil && x.Kind == constant {
		err = fmt.Errorf("%d bytes at %#x: a store into code or arguments", size, addr)
	}
	return x, err
}

// Atomic implements machine.Memory.
func (p Plain) Atomic(_ machine.Core, _ machine.Scope, o machine.Operation, addr uint64, size int, data *[4]uint32) error {
	if _, err := p.writable(addr, size); err != nil {
		return err
	}
	return modify(o, addr, size, data)
}

// Invalidate implements machine.Memory.
func (Plain) Invalidate(machine.Core, machine.Scope, bool, bool) {}

// WriteBack implements machine.Memory.
func (Plain) WriteBack(machine.Core) error { return nil }

// Drift implements machine.Memory.
func (Plain) Drift(*rand.Rand) {}

var _ machine.Memory = Plain{}
