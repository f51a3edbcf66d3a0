package port

import (
	"bytes"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/internal/harness"
)

// testAddress offers memory that no descriptor stands for. A transport in the process of the rank
// may register it by its address; then it is memory like other memory, until the registration is
// closed, behind which a peer changes nothing there: the rank may have freed it. A transport that
// does not take it says so, and so does every plugin: an address means nothing in another process.
func testAddress(t *harness.T) {
	const room = 1 << 14
	l := t.Link(framework.KindPort, t.Rank(0), t.Rank(1))
	sender, receiver := l.Ranks[0], l.Ranks[1]
	src, dst, counters := sender.Heap(room), receiver.Heap(room), receiver.Heap(4096)
	reg, err := sender.Register(t.Context(), src.Segment)
	if err != nil {
		t.WantClass("register memory that has nothing but an address", err, framework.ErrUnsupported)
		return
	}
	_ = reg.Key.Close()
	sender.Release(reg.ID)
	if !t.Embedded(sender) {
		t.Fatalf("a plugin registered memory by an address of another process")
	}
	c := sender.Proxied(16).ChannelOver(l, 0, src, dst, counters, &harness.Numbers{})
	for n, size := range []uint64{8, 777, room} {
		harness.Fill(src.Bytes[:size], uint64(n))
		c.PutSignal(0, 0, size)
		t.AwaitCount("the put", c.Count(), uint64(n+1))
		if at, bad := harness.Differs(dst.Bytes[:size], uint64(n)); bad {
			t.Fatalf("put of %d bytes: byte %d is wrong behind the signal", size, at)
		}
	}
	c.Flush()
	if err := receiver.Close(t.Context(), c.DstID); err != nil {
		t.Fatalf("rank %d: close the registration: %v", receiver.N, err)
	}
	clear(dst.Bytes)
	// Whether the proxy dies of it, or the put is lost, may depend on the transport.
	pos := c.Push(c.Trigger(kernel.TriggerData|kernel.TriggerFlush, 0, 0, room))
	for limit := time.Now().Add(t.Options.CallLimit); !c.Ring.Flushed(c.SemSlot, pos) && c.Ring.Err() == nil; {
		if time.Now().After(limit) {
			t.Fatalf("a put to memory whose registration was closed neither ends nor fails within %v", t.Options.CallLimit)
		}
		runtime.Gosched()
	}
	if !bytes.Equal(dst.Bytes, make([]byte, room)) {
		t.Errorf("a put changed memory whose registration was closed")
	}
	if got := atomic.LoadUint64(c.Count()); got != 3 {
		t.Errorf("%d signals arrived, 3 were sent", got)
	}
}
