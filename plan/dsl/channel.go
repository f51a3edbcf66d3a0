package dsl

import "github.com/mscclpp-go/mscclpp/plan/schema"

// peerChannel is what channels of memory and of ports have in common: it connects src, which does the operations, to dst.
type peerChannel struct {
	id       int
	dst, src int
	typ      schema.ChannelType
	p        *Program
}

func (p *Program) peerChannel(typ schema.ChannelType, dst, src int) peerChannel {
	c := peerChannel{dst: dst, src: src, typ: typ, p: p}
	switch {
	case !p.hasRank(src):
		p.fail(RuntimeError, "Source rank %d is out of bounds. Number of ranks: %d", src, len(p.gpus))
	case !p.hasRank(dst):
		p.fail(RuntimeError, "Destination rank %d is out of bounds. Number of ranks: %d", dst, len(p.gpus))
	}
	if p.err == nil {
		c.id = p.gpus[src].connect(typ, dst)
	}
	return c
}

// ID returns the number of the channel among those of its type and rank.
func (c peerChannel) ID() int { return c.id }

// Src returns the rank that uses the channel, and Dst the one at its other end.
func (c peerChannel) Src() int { return c.src }

// Dst returns the rank at the other end.
func (c peerChannel) Dst() int { return c.dst }

// ids enters the channel into the table of a block.
func (c peerChannel) ids(block int) []int {
	return []int{c.p.gpus[c.src].channel(block, c.typ, c.id)}
}

func (c peerChannel) remote(block int, chunk Chunk) operand {
	o := local(chunk)
	o.id = c.p.gpus[c.src].remote(block, chunk.Rank, chunk.Type, c.typ)
	return o
}

func (c peerChannel) synchronize(k kind, name schema.OpName, block int, joins Sync) bool {
	if c.p.err != nil || !c.p.legal(block) {
		return false
	}
	c.p.add(c.src, block, &op{kind: k, name: name, channel: c.typ, ids: c.ids(block), sync: joins})
	return true
}

func (c peerChannel) signal(name schema.OpName, block int, joins Sync) {
	if c.synchronize(kSignal, name, block, joins) {
		c.p.pairs.signal(c.src, c.dst, c.typ)
	}
}

func (c peerChannel) wait(name schema.OpName, block int, joins Sync) {
	if c.synchronize(kWait, name, block, joins) {
		c.p.pairs.wait(c.dst, c.src, c.typ)
	}
}

// put adds a transfer from a chunk of this rank to one of the peer.
func (c peerChannel) put(name schema.OpName, dst, src Chunk, on On) bool {
	if c.p.err != nil {
		return false
	}
	neither := RuntimeError
	if name == schema.ReadPutPkt {
		neither = ValueError
	}
	switch {
	case src.Rank != c.src:
		c.p.fail(RuntimeError, "Source chunk rank %d does not match current channel source rank %d.", src.Rank, c.src)
	case name == schema.ReadPutPkt && src.Type != ScratchBuffer:
		c.p.fail(RuntimeError, "Source chunk must be of type scratch.")
	case dst.Rank != c.dst:
		c.p.fail(RuntimeError, "Dst chunk rank %d does not match current channel dst rank %d.", dst.Rank, c.dst)
	case (name == schema.ReadPutPkt || name == schema.PutPkt) && dst.Type != ScratchBuffer:
		c.p.fail(RuntimeError, "Destination chunk must be of type scratch.")
	case dst.Size != src.Size:
		c.p.fail(RuntimeError, "Destination chunk size %d does not match source chunk size %d.", dst.Size, src.Size)
	}
	if c.p.err != nil {
		return false
	}
	c.p.each(on, neither, func(block int, s *share) {
		to := c.remote(block, dst)
		c.p.add(c.src, block, &op{kind: kPut, name: name, channel: c.typ, src: []operand{local(src)}, rdst: []operand{to}, ids: c.ids(block), share: s})
	})
	return c.p.err == nil
}

// MemoryChannel connects a rank to the mapped memory of a peer: the thread blocks load and store it themselves.
type MemoryChannel struct{ peerChannel }

// MemoryChannel makes a channel that src uses to reach dst.
func (p *Program) MemoryChannel(dst, src int) MemoryChannel {
	return MemoryChannel{p.peerChannel(schema.Memory, dst, src)}
}

// Signal tells the peer, which waits with Wait on its channel to this rank.
func (c MemoryChannel) Signal(block int, sync ...Sync) {
	joins, relaxed := syncOf(sync)
	c.signal(either(relaxed, schema.RlxSignal, schema.Signal), block, joins)
}

// Wait waits for a Signal of the peer.
func (c MemoryChannel) Wait(block int, sync ...Sync) {
	joins, relaxed := syncOf(sync)
	c.wait(either(relaxed, schema.RlxWait, schema.Wait), block, joins)
}

func either(first bool, a, b schema.OpName) schema.OpName {
	if first {
		return a
	}
	return b
}

// Put copies src, of this rank, to dst, of the peer.
func (c MemoryChannel) Put(dst, src Chunk, on On) { c.put(schema.Put, dst, src, on) }

// PutPackets writes src, of this rank, as packets to dst, scratch of the peer.
func (c MemoryChannel) PutPackets(dst, src Chunk, on On) { c.put(schema.PutPkt, dst, src, on) }

