package direct

import (
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// traffic is what an exchange moves: bytes for each host, which are so many behind those
// for the host before, or the same for all if apart is 0, to where what the hosts give
// lies, each so many bytes behind the one before.
type traffic struct {
	in    uintptr
	apart uint64
	bytes uint64
	out   uintptr
	each  uint64
}

// everyHost is in the place of a host that alone gives something in an exchange, or alone
// gets something.
const everyHost = 0

func only(host int) uint32 { return uint32(host) + 1 }

// exchange has counterparts on all hosts give each other something.
func (t *call) exchange(s device.Stream, x traffic) { t.pass(s, x, everyHost, everyHost) }

// pass is an exchange in which one host gives, or gets. All others send heads nevertheless,
// and wait for those of all: without them nobody would know that slots are free.
func (t *call) pass(s device.Stream, x traffic, giver, taker uint32) {
	if t.Err != nil {
		return
	}
	d := t.d
	a := &d.args
	a.Input, a.Apart, a.Bytes, a.Output, a.Stride, a.Signature = x.in, x.apart, x.bytes, x.out, x.each, t.Sign
	a.Giver, a.Taker = giver, taker
	blocks := min(exchangeBlocks, d.blocks, uint32(1+x.bytes/exchangeBlockBytes))
	t.Err = d.exchange.For(kernel.Uint8).Launch(device.Launch{Grid: blocks, Block: d.threads(d.exchange), Stream: s}, unsafe.Pointer(a), unsafe.Sizeof(*a))
}

// half is one of the two halves of memory for the hosts.
func (d *Engine) half(base uintptr, i int) uintptr {
	return base + uintptr(uint64(i%2)*uint64(d.args.Hosts)*d.stride)
}

// combine reduces what this rank has with what the counterparts gave, in the order of
// the hosts.
func (t *call) combine(s device.Stream, in, out uintptr, count uint64, half int) {
	if t.Err != nil || count == 0 {
		return
	}
	h, c := t.Queue, t.Call
	d := t.d
	a := &d.sums
	a.Input, a.Output, a.Inputs, a.Count, a.Op, a.Scale = in, out, d.half(d.theirs, half), count, uint32(c.Op), c.Scale
	switch {
	case h.Most == 1:
	case c.Op == kernel.PreMulSum: // done inside
		a.Op = uint32(kernel.Sum)
	case c.Op == kernel.Avg: // the inputs were made smaller inside the host
		a.Op, a.Scale = uint32(kernel.PreMulSum), h.Smaller()/float64(t.Ranks())
	}
	t.Err = d.sum.For(c.Type).Launch(device.Launch{Grid: d.blocks, Block: d.threads(d.sum), Stream: s}, unsafe.Pointer(a), unsafe.Sizeof(*a))
}

func (d *Engine) threads(k *engine.Kernel) uint32 {
	if n := k.MaxThreads; n > 0 {
		return min(threadsOfBlock, uint32(n))
	}
	return threadsOfBlock
}

// after has what comes on one stream wait for what is on another.
func (t *call) after(m device.Mark, later, earlier device.Stream) {
	t.record(m, earlier)
	t.join(m, later)
}

func (t *call) record(m device.Mark, s device.Stream) {
	if t.Err == nil {
		t.Err = m.Record(s)
	}
}

func (t *call) join(m device.Mark, s device.Stream) {
	if t.Err == nil {
		t.Err = m.Wait(s)
	}
}

// stages takes pieces through three stages: the first and the last are inside the host,
// and that between hosts goes on beside them, on a stream of its own, so that one piece is
// between hosts while the next has its first stage and the one before it its last. Behind
// what the stage between hosts of a piece finds there, the last stage of the piece before
// the one before it has ended.
func (t *call) stages(pieces int, first func(k int), between func(s device.Stream, k int), last func(k int)) {
	if pieces == 1 {
		first(0)
		between(t.Stream, 0)
		last(0)
		return
	}
	b := &t.d.exchanges[0]
	if t.Captured {
		b = &t.d.exchanges[1]
	}
	for k := range pieces + 1 {
		if k < pieces {
			first(k)
			t.after(b.marks[2], b.stream, t.Stream)
			between(b.stream, k)
			t.record(b.marks[k%2], b.stream)
		}
		if k > 0 {
			t.join(b.marks[(k-1)%2], t.Stream)
			last(k - 1)
		}
	}
}
