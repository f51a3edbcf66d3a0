package observe

import (
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// pointer is an address that kernels use.
func pointer(address uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }

// launch writes a record as kernels do: framework/kernel/include/mscclpp/records.h. whole: also its last word.
func launch(words *kernel.WaitControl, at uint64, e Event, peer uint16, whole bool) bool {
	ring := (*kernel.RecordRing)(pointer(uintptr(atomic.LoadUint64(&words.Records))))
	if ring == nil {
		return false
	}
	n := atomic.AddUint64((*uint64)(pointer(ring.Next)), 1) - 1
	to := (*[4]uint64)(pointer(ring.Records + uintptr(n&ring.Mask)*32))
	atomic.StoreUint64(&to[3], 0)
	to[0], to[1], to[2] = at, ring.Communicator, 7
	if ring.Calls != 0 {
		to[1] |= atomic.LoadUint64((*uint64)(pointer(ring.Calls)))
	}
	if whole {
		atomic.StoreUint64(&to[3], uint64(e)|uint64(peer)<<32|uint64(uint16(n/(ring.Mask+1)+1))<<48)
	}
	return true
}

func ofKernels(v *View, c *Cursor) (list []Record, lost uint64) {
	for _, s := range v.Read(c) {
		if s.Writer == "kernels of world" {
			list, lost = append(list, s.Records...), lost+s.Lost
		}
	}
	return list, lost
}

func TestKernelsWriteWhileRecordsAreOn(t *testing.T) {
	m, ranks := rig(t, 1, false)
	r := ranks[0]
	memory := new(struct {
		words kernel.WaitControl
		ring  kernel.RecordRing
	})
	k := r.Kernels("world", &memory.words, &memory.ring, nil)
	b := r.Board("world", 0, 2)
	v := m.Views()[0]
	var c Cursor

	b.Begin(b.Clock(), collective.AllReduce, 8, "ring", 0)
	if launch(&memory.words, 1, Kernel|Begin, 0xffff, true) {
		t.Error("records are off, and kernels write them")
	}
	b.End()
	for n := range 100 { // a switch in a running job takes no ring of its own each time
		r.Switch(true)
		b.Begin(b.Clock(), collective.AllReduce, 8, "ring", 0)
		if !launch(&memory.words, uint64(n+1), Wait|Begin, 1, true) {
			t.Fatal("records are on, and a call has begun: kernels write none")
		}
		b.End()
		r.Switch(false)
		b.Begin(b.Clock(), collective.AllReduce, 8, "ring", 0)
		b.End()
		if memory.words.Records != 0 {
			t.Fatal("kernels write though records are off")
		}
	}
	list, lost := ofKernels(v, &c)
	if len(list) != 100 || lost != 0 {
		t.Fatalf("%d records, %d lost: expected 100", len(list), lost)
	}
	for n, x := range list {
		if want := (Record{Time: int64(n + 1), Call: callOf(0, uint64(2+2*n)), Bytes: 7, Event: Wait | Begin, Peer: 1}); x != want {
			t.Fatalf("record %d is %+v: expected %+v", n, x, want)
		}
	}

	// A record that is being written is not read, and those behind it wait for it.
	r.Switch(true)
	k.follow()
	launch(&memory.words, 1, Signal|Instant, 0xffff, false)
	launch(&memory.words, 2, Signal|Instant, 0xffff, true)
	if list, _ := ofKernels(v, &c); len(list) != 0 {
		t.Errorf("read %+v, of which the first is half written", list)
	}
	// Once half a ring is behind it, its writer has ended.
	for range RingRecords / 2 {
		launch(&memory.words, 3, Signal|Instant, 0xffff, true)
	}
	if list, _ := ofKernels(v, &c); len(list) != RingRecords/2+1 || list[0].Time != 2 || list[0].Peer != -1 {
		t.Errorf("read %d records: expected %d, from the second one on", len(list), RingRecords/2+1)
	}
	// Kernels that write faster than readers read lose records, which are counted.
	for range RingRecords + 100 {
		launch(&memory.words, 4, Signal|Instant, 0xffff, true)
	}
	if list, lost := ofKernels(v, &c); uint64(len(list))+lost != RingRecords+100 || lost < 100 {
		t.Errorf("%d records, %d lost: expected %d in all", len(list), lost, RingRecords+100)
	}
	k.Close()
	if memory.words.Records != 0 {
		t.Error("kernels write into a ring that was given back")
	}
}

// Kernels of GPUs say for whom they wait in a word, again and again.
func TestLongWaitsOfGPUsAreSeen(t *testing.T) {
	m, ranks := rig(t, 1, true)
	var words kernel.WaitControl
	k := ranks[0].Kernels("world", &words, nil, nil)
	k.follow()
	v := m.Views()[0]
	var c Cursor
	var all []Record
	for len(all) == 0 {
		atomic.StoreUint32(&words.Waiting, 4)
		list, _ := ofKernels(v, &c)
		all = append(all, list...)
	}
	if atomic.LoadUint32(&words.Waited) != 4 {
		t.Error("the word is cleared, and the watch of calls does not find it")
	}
	k.Close()
	list, _ := ofKernels(v, &c)
	all = append(all, list...)
	if len(all) != 2 || all[0].Event != Wait|Begin || all[1].Event != Wait|End || all[0].Peer != 3 || all[1].Time < all[0].Time {
		t.Errorf("records %+v: expected one wait for rank 3", all)
	}
}
