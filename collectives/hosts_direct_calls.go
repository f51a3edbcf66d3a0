package collectives

import (
	"context"
	"fmt"
	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/crosshost"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/placement"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// enqueueDirect enqueues one call of all ranks in which the host takes no part: on a
// stream that is captured as well.
func (p *ports) enqueueDirect(c *Call, f func(t *trip)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.begin(c, hierarchicalDirect)
	state, err := t.device.Query(t.stream)
	if err != nil {
		return err
	}
	t.direct, t.captured = true, state == device.StreamCapturing
	if err := p.hierarchy.direct.prepare(c.Collective, c.Type, t.captured); err != nil {
		return err
	}
	return t.perform(func() {
		p.calls++
		f(t)
	})
}

// prepare loads what kernels between hosts need for calls of a collective, as far as there
// are any; a job's first call finds that out.
func (p *ports) prepare(k Collective, types ...kernel.DataType) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.hierarchy
	if h == nil || !h.carries.Load() || k.Messages() && !h.mails() {
		return nil
	}
	for _, t := range types {
		if k.Reduces() && !h.direct.canReduce(Request{Type: t, Op: kernel.Sum}) {
			continue
		}
		if err := h.direct.prepare(k, t, false); err != nil {
			return err
		}
	}
	return nil
}

// prepare loads what calls of a collective need, with elements of a type where it reduces;
// for messages, SendRecv stands for all.
func (d *direct) prepare(k Collective, typ kernel.DataType, captured bool) error {
	if k.Messages() {
		k = SendRecv
	}
	reduces := k.Reduces()
	if d.loaded[k] && (!reduces || d.sum.For(typ) != nil) {
		return nil
	}
	what := k.String()
	if reduces {
		what += " of " + typ.String()
	}
	if captured {
		return fmt.Errorf("%w: algorithm %s: expected the first %s outside of a capture: it loads kernels", framework.ErrInvalid, hierarchicalDirect, what)
	}
	inside := map[Collective][]Collective{
		AllReduce: {ReduceScatter, AllGather}, ReduceScatter: {ReduceScatter}, AllGather: {AllGather}, Barrier: {Barrier},
		Broadcast: {Broadcast, AllGather}, Reduce: {ReduceScatter, AllGather}, AllToAll: {AllToAll}, // whoever is the root
		SendRecv: {SendRecv},
	}
	if x := d.ports.hierarchy.inside; x != nil {
		for _, part := range inside[k] {
			if err := x.Prepare(part, typ); err != nil {
				return err
			}
		}
	}
	if reduces && d.sum.For(typ) == nil {
		ctx, cancel := context.WithTimeout(context.Background(), engine.PreparePatience)
		defer cancel()
		if _, err := d.sum.Load(ctx, d.ports.courier.world, typ); err != nil {
			return err
		}
	}
	d.loaded[k] = true
	return nil
}

// greet has the counterparts compare what this call is, before one in which the host
// takes part: they may be in a call in which it does not, and the two would wait for
// each other for ever.
func (t *trip) greet() {
	if h := t.ports.hierarchy; h != nil && h.carries.Load() {
		t.exchange(t.stream, traffic{})
	}
}

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
func (t *trip) exchange(s device.Stream, x traffic) { t.pass(s, x, everyHost, everyHost) }

// pass is an exchange in which one host gives, or gets. All others send heads nevertheless,
// and wait for those of all: without them nobody would know that slots are free.
func (t *trip) pass(s device.Stream, x traffic, giver, taker uint32) {
	if t.err != nil {
		return
	}
	d := t.ports.hierarchy.direct
	a := &d.args
	a.Input, a.Apart, a.Bytes, a.Output, a.Stride, a.Signature = x.in, x.apart, x.bytes, x.out, x.each, t.sign
	a.Giver, a.Taker = giver, taker
	blocks := min(exchangeBlocks, d.blocks, uint32(1+x.bytes/exchangeBlockBytes))
	t.err = d.exchange.For(kernel.Uint8).Launch(device.Launch{Grid: blocks, Block: d.threads(d.exchange), Stream: s}, unsafe.Pointer(a), unsafe.Sizeof(*a))
}

// half is one of the two halves of memory for the hosts.
func (d *direct) half(base uintptr, i int) uintptr {
	return base + uintptr(uint64(i%2)*uint64(d.args.Hosts)*d.stride)
}