// ReadPutPackets waits for the packets in src, scratch of this rank, and writes them to dst, scratch of the peer.
func (c MemoryChannel) ReadPutPackets(dst, src Chunk, on On) { c.put(schema.ReadPutPkt, dst, src, on) }

// Get copies src, of the peer, to dst, of this rank.
func (c MemoryChannel) Get(dst, src Chunk, on On) {
	switch {
	case c.p.err != nil:
	case dst.Rank != c.src:
		c.p.fail(RuntimeError, "Source chunk rank %d does not match current channel source rank %d.", dst.Rank, c.src)
	case src.Rank != c.dst:
		c.p.fail(RuntimeError, "Dst chunk rank %d does not match current channel dst rank %d.", src.Rank, c.dst)
	case dst.Size != src.Size:
		c.p.fail(RuntimeError, "Destination chunk size %d does not match source chunk size %d.", dst.Size, src.Size)
	}
	if c.p.err != nil {
		return
	}
	c.p.each(on, RuntimeError, func(block int, s *share) {
		from := c.remote(block, src)
		c.p.add(c.src, block, &op{kind: kGet, name: schema.Get, channel: c.typ, rsrc: []operand{from}, dst: []operand{local(dst)}, ids: c.ids(block), share: s})
	})
}

// Reduce writes src reduced with all of others, which the peer has, to dst. Both src and dst are of this rank and may be
// the same.
func (c MemoryChannel) Reduce(dst, src Chunk, others []Chunk, on On, o ...ReduceOp) {
	switch {
	case c.p.err != nil:
	case src.Rank != c.src:
		c.p.fail(RuntimeError, "Destination chunk rank %d does not match current channel source rank %d.", src.Rank, c.src)
	case dst.Rank != c.src:
		c.p.fail(RuntimeError, "Destination chunk rank %d does not match current channel source rank %d.", dst.Rank, c.src)
	case src.Size != dst.Size:
		c.p.fail(RuntimeError, "Source chunk size %d does not match destination chunk size %d.", src.Size, dst.Size)
	}
	for _, x := range others {
		switch {
		case x.Rank != c.dst:
			c.p.fail(RuntimeError, "Source chunk rank %d does not match current channel dst rank %d.", x.Rank, c.dst)
		case x.Size != src.Size:
			c.p.fail(RuntimeError, "Source chunk size %d does not match local source chunk size %d.", x.Size, src.Size)
		}
	}
	if c.p.err != nil {
		return
	}
	c.p.each(on, RuntimeError, func(block int, s *share) {
		r := &op{kind: kReduce, channel: c.typ, src: []operand{local(src)}, dst: []operand{local(dst)}, reduce: theOp(o), share: s}
		for _, x := range others {
			r.rsrc = append(r.rsrc, c.remote(block, x))
		}
		c.ids(block)
		r.name = reduction(r)
		c.p.add(c.src, block, r)
	})
}

// PortChannel connects a rank to a peer by an engine beside the thread blocks, such as a network adapter: transfers are
// requests to it.
type PortChannel struct{ peerChannel }

// PortChannel makes a channel that src uses to reach dst.
func (p *Program) PortChannel(dst, src int) PortChannel {
	return PortChannel{p.peerChannel(schema.Port, dst, src)}
}

// Signal tells the peer, after all earlier transfers of the channel, and the peer waits with Wait.
func (c PortChannel) Signal(block int, sync ...Sync) {
	joins, _ := syncOf(sync)
	c.signal(schema.Signal, block, joins)
}

// Wait waits for a Signal of the peer.
func (c PortChannel) Wait(block int, sync ...Sync) {
	joins, _ := syncOf(sync)
	c.wait(schema.Wait, block, joins)
}

// Flush waits until the sources of all earlier transfers of the channel may be written again.
func (c PortChannel) Flush(block int, sync ...Sync) {
	joins, _ := syncOf(sync)
	c.synchronize(kFlush, schema.Flush, block, joins)
}

// Put requests a transfer of src, of this rank, to dst, of the peer.
func (c PortChannel) Put(dst, src Chunk, block int) { c.put(schema.Put, dst, src, Block(block)) }

// PutWithSignal requests a transfer and a signal after it.
func (c PortChannel) PutWithSignal(dst, src Chunk, block int) {
	if c.put(schema.Pws, dst, src, Block(block)) {
		c.p.pairs.signal(c.src, c.dst, c.typ)
	}
}

// PutWithSignalAndFlush requests a transfer and a signal after it, and waits until src may be written again.
func (c PortChannel) PutWithSignalAndFlush(dst, src Chunk, block int) {
	if c.put(schema.Pwsf, dst, src, Block(block)) {
		c.p.pairs.signal(c.src, c.dst, c.typ)
	}
}

// PutPackets requests a transfer of src, which are packets in the scratch of this rank, to dst, scratch of the peer.
func (c PortChannel) PutPackets(dst, src Chunk, block int) {
	c.put(schema.PutPkt, dst, src, Block(block))
}

// ReadPutPackets waits for the packets in src, scratch of this rank, and requests their transfer to dst, scratch of the
// peer.
func (c PortChannel) ReadPutPackets(dst, src Chunk, on On) { c.put(schema.ReadPutPkt, dst, src, on) }
