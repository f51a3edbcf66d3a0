// Package handles gives numbers to the objects that programs in other languages hold.
//
// A handle is no address: whatever a program passes, looking it up touches nothing but the
// table. So NULL, garbage, a handle of another kind and one that was destroyed are recognized,
// and the error says which it is.
package handles

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Handle is a number in the program's hands. From the lowest bit: 4 bits of kind, 24 bits of
// index, 35 bits of generation. Addresses that malloc returns have no kind.
type Handle uint64

const (
	kindBits, indexBits, generationBits = 4, 24, 35

	maxIndex       = 1 << indexBits
	generationMask = 1<<generationBits - 1
)

func handle(kind, index int, generation uint64) Handle {
	return Handle(uint64(kind) | uint64(index)<<kindBits | generation<<(kindBits+indexBits))
}

// slot is a place in the table. Generations of a slot count up from a random number.
type slot struct {
	generation atomic.Uint64 // of the next entry
	entry      atomic.Pointer[entry]
}

type entry struct {
	handle Handle
	value  any
}

// Table holds objects of several kinds. Its zero value is not useful; see New.
type Table struct {
	kinds []string // names; kind 0 is none
	slots atomic.Pointer[[]*slot]

	mu   sync.Mutex
	free []int
}

// New makes a table for kinds with the given names; that of index i is kind i+1.
func New(kinds ...string) *Table {
	t := &Table{kinds: append([]string{""}, kinds...)}
	t.slots.Store(new([]*slot))
	return t
}

// Add returns a handle for an object. ErrUnavailable: there are too many.
func (t *Table) Add(kind int, value any) (Handle, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	slots := *t.slots.Load()
	var index int
	if n := len(t.free); n > 0 {
		index, t.free = t.free[0], t.free[1:] // the one that was freed first
	} else {
		if index = len(slots); index == maxIndex {
			return 0, fmt.Errorf("%w: %d handles are in use", framework.ErrUnavailable, index)
		}
		s := &slot{}
		s.generation.Store(rand.Uint64() & generationMask)
		grown := append(slots, s)
		t.slots.Store(&grown)
		slots = grown
	}
	s := slots[index]
	generation := s.generation.Load()
	e := &entry{handle: handle(kind, index, generation), value: value}
	s.generation.Store((generation + 1) & generationMask)
	s.entry.Store(e)
	return e.handle, nil
}

// Get returns the object of a handle. It takes no lock and does not allocate, unless it fails.
func (t *Table) Get(kind int, h Handle) (any, error) {
	index := int(h >> kindBits & (maxIndex - 1))
	if slots := *t.slots.Load(); index < len(slots) {
		if e := slots[index].entry.Load(); e != nil && e.handle == h && int(h&(1<<kindBits-1)) == kind {
			return e.value, nil
		}
	}
	return nil, t.explain(kind, h)
}

// Remove ends a handle and returns its object. Of callers that come at once, one gets it.
func (t *Table) Remove(kind int, h Handle) (any, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v, err := t.Get(kind, h)
	if err != nil {
		return nil, err
	}
	index := int(h >> kindBits & (maxIndex - 1))
	(*t.slots.Load())[index].entry.Store(nil)
	t.free = append(t.free, index)
	return v, nil
}

// Len returns how many handles are in use.
func (t *Table) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(*t.slots.Load()) - len(t.free)
}

// explain says what is wrong with a handle.
func (t *Table) explain(kind int, h Handle) error {
	expected := "a " + t.kinds[kind]
	if h == 0 {
		return fmt.Errorf("%w: the handle is NULL: expected %s", framework.ErrInvalid, expected)
	}
	got, index := int(h&(1<<kindBits-1)), int(h>>kindBits&(maxIndex-1))
	slots := *t.slots.Load()
	if got == 0 || got >= len(t.kinds) || index >= len(slots) {
		return fmt.Errorf("%w: %#x is no handle of this library: expected %s", framework.ErrInvalid, uint64(h), expected)
	}
	e := slots[index].entry.Load()
	switch {
	case e != nil && e.handle == h:
		return fmt.Errorf("%w: %#x is a %s: expected %s", framework.ErrInvalid, uint64(h), t.kinds[got], expected)
	case slots[index].past(h):
		return fmt.Errorf("%w: %#x is a %s that was destroyed: expected one that is there", framework.ErrInvalid, uint64(h), t.kinds[got])
	}
	return fmt.Errorf("%w: %#x is no handle of this library: expected %s", framework.ErrInvalid, uint64(h), expected)
}

// recent is how many of the last generations of a slot are believed to have been handed out.
const recent = 1 << 20

// past reports whether a handle was one of the slot's earlier ones.
func (s *slot) past(h Handle) bool {
	age := (s.generation.Load() - uint64(h>>(kindBits+indexBits))) & generationMask
	return age > 0 && age <= recent
}