// combine reduces what this rank has with what the counterparts gave, in the order of
// the hosts.
func (t *trip) combine(s device.Stream, in, out uintptr, count uint64, half int) {
	if t.err != nil || count == 0 {
		return
	}
	h, c := t.ports.hierarchy, t.call
	d := h.direct
	a := &d.sums
	a.Input, a.Output, a.Inputs, a.Count, a.Op, a.Scale = in, out, d.half(d.theirs, half), count, uint32(c.Op), c.Scale
	switch {
	case h.Most == 1:
	case c.Op == kernel.PreMulSum: // done inside
		a.Op = uint32(kernel.Sum)
	case c.Op == kernel.Avg: // what is inside was made smaller
		a.Op, a.Scale = uint32(kernel.PreMulSum), h.Smaller()/float64(t.ports.Comm.Size())
	}
	t.err = d.sum.For(c.Type).Launch(device.Launch{Grid: d.blocks, Block: d.threads(d.sum), Stream: s}, unsafe.Pointer(a), unsafe.Sizeof(*a))
}

func (d *direct) threads(a *engine.Kernel) uint32 {
	if n := a.MaxThreads; n > 0 {
		return min(choose.BlockThreads, uint32(n))
	}
	return choose.BlockThreads
}

// after has what comes on one stream wait for what is on another.
func (t *trip) after(m device.Mark, later, earlier device.Stream) {
	t.record(m, earlier)
	t.join(m, later)
}

func (t *trip) record(m device.Mark, s device.Stream) {
	if t.err == nil {
		t.err = m.Record(s)
	}
}

func (t *trip) join(m device.Mark, s device.Stream) {
	if t.err == nil {
		t.err = m.Wait(s)
	}
}

// stages takes pieces through three stages: the first and the last are inside the host,
// and that between hosts goes on beside them, on a stream of its own, so that one piece is
// between hosts while the next has its first stage and the one before it its last. Behind
// what the stage between hosts of a piece finds there, the last stage of the piece before
// the one before it has ended.
func (t *trip) stages(pieces int, first func(k int), between func(s device.Stream, k int), last func(k int)) {
	if pieces == 1 {
		first(0)
		between(t.stream, 0)
		last(0)
		return
	}
	b := &t.ports.hierarchy.direct.beside[0]
	if t.captured {
		b = &t.ports.hierarchy.direct.beside[1]
	}
	for k := range pieces + 1 {
		if k < pieces {
			first(k)
			t.after(b.marks[2], b.stream, t.stream)
			between(b.stream, k)
			t.record(b.marks[k%2], b.stream)
		}
		if k > 0 {
			t.join(b.marks[(k-1)%2], t.stream)
			last(k - 1)
		}
	}
}

// inPieces says in how many pieces a vector is worked on, and where, in bytes, each begins
// and how many elements it has.
func (t *trip) inPieces() (pieces int, of func(k int) (at uintptr, count uint64)) {
	c, element := t.call, uint64(t.call.Type.Size())
	size := t.ports.hierarchy.PieceOf(c.Count, element)
	// Who has nothing hears from others that they have.
	return max(1, int((c.Count+size-1)/size)), func(k int) (at uintptr, count uint64) {
		first := uint64(k) * size
		return uintptr(first * element), min(size, c.Count-first)
	}
}

// allReduceDirect takes each piece through a reduce-scatter inside the host, an exchange
// with the counterparts and a sum, and an all-gather inside.
func (t *trip) allReduceDirect() {
	h, c := t.ports.hierarchy, t.call
	pieces, of := t.inPieces()
	if h.Most == 1 || c.Count == 0 { // nothing inside
		for k := range pieces {
			at, count := of(k)
			t.sumBetween(t.stream, address(c.Input)+at, address(c.Output)+at, count, 0, everyHost)
		}
		return
	}
	t.stages(pieces, func(k int) {
		at, count := of(k)
		t.scatter(address(c.Input)+at, count, t.place(k%3))
	}, func(s device.Stream, k int) {
		at, count := of(k)
		own := h.Mine(count)
		t.sumBetween(s, t.place(k%3), t.summed(k, at, count), own.To-own.From, k, everyHost)
	}, func(k int) {
		at, count := of(k)
		t.gather(t.summed(k, at, count), count, address(c.Output)+at)
	})
}

// sumBetween adds up what counterparts have, for those of all hosts or of one, the taker.
// Much of it, between more than two hosts, goes in two steps, as in hierarchy_large.go: each
// reduces a segment, and gives it to the others. On hosts that get nothing out is for that.
func (t *trip) sumBetween(s device.Stream, in, out uintptr, count uint64, half int, taker uint32) {
	h, element := t.ports.hierarchy, uint64(t.call.Type.Size())
	d, hosts := h.direct, uint64(len(h.Hosts))
	word := max(1, crosshost.WordBytes/element)
	if each := count / hosts / word * word; hosts > 2 && each > 0 && count*element >= crosshost.TwoSteps {
		bytes := each * element
		own := uintptr(uint64(h.Host) * bytes)
		t.exchange(s, traffic{in, bytes, bytes, d.half(d.theirs, half), d.stride})
		t.combine(s, in+own, out+own, each, half)
		t.pass(s, traffic{out + own, 0, bytes, out, bytes}, everyHost, taker)
		in, out, count = in+uintptr(hosts*bytes), out+uintptr(hosts*bytes), count-hosts*each
		if count == 0 {
			return
		}
	}
	t.pass(s, traffic{in, 0, count * element, d.half(d.theirs, half), d.stride}, everyHost, taker)
	if taker == everyHost || taker == only(h.Host) {
		t.combine(s, in, out, count, half)
	}
}

