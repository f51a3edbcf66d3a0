package dsl_test

import "github.com/mscclpp-go/mscclpp/plan/dsl"

// Small programs, each of which shows one operation.

func copyOne(p *dsl.Program) { p.Rank(0).Copy(p.Output(0).At(0), p.Input(0).At(0), dsl.Block(0)) }

// handshaken runs a program for both directions of a pair of ranks, between an opening and a closing handshake.
func handshaken(body func(p *dsl.Program, ch dsl.MemoryChannel, r, peer int)) func(*dsl.Program) {
	return func(p *dsl.Program) {
		for r := range 2 {
			ch := p.MemoryChannel(1-r, r)
			ch.Signal(0, dsl.Relaxed)
			ch.Wait(0, dsl.Relaxed|dsl.After)
			body(p, ch, r, 1-r)
			ch.Signal(0, dsl.Before)
			ch.Wait(0, dsl.After)
		}
	}
}

func getOne(p *dsl.Program, ch dsl.MemoryChannel, r, peer int) {
	ch.Get(p.Input(r).At(0), p.Input(peer).At(1), dsl.Block(0))
}

func readReduce(p *dsl.Program, ch dsl.MemoryChannel, r, peer int) {
	for i := range 2 {
		ch.Reduce(p.Output(r).At(0), p.Input(r).At(0), []dsl.Chunk{p.Input(peer).At(i)}, dsl.Block(0))
	}
}

func reduceSend(p *dsl.Program, ch dsl.MemoryChannel, r, peer int) {
	p.Rank(r).Reduce(p.Output(r).At(0), p.Input(r).At(0), []dsl.Chunk{p.Input(r).At(1)}, dsl.Block(0))
	ch.Put(p.Output(peer).At(1), p.Output(r).At(0), dsl.Block(0))
}

func putWithSignal(p *dsl.Program) {
	for r := range 2 {
		ch := p.PortChannel(1-r, r)
		ch.Signal(0)
		ch.Wait(0, dsl.After)
		ch.PutWithSignal(p.Input(1-r).At(1), p.Input(r).At(0), 0)
		ch.Wait(0, dsl.After)
	}
}

func putPackets(p *dsl.Program) {
	for r := range 2 {
		to := p.Scratch(1-r, 1)
		p.MemoryChannel(1-r, r).PutPackets(to.At(0), p.Input(r).At(0), dsl.Block(0))
	}
}

func forwardPackets(p *dsl.Program) {
	s := []dsl.Buffer{p.Scratch(0, 2), p.Scratch(1, 2)}
	for r := range 2 {
		p.MemoryChannel(1-r, r).ReadPutPackets(s[1-r].At(1), s[r].At(0), dsl.Block(0))
	}
}

func semaphores(p *dsl.Program) {
	s := p.Semaphore(0, 0)
	s.Acquire(0, dsl.After)
	s.Release(1, dsl.Before)
}

func signals(p *dsl.Program) {
	for r := range 2 {
		p.MemoryChannel(1-r, r).Signal(0)
		p.MemoryChannel(1-r, r).Signal(0)
		p.MemoryChannel(1-r, r).Wait(0)
		p.MemoryChannel(1-r, r).Wait(0)
	}
}

func reduceGroup(p *dsl.Program) {
	in, out := p.Input(0), p.Output(0)
	g := p.Group(0, 1, 2, 3)
	for i := 1; i <= 2; i++ {
		p.Rank(0).Reduce(out.At(0), in.At(0), []dsl.Chunk{in.At(i)}, dsl.Blocks(g))
	}
}

func unpackOne(p *dsl.Program) {
	s := p.Scratch(0, 1)
	p.Rank(0).CopyPackets(s.At(0), p.Input(0).At(0), dsl.Block(0))
	p.Rank(0).UnpackPackets(p.Output(0).At(0), s.At(0), dsl.Block(0))
}

// reduceMixed reduces the four chunks of two ranks by reads, gets, copies and puts.
func reduceMixed(p *dsl.Program) {
	a, b := p.MemoryChannel(1, 0), p.MemoryChannel(0, 1)
	reduceBy(p, a, b, dsl.Block(0), func(f func(block int, a, b dsl.MemoryChannel)) { f(0, a, b) })
}

