package transporttest

import (
	"bytes"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// heap is memory of the host that has an address of this process, and nothing else.
func (r *rank) heap(size uint64) *buffer {
	words := make([]uint64, (size+7)/8) // aligned, as counters have to be
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), size)
	return &buffer{bytes: b, segment: framework.Segment{Device: framework.Host, Bytes: size, Addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))}}
}

// testAddress offers memory that no descriptor stands for. A transport in the process of
// the rank may register it by its address; then it is memory like other memory, until the
// registration is closed, behind which a peer changes nothing there: the rank may have
// freed it. Who does not take it says so, and so does every plugin: an address means
// nothing in another process.
func testAddress(t *T) {
	const room = 1 << 14
	l := t.link(framework.KindPort, t.rank(0), t.rank(1))
	sender, receiver := l.ranks[0], l.ranks[1]
	src, dst, counters := sender.heap(room), receiver.heap(room), receiver.heap(4096)
	reg, err := sender.Register(t.ctx, src.segment)
	if err != nil {
		t.wantClass("register memory that has nothing but an address", err, framework.ErrUnsupported)
		return
	}
	_ = reg.Key.Close()
	sender.release(reg.ID)
	if !t.embedded(sender) {
		t.Fatalf("a plugin registered memory by an address of another process")
	}
	c := sender.proxied(16).channelOver(l, 0, src, dst, counters, &numbers{})
	for n, size := range []uint64{8, 777, room} {
		fill(src.bytes[:size], uint64(n))
		c.putSignal(0, 0, size)
		t.awaitCount("the put", c.count(), uint64(n+1))
		if at, bad := differs(dst.bytes[:size], uint64(n)); bad {
			t.Fatalf("put of %d bytes: byte %d is wrong behind the signal", size, at)
		}
	}
	c.flush()
	if err := receiver.Close(t.ctx, c.dstID); err != nil {
		t.Fatalf("rank %d: close the registration: %v", receiver.n, err)
	}
	clear(dst.bytes)
	// Whether the proxy dies of it, or the put is lost, may depend on the transport.
	pos := c.push(c.trigger(kernel.TriggerData|kernel.TriggerFlush, 0, 0, room))
	for limit := time.Now().Add(t.o.CallLimit); !c.ring.Flushed(c.semSlot, pos) && c.ring.Err() == nil; {
		if time.Now().After(limit) {
			t.Fatalf("a put to memory whose registration was closed neither ends nor fails within %v", t.o.CallLimit)
		}
		runtime.Gosched()
	}
	if !bytes.Equal(dst.bytes, make([]byte, room)) {
		t.Errorf("a put changed memory whose registration was closed")
	}
	if got := atomic.LoadUint64(c.count()); got != 3 {
		t.Errorf("%d signals arrived, 3 were sent", got)
	}
}