// summed is where the sum of this rank's share of a piece goes: where it belongs, if the
// piece can be divided evenly.
func (t *trip) summed(k int, at uintptr, count uint64) uintptr {
	h := t.ports.hierarchy
	if own := h.Mine(count); placement.Share(count, h.Size())*uint64(h.Size()) == count {
		return address(t.call.Output) + at + uintptr(own.From*uint64(t.call.Type.Size()))
	}
	return t.place(k % 3)
}

// inParts says in how many pieces, of so many bytes at most, a part of each rank is worked
// on, and which.
func (t *trip) inParts(size uint64) (part uint64, pieces int, of func(k int) (from, bytes uint64)) {
	part = t.call.Count * uint64(t.call.Type.Size())
	return part, max(1, int((part+size-1)/size)), func(k int) (from, bytes uint64) {
		from = uint64(k) * size
		return from, min(size, part-from)
	}
}

// reduceScatterDirect reduces inside, for each host, what its ranks are to get, and
// exchanges the shares of that.
func (t *trip) reduceScatterDirect() {
	h, c := t.ports.hierarchy, t.call
	d, element := h.direct, uint64(c.Type.Size())
	part, pieces, of := t.inParts(h.PieceOfPart(element))
	if h.Most == 1 || part == 0 { // ranks are in the order of the hosts
		for k := range pieces {
			from, bytes := of(k)
			in := address(c.Input) + uintptr(from)
			t.exchange(t.stream, traffic{in, part, bytes, d.half(d.theirs, 0), d.stride})
			t.combine(t.stream, in+uintptr(uint64(h.Host)*part), address(c.Output)+uintptr(from), bytes/element, 0)
		}
		return
	}
	room := func(g, k int) uintptr { return d.half(d.mine, k) + uintptr(uint64(g)*d.stride) }
	t.stages(pieces, func(k int) {
		from, bytes := of(k)
		for g, ranks := range h.Hosts {
			block, there := t.block(address(c.Input), part, from, bytes, ranks)
			for i, rank := range ranks {
				if !there {
					t.copy(block+uintptr(uint64(i)*bytes), address(c.Input)+uintptr(uint64(rank)*part+from), bytes)
				}
			}
			t.scatter(block, uint64(len(ranks))*bytes/element, room(g, k))
		}
	}, func(s device.Stream, k int) {
		from, bytes := of(k)
		t.exchange(s, traffic{room(0, k), d.stride, bytes, d.half(d.theirs, k), d.stride})
		t.combine(s, room(h.Host, k), address(c.Output)+uintptr(from), bytes/element, k)
	}, func(int) {})
}

// allGatherDirect exchanges the part of this rank, and gathers inside, for each host, what
// its ranks have given to those of this one.
func (t *trip) allGatherDirect() {
	h, c := t.ports.hierarchy, t.call
	d := h.direct
	part, pieces, of := t.inParts(h.PieceOfPart(uint64(c.Type.Size())))
	t.stages(pieces, func(int) {}, func(s device.Stream, k int) {
		from, bytes := of(k)
		t.exchange(s, traffic{address(c.Input) + uintptr(from), 0, bytes, d.half(d.theirs, k), d.stride})
	}, func(k int) {
		from, bytes := of(k)
		for g, ranks := range h.Hosts {
			own := d.half(d.theirs, k) + uintptr(uint64(g)*d.stride)
			if g == h.Host {
				own = address(c.Input) + uintptr(from)
			}
			if h.Most == 1 {
				t.copy(address(c.Output)+uintptr(uint64(ranks[0])*part+from), own, bytes)
			} else if bytes > 0 {
				t.spread(g, own, part, from, bytes)
			}
		}
	})
}

// barrierDirect: who has heard of a rank of each host has heard of all their ranks.
func (t *trip) barrierDirect() {
	h := t.ports.hierarchy
	if h.inside != nil && t.err == nil {
		t.err = h.named(h.inside.Barrier(&CallOptions{Stream: t.stream}))
	}
	t.exchange(t.stream, traffic{})
}