// reduceMixedGroup does the same with two thread blocks.
func reduceMixedGroup(p *dsl.Program) {
	a := []dsl.MemoryChannel{p.MemoryChannel(1, 0), p.MemoryChannel(1, 0)}
	b := []dsl.MemoryChannel{p.MemoryChannel(0, 1), p.MemoryChannel(0, 1)}
	reduceBy(p, a[0], b[0], dsl.Blocks(p.Group(0, 1)), func(f func(block int, a, b dsl.MemoryChannel)) {
		for i := range 2 {
			f(i, a[i], b[i])
		}
	})
}

func reduceBy(p *dsl.Program, a, b dsl.MemoryChannel, on dsl.On, each func(func(block int, a, b dsl.MemoryChannel))) {
	handshake := func() {
		each(func(block int, a, b dsl.MemoryChannel) { a.Signal(block); b.Signal(block) })
		each(func(block int, a, b dsl.MemoryChannel) { a.Wait(block); b.Wait(block) })
	}
	in, s := []dsl.Buffer{p.Input(0), p.Input(1)}, []dsl.Buffer{p.Scratch(0, 4), p.Scratch(1, 4)}
	p.Rank(0).Copy(s[0].Slice(2, 4), in[0].Slice(2, 4), on)
	p.Rank(1).Copy(s[1].Slice(0, 2), in[1].Slice(0, 2), on)
	handshake()
	a.Reduce(in[0].At(0), in[0].At(0), []dsl.Chunk{s[1].At(0)}, on)
	a.Put(in[1].At(0), in[0].At(0), on)
	a.Get(s[0].At(1), s[1].At(1), on)
	p.Rank(0).Reduce(in[0].At(1), in[0].At(1), []dsl.Chunk{s[0].At(1)}, on)
	a.Put(in[1].At(1), in[0].At(1), on)
	b.Reduce(in[1].Slice(2, 4), in[1].Slice(2, 4), []dsl.Chunk{in[0].Slice(2, 4)}, on)
	p.Rank(1).Copy(s[1].Slice(2, 4), in[1].Slice(2, 4), on)
	b.Put(in[0].Slice(2, 4), s[1].Slice(2, 4), on)
	handshake()
}

func reducePackets(p *dsl.Program) {
	a, b := p.MemoryChannel(1, 0), p.MemoryChannel(0, 1)
	in, s := []dsl.Buffer{p.Input(0), p.Input(1)}, []dsl.Buffer{p.Scratch(0, 3), p.Scratch(1, 3)}
	one := []dsl.On{dsl.Block(0), dsl.Block(1), dsl.Block(2)}
	a.PutPackets(s[1].At(1), in[0].At(1), one[0])
	b.PutPackets(s[0].At(0), in[1].At(0), one[0])
	p.Rank(0).ReducePackets(in[0].At(0), in[0].At(0), []dsl.Chunk{s[0].At(0)}, one[1])
	a.PutPackets(s[1].At(0), in[0].At(0), one[1])
	p.Rank(1).ReducePackets(in[1].At(1), in[1].At(1), []dsl.Chunk{s[1].At(1)}, one[1])
	p.Rank(1).CopyPackets(s[1].At(2), in[1].At(1), one[1])
	b.ReadPutPackets(s[0].At(1), s[1].At(2), one[1])
	p.Rank(0).UnpackPackets(in[0].At(1), s[0].At(1), one[2])
	p.Rank(1).UnpackPackets(in[1].At(0), s[1].At(0), one[2])
}

func transferPacketsGroups(p *dsl.Program) {
	a, b := p.MemoryChannel(1, 0), p.MemoryChannel(0, 1)
	out, s := []dsl.Buffer{p.Output(0), p.Output(1)}, []dsl.Buffer{p.Scratch(0, 2), p.Scratch(1, 2)}
	g := []dsl.On{dsl.Blocks(p.Group(0, 1)), dsl.Blocks(p.Group(2, 3)), dsl.Blocks(p.Group(4, 5))}
	a.PutPackets(s[1].At(0), out[0].At(0), g[0])
	p.Rank(1).CopyPackets(s[1].At(1), out[1].At(1), g[0])
	b.ReadPutPackets(s[0].At(1), s[1].At(1), g[1])
	p.Rank(0).UnpackPackets(out[0].At(1), s[0].At(1), g[1])
	p.Rank(1).UnpackPackets(out[1].At(0), s[1].At(0), g[2])
}
