package lastwords

import (
	"encoding/binary"
	"sync/atomic"
	"testing"
	"unsafe"
)

func TestSlots(t *testing.T) {
	if s := Register(1, make([]byte, 24)); s != nil {
		t.Fatal("a slot of a table that was not enabled")
	}
	var none *Slot
	none.Count(1)
	none.End()
	none.Release()
	if !none.Begin() {
		t.Error("a connection without a slot cannot be written to")
	}
	at, err := Enable()
	if again, _ := Enable(); err != nil || again != at {
		t.Fatalf("%v, %p and %p", err, at, again)
	}
	if unsafe.Sizeof(Slot{}) != slotBytes {
		t.Fatalf("a slot has %d bytes, expected %d", unsafe.Sizeof(Slot{}), slotBytes)
	}
	for _, n := range []int{0, 7, 23, most + 8} {
		if Register(1, make([]byte, n)) != nil {
			t.Errorf("a message of %d bytes", n)
		}
	}
	all := map[*Slot]bool{}
	for range Slots {
		s := Register(7, make([]byte, 24))
		if s == nil || all[s] {
			t.Fatalf("slot %d is %p", len(all), s)
		}
		all[s] = true
	}
	if Register(7, make([]byte, 24)) != nil {
		t.Error("one slot more than there are")
	}
	for s := range all {
		s.Count(0x0102030405060708)
		if n := binary.LittleEndian.Uint64(s.text[16:]); n != 0x0102030405060708 {
			t.Fatalf("%#x", n)
		}
		if !s.Begin() || s.Begin() {
			t.Fatal("written to twice at a time")
		}
		s.End()
		if !s.Begin() {
			t.Fatal("not idle behind a message")
		}
		s.Release() // also within a write that hangs
	}
	s := Register(7, make([]byte, 24))
	if s == nil {
		t.Fatal("slots that were released are not used again")
	}
	defer s.Release()
	if !atomic.CompareAndSwapUint32(&s.state, idle, saying) { // as the exit does
		t.Fatal(s.state)
	}
	if s.Begin() {
		t.Error("written to while the process exits")
	}
	atomic.StoreUint32(&s.state, said)
}
